//! The schedule of faults, drawn from a seed before anything runs.

use std::iter;
use std::ops::Range;

use fastrand::Rng;

use super::{CLOCK_STEP_MAX_MS, Sequence, Store, Timed, episodes};
use crate::history::Fault;

/// The number of holder processes in a world.
const HOLDERS: usize = 3;

/// The locks of a world.
pub(super) const NAMES: [&str; 2] = ["orders", "ledger"];

/// The election of the candidates of a soak.
pub(super) const ELECTION: &str = "scheduler";

/// The ttls of holder processes, in milliseconds. Short, so that leases expire often.
pub(super) const TTLS_MS: [u64; 4] = [300, 400, 600, 1000];

/// The same for stores whose changes take longer.
pub(super) const LONG_TTLS_MS: [u64; 4] = [600, 1000, 1500, 2000];

/// The same for many masters. The largest is the longest ttl of their URL, so long that leases outlast a stop of a
/// second, after which a master could be admitted too early.
const MASTERS_TTLS_MS: [u64; 4] = [2000, 4000, 4000, 4000];

/// The time before the first fault, and the time without faults at the end in which every holder can be granted its
/// locks again: late replies and dead leases have ended by then.
const LEAD_MS: u64 = 300;
const QUIESCE_MS: u64 = 2500;

/// The mean time between two faults, of each holder and of the server. Longer than a ttl for a holder, so that it
/// holds something in between.
const HOLDER_GAP_MS: u64 = 2000;
const SERVER_GAP_MS: u64 = 1500;
const MASTERS_HOLDER_GAP_MS: u64 = 8000;

const LINK_GAP_MS: u64 = 4000;

/// The number of kinds of faults of connections: to Redis, and of those with another protocol.
const LINK_FAULTS: u8 = 6;
pub(super) const PROXIED_FAULTS: u8 = 4;

/// How long a fault of a store that forgets nothing may last.
const LENGTHS_MS: Range<u64> = 20..1500;

/// The random streams of worlds with many masters begin here, and those of the connections to a single server.
const MASTERS_STREAM: u64 = 1 << 32;
const LINKS_STREAM: u64 = 2 << 32;

/// The schedule of one world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The number of servers: one, or several masters. The members of a cluster are one.
    pub(super) servers: usize,
    /// Whether killed servers keep all that they have acknowledged.
    pub(super) durable: bool,
    /// Whether the clocks of servers are set, so that the times in tokens mean nothing.
    pub(super) clock: bool,
    pub(super) duration_ms: u64,
    pub(super) holders: Vec<HolderPlan>,
    pub(super) sequences: Vec<Sequence>,
}

/// A holder process and those that replace it when it is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HolderPlan {
    pub(super) seed: u64,
    pub(super) ttl_ms: u64,
    pub(super) handoff: bool,
    /// Whether its tasks wait for short times only.
    pub(super) impatient: bool,
    pub(super) threads: usize,
    pub(super) tasks: u64,
    /// The longest time between two turns of a task.
    pub(super) idle_ms: u64,
    /// Whether it campaigns in an election instead.
    pub(super) campaigns: bool,
    pub(super) faults: Vec<Timed>,
}

impl Plan {
    /// The plan of one world with a single server of Redis in one round of a campaign.
    pub(super) fn draw(seed: u64, round: u64, world: u64, duration_ms: u64) -> Self {
        let (at, clock) = ([seed, round, world], world % 4 == 3);
        let server_fault = |rng: &mut Rng| server_fault(rng, clock);
        Self {
            clock,
            ..Self::draw_one(at, duration_ms, TTLS_MS, LINK_FAULTS, server_fault)
        }
    }

    /// The plan of one world with another store, whose faults are equally likely.
    pub(super) fn draw_of<S: Store>(seed: u64, round: u64, world: u64, duration_ms: u64) -> Self {
        let at = [seed, round, world];
        Self::draw_one(at, duration_ms, S::TTLS_MS, S::LINK_FAULTS, |rng| {
            (S::FAULTS[rng.usize(..S::FAULTS.len())], rng.u64(LENGTHS_MS))
        })
    }

