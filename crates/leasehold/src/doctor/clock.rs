//! The clock of a server, against ours.

use std::time::Duration;

use super::Finding;
use crate::store::diagnose::ClockFacts;

pub(super) const CHECK: &str = "clock";

/// The offset from which a clock is certainly not synchronized.
const FAR: Duration = Duration::from_secs(60);

/// The offset that is worth a note.
const SOME: Duration = Duration::from_secs(1);

/// The fix of an offset.
pub(super) const KEEP: &str = "keep the clocks of all machines by NTP, slewed and never stepped (chrony: no makestep \
                               after the start)";

/// The offset from our clock. No rule depends on it, only on rates, but a clock with an offset will be set.
pub(super) fn check(clock: ClockFacts) -> Finding {
    let off = certainly(clock.ahead, clock.error);
    let observed = shown(clock);
    let finding = if off >= FAR {
        Finding::warning(CHECK, observed).because(
            "one of the two will be set: set forward, the server's clock ends leases while they \
             are held",
        )
    } else if off >= SOME {
        Finding::note(CHECK, observed).because("the displayed age of a lock is wrong by as much")
    } else {
        return Finding::ok(CHECK, observed);
    };
    finding.fix(KEEP)
}

/// The minimum offset of a clock, given the error of its measurement.
pub(super) fn certainly(micros: i64, error: i64) -> Duration {
    let least = micros.unsigned_abs().saturating_sub(error.unsigned_abs());
    Duration::from_micros(least)
}

fn shown(clock: ClockFacts) -> String {
    let (off, error) = (time(clock.ahead.saturating_abs()), time(clock.error));
    let way = if clock.ahead < 0 {
        "behind"
    } else {
        "ahead of"
    };
    format!("the server's is {off} {way} ours (+/- {error})")
}

/// A time in a unit that suits it.
pub(super) fn time(micros: i64) -> String {
    let seconds = micros / 1_000_000;
    match seconds {
        ..10 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        10..600 => format!("{seconds} s"),
        600..36_000 => format!("{} min", seconds / 60),
        36_000..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_that_suits_it() {
        for (micros, text) in [
            (1_250, "1.2 ms"),
            (9_999_999, "9999.9 ms"),
            (10_000_000, "10 s"),
            (3_599_000_000, "59 min"),
            (36_000_000_000, "10 h"),
            (172_800_000_000, "2 days"),
        ] {
            assert_eq!(time(micros), text);
        }
    }
}
