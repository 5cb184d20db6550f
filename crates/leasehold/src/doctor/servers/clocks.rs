//! Clocks of servers, against ours and against each other.

use std::time::Duration;

use leasehold_core::{Ttl, time};

use super::Finding;
use crate::store::diagnose::{ClockFacts, NodeFacts, Topology};

pub(super) const CHECK: &str = "clock";

/// The offset from which a clock is certainly not synchronized.
const FAR: Duration = Duration::from_secs(60);

/// The offset that is worth a note.
const SOME: Duration = Duration::from_secs(1);

const KEEP: &str = "keep the clocks of all machines by NTP, slewed and never stepped (chrony: no makestep \
                    after the start)";

/// The offset from our clock. No rule depends on it, only on rates, but a clock with an offset will be set.
pub(super) fn check(node: &NodeFacts) -> Option<Finding> {
    let clock = node.clock?;
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
        return Some(Finding::ok(CHECK, observed));
    };
    Some(finding.fix(KEEP))
}

/// The offsets of the nodes from each other: after a failover a lease is measured by another clock, and many
/// masters propose tokens by their clocks.
pub(super) fn between(nodes: &[NodeFacts], ttl: Ttl, topology: &Topology) -> Option<Finding> {
    let clocks = nodes.iter().filter_map(|node| Some((node, node.clock?)));
    let first = clocks.clone().min_by_key(|(_, clock)| clock.ahead)?;
    let last = clocks.max_by_key(|(_, clock)| clock.ahead)?;
    let apart = last.1.ahead - first.1.ahead;
    let error = last.1.error + first.1.error;
    let off = certainly(apart, error);
    let drift = time::drift(ttl.as_duration());
    if nodes.len() < 2 {
        return None;
    }
    let observed = format!(
        "the clocks of {} and {} are {} apart (+/- {})",
        first.0.name,
        last.0.name,
        time(apart),
        time(error)
    );
    if off <= drift {
        return Some(Finding::ok(CHECK, observed));
    }
    if matches!(topology, Topology::Masters) {
        // A lease ends at each master by that master's clock, so a constant offset ends none early.
        let finding = Finding::warning(CHECK, observed).because(
            "a master that is ahead takes no proposed token, so that locks need a second round trip; \
             one whose clock is set forward drops out of every majority",
        );
        return Some(finding.fix(KEEP));
    }
    let third = ttl.as_duration() / 3;
    let because = format!(
        "when another node takes over, leases end earlier or later by as much; {} are allowed for",
        time(i64::try_from(drift.as_micros()).unwrap_or(i64::MAX))
    );
    let finding = match off > third {
        true => Finding::danger(CHECK, observed),
        false => Finding::warning(CHECK, observed),
    };
    Some(finding.because(because).fix(KEEP))
}

/// The minimum offset of a clock, given the error of its measurement.
fn certainly(micros: i64, error: i64) -> Duration {
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
fn time(micros: i64) -> String {
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