    /// The plan of one world without many masters: with ttls, a number of kinds of faults of connections, and the faults
    /// of the servers.
    fn draw_one(
        [seed, round, world]: [u64; 3],
        duration_ms: u64,
        ttls_ms: [u64; 4],
        link_faults: u8,
        server_fault: impl Fn(&mut Rng) -> (Fault, u64),
    ) -> Self {
        let mut rng = stream(seed, [round, world]);
        let mut links = stream(seed, [round, LINKS_STREAM + world]);
        let link = |holder| Sequence {
            server: 0,
            holder: Some(holder),
            faults: sequence(&mut links, duration_ms, LINK_GAP_MS, |rng| {
                link_fault(rng, link_faults)
            }),
        };
        let linked = if link_faults > 0 { HOLDERS } else { 0 };
        Self {
            servers: 1,
            durable: true,
            clock: false,
            duration_ms,
            holders: (0..HOLDERS)
                .map(|_| holder(&mut rng, duration_ms, ttls_ms, HOLDER_GAP_MS))
                .collect(),
            sequences: iter::once(Sequence {
                server: 0,
                holder: None,
                faults: sequence(&mut rng, duration_ms, SERVER_GAP_MS, server_fault),
            })
            .chain((0..linked).map(link))
            .collect(),
        }
    }

    /// The plan of one world with many masters. Every fourth has five, every second has masters that keep
    /// no more than snapshots.
    pub(super) fn draw_masters(seed: u64, round: u64, world: u64, duration_ms: u64) -> Self {
        let mut rng = stream(seed, [round, MASTERS_STREAM + world]);
        let servers = if world % 4 == 3 { 5 } else { 3 };
        let (durable, clock) = (world % 2 == 1, world % 4 == 2);
        let holder = |_| HolderPlan {
            impatient: rng.u8(..4) > 0,
            ..holder(
                &mut rng,
                duration_ms,
                MASTERS_TTLS_MS,
                MASTERS_HOLDER_GAP_MS,
            )
        };
        let holders: Vec<_> = (0..HOLDERS).map(holder).collect();
        let set = episodes::Masters {
            servers,
            holders: holders.len(),
            durable,
            clock,
        };
        let end = duration_ms.saturating_sub(QUIESCE_MS);
        Self {
            servers,
            durable,
            clock,
            duration_ms,
            sequences: set.draw(&mut rng, LEAD_MS, end),
            holders,
        }
    }

    /// The longest ttl in the world, in milliseconds.
    pub(super) fn ttl_max_ms(&self) -> u64 {
        let ttls = match self.servers {
            1 => TTLS_MS,
            _ => MASTERS_TTLS_MS,
        };
        ttls.into_iter().max().unwrap_or(0)
    }
}

