//! Random histories: operations on a few names, with clock steps between them.
//!
//! Some leases wait in the queues of the names. Of their clients, some can be told what they are
//! granted and others cannot, all through a history.

use std::fmt;
use std::num::NonZeroU32;

use fastrand::Rng;
use leasehold_core::{ClientId, LeaseId, Op, Token, TokenCount, Ttl, Waiter};

/// How many rounds a history has at most. Longer ones find no more, they only fail later.
const ROUNDS_MAX: usize = 24;

/// How many operations one name gets in a round at most.
const OPS_MAX: usize = 3;

/// How many leases compete for one name: enough for a holder, a queue and one that comes late.
const LEASES: usize = 5;

/// How many clients they belong to: fewer, so that one client waits with two leases.
const CLIENTS: usize = 4;

/// A lease that never holds anything.
const NOBODY: LeaseId = LeaseId {
    client: ClientId::from_random([0; 16]),
    number: 0,
};

/// What histories must look like to suit the clock of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The clock stands still between steps, so any ttl and any step will do. Many leases end
    /// exactly when somebody asks.
    Standing,
    /// The clock runs on while the history is played. Every ttl is an odd number of seconds, and so
    /// is all that the rule makes of it; every step is an even number. So each question comes a
    /// second before or after the end of a lease or queue, and the time that playing takes decides
    /// nothing.
    Running,
    /// As [`Shape::Running`], and the clock is sometimes set back.
    RunningBack,
}

/// The histories of some names that share a clock.
///
/// Every name gets an operation in every round: a store may forget an expired lease at once or
/// when it is asked, and a clock that is set back in between would tell which. Queues need not be
/// looked at while the lock is held, so before that somebody asks who holds nothing.
#[derive(Clone, Debug)]
pub struct Histories {
    /// The number they were made from.
    pub seed: u64,
    /// Whose leases they are.
    pub clients: Vec<Client>,
    /// How many names there are, counted from 0.
    pub names: usize,
    /// What is done, in this order.
    pub rounds: Vec<Round>,
}

/// Who takes part in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its id.
    pub id: ClientId,
    /// Whether it can be told that it was granted a lock.
    pub reachable: bool,
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
        let clients = clients(&mut rng);
        let leases: Vec<_> = (0..names)
            .map(|name| leases(&mut rng, shape, &clients, name))
            .collect();
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
        let mut rounds: Vec<Round> = Vec::new();
        for _ in 0..rng.usize(2..=ROUNDS_MAX) {
            let step_ms = shape.step_ms(&mut rng);
            if let Some(before) = rounds.last_mut().filter(|_| step_ms < 0) {
                before.batches.extend(look(names, batch_max));
            }
            rounds.push(Round {
                step_ms,
                batches: batches(&mut rng, shape, &leases, batch_max),
            });
        }
        Self {
            seed,
            clients,
            names,
            rounds,
        }
    }

    /// Whether a client can be told that it was granted a lock.
    #[must_use]
    pub fn reaches(&self, client: ClientId) -> bool {
        let mut clients = self.clients.iter();
        clients.any(|other| other.id == client && other.reachable)
    }

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
            clients: self.clients.clone(),
            ..*self
        }
    }
}

impl fmt::Display for Histories {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} names", self.seed, self.names)?;
        for Client { id, reachable } in &self.clients {
            let told = if *reachable { "hears" } else { "is deaf" };
            writeln!(f, "client {id} {told}")?;
        }
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
            return *pick(
                rng,
                &[
                    0, 0, 1, 1, 2, 5, 100, 900, 1_000, 1_001, 2_000, 2_999, 3_000, 600_000,
                ],
            );
        }
        match rng.u8(0..20) {
            0 => 600_000,
            1 | 2 if self == Self::RunningBack => -2_000 * rng.i64(1..=10),
            3..=9 => 0,
            _ => 2_000 * rng.i64(1..=3),
        }
    }

    fn ttl(self, rng: &mut Rng) -> Ttl {
        let millis = match self {
            // The grant of a waiter is for three seconds at most.
            Self::Standing => *pick(
                rng,
                &[
                    1, 1, 2, 5, 100, 1_000, 1_000, 2_999, 3_000, 3_001, 10_000, 86_400_000,
                ],
            ),
            Self::Running | Self::RunningBack => match rng.u8(0..20) {
                0 => 3_601_000,
                _ => 1_000 + 2_000 * rng.u64(0..=3),
            },
        };
        Ttl::from_millis(millis).unwrap_or(Ttl::MAX)
    }
}

