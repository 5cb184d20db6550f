//! Random histories: operations on a few names, with clock steps between them.

use std::fmt;
use std::num::NonZeroU32;

use fastrand::Rng;
use leasehold_core::{ClientId, LeaseId, Op, TokenCount, Ttl};

/// How many rounds a history has at most. Longer ones find no more, they only fail later.
const ROUNDS_MAX: usize = 24;

/// How many operations one name gets in a round at most.
const OPS_MAX: usize = 3;

/// How many leases compete for one name: a holder, a rival and a late one.
const LEASES: usize = 3;

/// What histories must look like to suit the clock of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The clock stands still between steps, so any ttl and any step will do. Many leases end
    /// exactly when somebody asks.
    Standing,
    /// The clock runs on while the history is played. Every ttl is some seconds and a half, every
    /// step some whole seconds, so each question comes half a second before or after the end of a
    /// lease, and the time that playing takes decides nothing.
    Running,
    /// As [`Shape::Running`], and the clock is sometimes set back.
    RunningBack,
}

/// The histories of some names that share a clock.
///
/// Every name gets an operation in every round: a store may forget an expired lease at once or
/// when it is asked, and a clock that is set back in between would tell which.
#[derive(Clone, Debug)]
pub struct Histories {
    /// The number they were made from.
    pub seed: u64,
    /// How many names there are, counted from 0.
    pub names: usize,
    /// What is done, in this order.
    pub rounds: Vec<Round>,
}

/// A step of the clock and what is asked after it.
#[derive(Clone, Debug)]
pub struct Round {
    /// How far the clock is moved, in milliseconds.
    pub step_ms: i64,
    /// What is asked, batch by batch: which name, and which operation.
    pub batches: Vec<Vec<(usize, Op)>>,
}

impl Histories {
    /// The histories of a seed. There are never more than `names_max` names.
    #[must_use]
    pub fn random(seed: u64, shape: Shape, names_max: usize) -> Self {
        let mut rng = Rng::with_seed(seed);
        let names = rng.usize(1..=names_max.max(1));
        let leases: Vec<_> = (0..names).map(|_| leases(&mut rng)).collect();
        // One by one as well, but not with many names: a store may have to wait for its disk after
        // each batch.
        let batch_max = *pick(
            &mut rng,
            if names > 4 {
                &[16, 64, 64]
            } else {
                &[1, 3, 16]
            },
        );
        let rounds = (0..rng.usize(2..=ROUNDS_MAX))
            .map(|_| Round {
                step_ms: shape.step_ms(&mut rng),
                batches: batches(&mut rng, shape, &leases, batch_max),
            })
            .collect();
        Self {
            seed,
            names,
            rounds,
        }
    }
}

impl Histories {
    /// The history of one name alone, to be read.
    #[must_use]
    pub fn of(&self, name: usize) -> Self {
        let own = |batch: &Vec<(usize, Op)>| {
            let own = batch.iter().filter(|(other, _)| *other == name);
            own.copied().collect::<Vec<_>>()
        };
        let rounds = self.rounds.iter().map(|round| Round {
            step_ms: round.step_ms,
            batches: round
                .batches
                .iter()
                .map(own)
                .filter(|batch| !batch.is_empty())
                .collect(),
        });
        Self {
            rounds: rounds.collect(),
            ..*self
        }
    }
}

impl fmt::Display for Histories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} names", self.seed, self.names)?;
        for round in &self.rounds {
            writeln!(f, "clock {:+} ms", round.step_ms)?;
            for batch in &round.batches {
                for (name, op) in batch {
                    writeln!(f, "  {name}: {op:?}")?;
                }
            }
        }
        Ok(())
    }
}

impl Shape {
    fn step_ms(self, rng: &mut Rng) -> i64 {
        if self == Self::Standing {
            return *pick(rng, &[0, 0, 1, 1, 2, 5, 100, 900, 1_000, 1_001, 600_000]);
        }
        match rng.u8(0..20) {
            0 => 600_000,
            1 | 2 if self == Self::RunningBack => -1_000 * rng.i64(1..=20),
            3..=8 => 0,
            _ => 1_000 * rng.i64(1..=4),
        }
    }