/// A random stream of its own for each round and world.
fn stream(seed: u64, numbers: [u64; 2]) -> Rng {
    let mut rng = Rng::with_seed(seed);
    for number in numbers {
        rng = Rng::with_seed(rng.u64(..) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    rng
}

fn holder(rng: &mut Rng, duration_ms: u64, ttls_ms: [u64; 4], gap_ms: u64) -> HolderPlan {
    let ttl_ms = ttls_ms[rng.usize(..ttls_ms.len())];
    HolderPlan {
        seed: rng.u64(..),
        ttl_ms,
        handoff: rng.bool(),
        impatient: false,
        threads: rng.usize(1..=2),
        tasks: rng.u64(2..=4),
        idle_ms: 30,
        campaigns: false,
        faults: sequence(rng, duration_ms, gap_ms, |rng| holder_fault(rng, ttl_ms)),
    }
}

/// Draws faults one after the other that do not overlap.
fn sequence(
    rng: &mut Rng,
    duration_ms: u64,
    gap_ms: u64,
    mut draw: impl FnMut(&mut Rng) -> (Fault, u64),
) -> Vec<Timed> {
    let end = duration_ms.saturating_sub(QUIESCE_MS);
    let mut faults = Vec::new();
    let mut at_ms = LEAD_MS;
    loop {
        at_ms += rng.u64(gap_ms / 4..gap_ms * 7 / 4);
        let (fault, length_ms) = draw(rng);
        let name = rng.usize(..NAMES.len());
        if at_ms + length_ms > end {
            return faults;
        }
        faults.push(Timed {
            at_ms,
            fault,
            length_ms,
            name,
        });
        at_ms += length_ms;
    }
}

fn holder_fault(rng: &mut Rng, ttl_ms: u64) -> (Fault, u64) {
    match rng.u8(..10) {
        0..6 => (Fault::KillHolder, 0),
        6 | 7 => (Fault::PauseHolder, rng.u64(ttl_ms / 5..=ttl_ms)),
        _ => (Fault::PauseHolderLong, rng.u64(ttl_ms + 1..4 * ttl_ms)),
    }
}

fn server_fault(rng: &mut Rng, clock: bool) -> (Fault, u64) {
    match rng.u8(..if clock { 26 } else { 22 }) {
        0..5 => (Fault::RestartKept, rng.u64(..400)),
        5 | 6 => (Fault::RestartEmpty, rng.u64(..200)),
        7..10 => (Fault::StopServer, rng.u64(20..1500)),
        10..12 => (Fault::KillClients, 0),
        12 | 13 => (Fault::PauseClients, rng.u64(20..800)),
        14 => (Fault::FlushScripts, 0),
        15 | 16 => (Fault::FlushAll, 0),
        17 | 18 => (Fault::DeleteRecord, 0),
        19 => (Fault::WrongRecord, rng.u64(10..300)),
        20 => (Fault::WrongQueue, rng.u64(10..300)),
        21 => (Fault::WrongCounter, rng.u64(10..300)),
        22 | 23 => (Fault::ClockForward, rng.u64(50..CLOCK_STEP_MAX_MS)),
        _ => (Fault::ClockBack, rng.u64(50..CLOCK_STEP_MAX_MS)),
    }
}

/// A fault of the connections between a holder and a single server, of the first so many kinds.
fn link_fault(rng: &mut Rng, kinds: u8) -> (Fault, u64) {
    match rng.u8(..kinds) {
        0 => (Fault::CutLink, rng.u64(..600)),
        1 => (Fault::DelayLink, rng.u64(20..1500)),
        2 => (Fault::BreakLink, rng.u64(20..300)),
        3 => (Fault::SwallowLink, rng.u64(20..1500)),
        4 => (Fault::LoseReplies, rng.u64(20..800)),
        _ => (Fault::HoldRequests, rng.u64(200..1500)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG_MS: u64 = 600_000;

    #[test]
    fn a_seed_is_a_schedule() {
        for draw in [Plan::draw, Plan::draw_masters] {
            assert_eq!(draw(7, 1, 2, 30_000), draw(7, 1, 2, 30_000));
            assert_ne!(draw(7, 1, 2, 30_000), draw(8, 1, 2, 30_000));
            assert_ne!(draw(7, 1, 2, 30_000), draw(7, 2, 2, 30_000));
            assert_ne!(draw(7, 1, 2, 30_000), draw(7, 2, 1, 30_000));
        }
    }

    #[test]
    fn every_fault_is_drawn_and_none_at_the_end() {
        // The clock of this plan cannot be set.
        let plan = Plan::draw(1, 0, 0, LONG_MS);
        let set = |timed: &Timed| matches!(timed.fault, Fault::ClockForward | Fault::ClockBack);
        assert!(!plan.clock && !plan.sequences[0].faults.iter().any(set));
        let plans = [
            Plan::draw(1, 0, 3, LONG_MS),
            Plan::draw_masters(1, 0, 2, LONG_MS),
            Plan::draw_masters(1, 0, 3, LONG_MS),
        ];
        let holders = plans.iter().flat_map(|plan| &plan.holders);
        let holders = holders.map(|holder| &holder.faults);
        let sequences = plans.iter().flat_map(|plan| &plan.sequences);
        let drawn: Vec<_> = sequences
            .map(|sequence| &sequence.faults)
            .chain(holders)
            .flatten()
            .collect();
        // The others belong to other stores and scenarios.
        for fault in Fault::ALL
            .iter()
            .filter(|fault| **fault < Fault::OrderFailover)
        {
            assert!(drawn.iter().any(|timed| timed.fault == *fault), "{fault:?}");
        }
        for timed in drawn {
            assert!(timed.at_ms + timed.length_ms <= LONG_MS - QUIESCE_MS);
        }
    }

    #[test]
    fn faults_that_masters_cannot_have_are_not_drawn() {
        for world in 0..4 {
            let plan = Plan::draw_masters(1, 0, world, LONG_MS);
            let restart = match plan.durable {
                true => Fault::RestartSnapshot,
                false => Fault::RestartKept,
            };
            // Those of one master that cannot be detected.
            let excluded = [
                restart,
                Fault::ClockForward,
                Fault::DeleteRecord,
                Fault::WrongRecord,
            ];
            let mut drawn = plan.sequences.iter().flat_map(|sequence| &sequence.faults);
            assert!(drawn.all(|timed| !excluded.contains(&timed.fault)));
        }
    }
}