fn batches(
    rng: &mut Rng,
    shape: Shape,
    leases: &[[Waiter; LEASES]],
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

/// A question about each name that makes a store look at its record and its queue.
fn look(names: usize, batch_max: usize) -> Vec<Vec<(usize, Op)>> {
    let renew = Op::Renew {
        lease: NOBODY,
        ttl: Ttl::USER_MIN,
    };
    let asked: Vec<_> = (0..names).map(|name| (name, renew)).collect();
    asked.chunks(batch_max).map(<[_]>::to_vec).collect()
}

fn op(rng: &mut Rng, shape: Shape, leases: &[Waiter]) -> Op {
    let waiter = *pick(rng, leases);
    let lease = waiter.lease;
    let ttl = shape.ttl(rng);
    match rng.u8(0..16) {
        0..=2 => Op::Acquire {
            lease,
            count: at_least_one(*pick(rng, &[1, 1, 2, 3, u32::MAX])),
            ttl,
            // Some blocks are so large that the counter runs ahead of the clock for seconds.
            tokens: tokens(rng),
            wait: false,
        },
        // Whoever waits asks the same each time.
        3..=8 => Op::Acquire {
            lease,
            count: NonZeroU32::MIN,
            ttl: waiter.ttl,
            tokens: waiter.tokens,
            wait: true,
        },
        9 => Op::Renew { lease, ttl },
        10 => Op::SetToken {
            lease,
            // Between them lies what the clocks say.
            first: *pick(rng, &firsts()),
            tokens: tokens(rng),
        },
        11 => Op::Enter {
            lease,
            count: at_least_one(*pick(rng, &[1, 2, 2, 3, u32::MAX])),
            ttl,
        },
        12..=14 => Op::Release {
            lease,
            count: *pick(rng, &[0, 0, 0, 1, 2, u32::MAX]),
            ttl,
        },
        _ => Op::Revoke,
    }
}

fn firsts() -> [Token; 4] {
    [1, 1 << 40, 1 << 51, 1 << 52].map(|first| Token::new(first).unwrap_or(Token::MAX))
}

fn tokens(rng: &mut Rng) -> TokenCount {
    at_least_one(*pick(rng, &[1, 1, 1, 2, 256, 256, 3_000_000, u32::MAX]))
}

/// Mostly reachable ones, so that there is somebody to tell when others are passed over.
fn clients(rng: &mut Rng) -> Vec<Client> {
    let clients = (0..CLIENTS).map(|_| Client {
        id: ClientId::from_random(rng.u128(..).to_be_bytes()),
        reachable: rng.u8(0..3) > 0,
    });
    clients.collect()
}

/// One lease of each client and a second one of the first: what they ask for when they wait.
fn leases(rng: &mut Rng, shape: Shape, clients: &[Client], name: usize) -> [Waiter; LEASES] {
    let numbers = *pick(rng, &[0, 1 << 40, u64::MAX - (1 << 20)]);
    // No lease is one of two names.
    let first = (name * LEASES) as u64;
    std::array::from_fn(|nth| Waiter {
        lease: LeaseId {
            client: clients[nth % clients.len()].id,
            number: numbers + first + nth as u64,
        },
        ttl: shape.ttl(rng),
        tokens: tokens(rng),
    })
}

fn at_least_one(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

pub(crate) fn pick<'a, T>(rng: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[rng.usize(..choices.len())]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use leasehold_core::queue;

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

    /// A second lies between any question and the end of any lease or queue, so that a store whose
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
                    if let Op::Acquire { lease, ttl, .. }
                    | Op::Enter { lease, ttl, .. }
                    | Op::Renew { lease, ttl }
                    | Op::Release { lease, ttl, .. } = op
                        && *lease != NOBODY
                    {
                        let lasting = [
                            ttl.as_duration(),
                            queue::acceptance(*ttl).as_duration(),
                            queue::retention(*ttl),
                        ];
                        let lasting = lasting.map(|span| i64::try_from(span.as_millis()).unwrap());
                        ends.extend(lasting.map(|span| now + span));
                    }
                    // Whatever is asked now may grant to somebody who asked before.
                    ends.push(now + 3_000);
                }
                let nearest = ends
                    .iter()
                    .map(|end| (end - now).abs())
                    .min()
                    .unwrap_or(1_000);
                assert!(nearest >= 1_000, "{nearest} ms in {histories}");
            }
        }
    }

    #[test]
    fn a_lease_that_waits_asks_the_same_each_time() {
        for seed in 0..200 {
            let histories = Histories::random(seed, Shape::Standing, 16);
            let mut asked = HashMap::new();
            for (name, op) in histories
                .rounds
                .iter()
                .flat_map(|round| &round.batches)
                .flatten()
            {
                if let Op::Acquire {
                    lease, wait: true, ..
                } = op
                {
                    let first = asked.entry(*lease).or_insert((*name, *op));
                    assert_eq!(*first, (*name, *op), "{histories}");
                }
            }
        }
    }
}
