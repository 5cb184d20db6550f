//! The clocks of the masters, from which proposals for tokens are taken.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_core::{StoreTime, Token};
use tokio::time::Instant;

/// How far a proposal is ahead of the estimate, besides two round trips: the delays of a busy machine.
const LEAD: Duration = Duration::from_millis(50);

/// The longest lead. A token ahead of the clock could be larger than the next one if its counter were lost meanwhile.
const LEAD_MAX: Duration = Duration::from_secs(1);

/// The clock of one master, as this process estimates it.
#[derive(Debug)]
pub(super) struct MasterClock {
    start: Instant,
    /// The master's time at the start in microseconds. 0: unknown.
    at_start: AtomicU64,
}

impl MasterClock {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            at_start: AtomicU64::new(0),
        }
    }

    /// Notes the master's time in a reply that has just arrived. The estimate is behind by the time that the reply
    /// travelled, which is less than a round trip.
    pub(super) fn note(&self, time: StoreTime, now: Instant) {
        let at_start = time.as_micros().saturating_sub(self.micros(now));
        self.at_start.store(at_start, Ordering::Relaxed);
    }

    fn estimate(&self, now: Instant) -> Option<u64> {
        match self.at_start.load(Ordering::Relaxed) {
            0 => None,
            at_start => Some(at_start.saturating_add(self.micros(now))),
        }
    }

    fn micros(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.start);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

/// The proposal for the tokens of acquisitions that begin now: the median of the masters' clocks, of an even number
/// the smaller one in the middle, and a lead. `None`: no master has replied yet.
///
/// A master takes no proposal that is behind its clock, as that could be behind an earlier token whose counter was
/// lost. The estimate is behind by the time of a reply, and the request takes its time, too: so the lead is two times
/// the `round_trip`. A process that was stopped proposes too little, and its acquisition has a second phase.
///
/// Two clients agree on these clocks to about the time that a reply takes, whatever their own clocks show. So the
/// proposal of a client that acquires a lock after another one is larger, and is taken. By their own clocks, every
/// hand-over to a client whose clock is behind would cost a second phase, and every one would if the clock were wrong
/// by hours. The largest token that a client has seen is of no use here: it would carry a counter that is far ahead
/// from one name to all others. The median does not follow a minority of masters whose clocks are wrong.
pub(super) fn proposal<'a>(
    clocks: impl Iterator<Item = &'a MasterClock>,
    round_trip: Duration,
) -> Option<Token> {
    let now = Instant::now();
    let lead = (LEAD + 2 * round_trip).min(LEAD_MAX);
    let lead = u64::try_from(lead.as_micros()).unwrap_or(0);
    let median = median(clocks.filter_map(|clock| clock.estimate(now)))?;
    Token::new(median.saturating_add(lead))
}

fn median(times: impl Iterator<Item = u64>) -> Option<u64> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times.get(times.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_clock_does_not_move_the_median() {
        let median = |times: &[u64]| median(times.iter().copied());
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[5]), Some(5));
        assert_eq!(median(&[5, u64::MAX]), Some(5));
        assert_eq!(median(&[6, u64::MAX, 5]), Some(6));
        assert_eq!(median(&[6, 1, 5]), Some(5));
        assert_eq!(median(&[7, 6, u64::MAX, 5]), Some(6));
    }

    #[tokio::test(start_paused = true)]
    async fn a_proposal_is_ahead_by_the_lead_and_two_round_trips_but_no_more_than_a_second() {
        let clocks = [(); 3].map(|()| MasterClock::new());
        let proposed = |round_trip| {
            let token = proposal(clocks.iter(), Duration::from_millis(round_trip));
            token.map(Token::get)
        };
        assert_eq!(proposed(0), None);
        for (clock, time) in clocks.iter().zip([9_000_000, 5_000_000, 7_000_000]) {
            clock.note(StoreTime::from_micros(time), Instant::now());
        }
        assert_eq!(proposed(0), Some(7_050_000));
        assert_eq!(proposed(10), Some(7_070_000));
        assert_eq!(proposed(10_000), Some(8_000_000));
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_of_a_master_goes_on_between_its_replies() {
        let clock = MasterClock::new();
        assert_eq!(clock.estimate(Instant::now()), None);
        for time in [7_000_000, 5_000_000] {
            // Also if it was set back.
            clock.note(StoreTime::from_micros(time), Instant::now());
            tokio::time::advance(Duration::from_secs(2)).await;
            assert_eq!(clock.estimate(Instant::now()), Some(time + 2_000_000));
        }
    }
}
