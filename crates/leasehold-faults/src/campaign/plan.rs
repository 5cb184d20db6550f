//! The schedule of faults, drawn from a seed before anything runs.

use fastrand::Rng;

use crate::history::Fault;

/// How many holder processes a world has.
pub(crate) const HOLDERS: usize = 3;

/// The locks of a world.
pub(crate) const NAMES: [&str; 2] = ["orders", "ledger"];

/// The ttls that a holder process may have, in milliseconds. Short, so that they are often outlived.
const TTLS_MS: [u64; 4] = [300, 400, 600, 1000];

/// The longest ttl in a world, and how far a clock is set at most, in milliseconds.
pub(crate) const TTL_MAX_MS: u64 = 1000;
pub(crate) const CLOCK_STEP_MAX_MS: u64 = 1500;

/// The pause after which the first fault comes, and the calm before the end in which every holder can
/// be served again: late answers and dead ids are over by then.
const LEAD_MS: u64 = 300;
const CALM_MS: u64 = 2500;

/// The mean time from a fault to the next, for each holder and for the server. A holder's are rarer
/// than its ttl is long, so that it comes to hold something in between.
const HOLDER_GAP_MS: u64 = 2000;
const SERVER_GAP_MS: u64 = 1500;

/// What happens in one world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Whether the server's clock can be set, which makes the times of tokens useless.
    pub(crate) clock: bool,
    pub(crate) duration_ms: u64,
    pub(crate) holders: Vec<HolderPlan>,
    pub(crate) server: Vec<Timed>,
}

/// One holder process and those that take its place when it is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HolderPlan {
    pub(crate) seed: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) handoff: bool,
    pub(crate) threads: usize,
    pub(crate) tasks: u64,
    pub(crate) faults: Vec<Timed>,
}

/// A fault and when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) at_ms: u64,
    pub(crate) fault: Fault,
    /// How long it lasts, or how far a clock is set.
    pub(crate) span_ms: u64,
    /// The name whose keys it hits, where that matters.
    pub(crate) name: usize,
}

impl Plan {
    /// The plan of one world in one round of a campaign.
    pub(crate) fn draw(seed: u64, round: u64, world: u64, duration_ms: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        // Distant streams for neighbouring rounds and worlds.
        for number in [round, world] {
            rng = Rng::with_seed(rng.u64(..) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        let clock = world % 4 == 3;
        Self {
            clock,
            duration_ms,
            holders: (0..HOLDERS)
                .map(|_| holder(&mut rng, duration_ms))
                .collect(),
            server: lane(&mut rng, duration_ms, SERVER_GAP_MS, |rng| {
                server_fault(rng, clock)
            }),
        }
    }
}

fn holder(rng: &mut Rng, duration_ms: u64) -> HolderPlan {
    let ttl_ms = TTLS_MS[rng.usize(..TTLS_MS.len())];
    HolderPlan {
        seed: rng.u64(..),
        ttl_ms,
        handoff: rng.bool(),
        threads: rng.usize(1..=2),
        tasks: rng.u64(2..=4),
        faults: lane(rng, duration_ms, HOLDER_GAP_MS, |rng| {
            holder_fault(rng, ttl_ms)
        }),
    }
}

/// Faults that follow each other without meeting.
fn lane(
    rng: &mut Rng,
    duration_ms: u64,
    gap_ms: u64,
    mut draw: impl FnMut(&mut Rng) -> (Fault, u64),
) -> Vec<Timed> {
    let end = duration_ms.saturating_sub(CALM_MS);
    let mut faults = Vec::new();
    let mut at_ms = LEAD_MS;
    loop {
        at_ms += rng.u64(gap_ms / 4..gap_ms * 7 / 4);
        let (fault, span_ms) = draw(rng);
        let name = rng.usize(..NAMES.len());
        if at_ms + span_ms > end {
            return faults;
        }
        faults.push(Timed {
            at_ms,
            fault,
            span_ms,
            name,
        });
        at_ms += span_ms;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_schedule() {
        assert_eq!(Plan::draw(7, 1, 2, 30_000), Plan::draw(7, 1, 2, 30_000));
        assert_ne!(Plan::draw(7, 1, 2, 30_000), Plan::draw(8, 1, 2, 30_000));
        assert_ne!(Plan::draw(7, 1, 2, 30_000), Plan::draw(7, 2, 2, 30_000));
        assert_ne!(Plan::draw(7, 1, 2, 30_000), Plan::draw(7, 2, 1, 30_000));
    }

    #[test]
    fn every_fault_is_drawn_and_the_end_is_calm() {
        let plan = Plan::draw(1, 0, 3, 600_000);
        let lanes = plan.holders.iter().map(|holder| &holder.faults);
        let drawn: Vec<_> = lanes.chain([&plan.server]).flatten().collect();
        for fault in Fault::ALL {
            assert!(drawn.iter().any(|timed| timed.fault == fault), "{fault:?}");
        }
        for timed in drawn {
            assert!(timed.at_ms + timed.span_ms <= 600_000 - CALM_MS);
        }
    }

    #[test]
    fn a_server_whose_clock_tells_the_margins_keeps_it() {
        let plan = Plan::draw(1, 0, 0, 600_000);
        let set = |timed: &Timed| matches!(timed.fault, Fault::ClockForward | Fault::ClockBack);
        assert!(!plan.clock && !plan.server.iter().any(set));
    }
}
