//! The token that an acquisition proposes to many masters.

use std::time::Duration;

use crate::time::StoreTime;
use crate::token::Token;

/// How far a proposal is ahead of the estimate, besides two round trips: the delays of a busy machine.
const LEAD: Duration = Duration::from_millis(50);

/// The longest lead. A token ahead of the clock could be larger than the next one if its counter were lost meanwhile.
const LEAD_MAX: Duration = Duration::from_secs(1);

/// The proposal for the tokens of acquisitions that begin now: the median of the masters' clocks as the client estimates
/// them, of an even number the smaller one in the middle, and a lead. `None`: no clock is known yet.
///
/// A master takes no proposal that is behind its clock, as that could be behind an earlier token whose counter was
/// lost. The estimate is behind by the time of a reply, and the request also takes its time: so the lead is two times
/// the `round_trip`. A process that was stopped proposes too little, and its acquisition has a second phase.
///
/// Two clients agree on these clocks to about the time that a reply takes, whatever their own clocks show. So the
/// proposal of a client that acquires a lock after another one is larger, and is taken. By their own clocks, every
/// hand-over to a client whose clock is behind would cost a second phase, and every one would if the clock were wrong
/// by hours. The largest token that a client has seen is of no use here: it would carry a counter that is far ahead
/// from one name to all others. The median does not follow a minority of masters whose clocks are wrong.
pub fn proposal(estimates: impl Iterator<Item = StoreTime>, round_trip: Duration) -> Option<Token> {
    let mut times: Vec<_> = estimates.collect();
    times.sort_unstable();
    let median = times.get(times.len().checked_sub(1)? / 2)?;
    let lead = (LEAD + 2 * round_trip).min(LEAD_MAX);
    Token::at(median.after_span(lead))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_median_with_a_lead_of_two_round_trips_but_no_more_than_a_second() {
        let proposed = |times: &[u64], round_trip| {
            let times = times.iter().map(|time| StoreTime::from_micros(*time));
            proposal(times, Duration::from_millis(round_trip)).map(Token::get)
        };
        let far = u64::MAX >> 1;
        assert_eq!(proposed(&[], 0), None);
        // One wrong clock does not move it.
        for times in [&[5][..], &[5, far], &[5, far, 1], &[7, 5, far, 1]] {
            assert_eq!(proposed(times, 0), Some(50_005), "{times:?}");
        }
        assert_eq!(proposed(&[5], 10), Some(70_005));
        assert_eq!(proposed(&[5], 10_000), Some(1_000_005));
    }
}