    fn ttl(self, rng: &mut Rng) -> Ttl {
        let millis = match self {
            Self::Standing => *pick(rng, &[1, 1, 2, 5, 100, 1_000, 1_000, 86_400_000]),
            Self::Running | Self::RunningBack => match rng.u8(0..20) {
                0 => 3_600_500,
                _ => 500 + 1_000 * rng.u64(0..=6),
            },
        };
        Ttl::from_millis(millis).unwrap_or(Ttl::MAX)
    }
}

fn batches(
    rng: &mut Rng,
    shape: Shape,
    leases: &[[LeaseId; LEASES]],
    batch_max: usize,
) -> Vec<Vec<(usize, Op)>> {
    let mut asked: Vec<_> = leases
        .iter()
        .enumerate()
        .flat_map(|(name, leases)| {
            let ops = rng.usize(1..=OPS_MAX);
            (0..ops)
                .map(|_| (name, op(rng, shape, leases)))
                .collect::<Vec<_>>()
        })
        .collect();
    rng.shuffle(&mut asked);
    let mut batches = Vec::new();
    while !asked.is_empty() {
        let rest = asked.split_off(rng.usize(1..=batch_max).min(asked.len()));
        batches.push(std::mem::replace(&mut asked, rest));
    }
    batches
}

fn op(rng: &mut Rng, shape: Shape, leases: &[LeaseId]) -> Op {
    let lease = *pick(rng, leases);
    let ttl = shape.ttl(rng);
    match rng.u8(0..10) {
        0..=3 => Op::Acquire {
            lease,
            count: at_least_one(*pick(rng, &[1, 1, 2, 3, u32::MAX])),
            ttl,
            // Some blocks are so large that the counter runs ahead of the clock for seconds.
            tokens: tokens(rng),
            wait: false,
        },
        4 | 5 => Op::Renew { lease, ttl },
        6..=8 => Op::Release {
            lease,
            count: *pick(rng, &[0, 0, 1, 2, u32::MAX]),
            ttl,
        },
        _ => Op::Revoke,
    }
}

fn tokens(rng: &mut Rng) -> TokenCount {
    at_least_one(*pick(rng, &[1, 1, 1, 2, 256, 256, 3_000_000, u32::MAX]))
}

/// Two leases of one client and one of another.
fn leases(rng: &mut Rng) -> [LeaseId; LEASES] {
    let client = ClientId::from_random(rng.u128(..).to_be_bytes());
    let other = ClientId::from_random(rng.u128(..).to_be_bytes());
    let number = *pick(rng, &[0, 1, 41, u64::MAX - 1]);
    [(client, number), (client, number + 1), (other, number)]
        .map(|(client, number)| LeaseId { client, number })
}

fn at_least_one(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

pub(crate) fn pick<'a, T>(rng: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[rng.usize(..choices.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_histories_again() {
        let shape = Shape::RunningBack;
        let text = |seed| Histories::random(seed, shape, 16).to_string();
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }

    #[test]
    fn every_name_is_asked_in_every_round() {
        for seed in 0..200 {
            let histories = Histories::random(seed, Shape::Standing, 16);
            for round in &histories.rounds {
                let mut asked = vec![false; histories.names];
                for (name, _) in round.batches.iter().flatten() {
                    asked[*name] = true;
                }
                assert!(asked.iter().all(|asked| *asked), "{histories}");
            }
        }
    }

    /// Half a second lies between any question and the end of any lease, so that a store whose
    /// clock runs answers as the rule does.
    #[test]
    fn running_clocks_decide_nothing() {
        for seed in 0..1_000 {
            let histories = Histories::random(seed, Shape::RunningBack, 4);
            let mut now = 0;
            let mut ends = Vec::new();
            for round in &histories.rounds {
                now += round.step_ms;
                for (_, op) in round.batches.iter().flatten() {
                    if let Op::Acquire { ttl, .. }
                    | Op::Renew { ttl, .. }
                    | Op::Release { ttl, .. } = op
                    {
                        ends.push(now + i64::try_from(ttl.as_millis()).unwrap());
                    }
                }
                let nearest = ends
                    .iter()
                    .map(|end| (end - now).abs())
                    .min()
                    .unwrap_or(500);
                assert!(nearest >= 500, "{nearest} ms in {histories}");
            }
        }
    }
}
