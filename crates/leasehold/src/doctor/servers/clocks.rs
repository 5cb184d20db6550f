//! Clocks of servers, against ours and against each other.

use std::time::Duration;

use leasehold_core::{Ttl, time};

use super::Finding;
use crate::store::diagnose::{ClockFacts, NodeFacts};

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
    let seen = shown(clock);
    let finding = if off >= FAR {
        Finding::warning(CHECK, seen).because(
            "one of the two will be set: set forward, the server's clock ends leases while they \
             are held",
        )
    } else if off >= SOME {
        Finding::note(CHECK, seen).because("the displayed age of a lock is wrong by as much")
    } else {
        return Some(Finding::ok(CHECK, seen));
    };
    Some(finding.fix(KEEP))
}

/// The offsets of the nodes from each other: after a failover a lease is measured by another clock, and with
/// many masters by several at once.
pub(super) fn between(nodes: &[NodeFacts], ttl: Ttl) -> Option<Finding> {
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
    let seen = format!(
        "the clocks of {} and {} are {} apart (+/- {})",
        first.0.name,
        last.0.name,
        millis(apart),
        millis(error)
    );
    if off <= drift {
        return Some(Finding::ok(CHECK, seen));
    }
    let third = ttl.as_duration() / 3;
    let because = format!(
        "when another node takes over, leases end earlier or later by as much; {} are allowed for",
        millis(i64::try_from(drift.as_micros()).unwrap_or(i64::MAX))
    );
    let finding = match off > third {
        true => Finding::danger(CHECK, seen),
        false => Finding::warning(CHECK, seen),
    };
    Some(finding.because(because).fix(KEEP))
}

/// The minimum offset of a clock, given the error of its measurement.
fn certainly(micros: i64, error: i64) -> Duration {
    let least = micros.unsigned_abs().saturating_sub(error.unsigned_abs());
    Duration::from_micros(least)
}

fn shown(clock: ClockFacts) -> String {
    let (off, error) = (millis(clock.ahead.saturating_abs()), millis(clock.error));
    let way = if clock.ahead < 0 {
        "behind"
    } else {
        "ahead of"
    };
    format!("the server's is {off} {way} ours (+/- {error})")
}

fn millis(micros: i64) -> String {
    let (whole, tenth) = (micros / 1_000, micros % 1_000 / 100);
    format!("{whole}.{tenth} ms")
}

#[cfg(test)]
mod tests {
    use super::super::samples::healthy;
    use super::*;
    use crate::doctor::Severity;

    const MILLI: i64 = 1_000;
    const SECOND: i64 = 1_000_000;

    fn node(ahead: i64, error: i64) -> NodeFacts {
        let mut node = healthy();
        node.clock = Some(ClockFacts { ahead, error });
        node
    }

    #[test]
    fn only_what_is_certain_counts() {
        for (ahead, error, severity) in [
            (0, 100, Severity::Ok),
            (-900 * MILLI, 100, Severity::Ok),
            (-2 * SECOND, 100, Severity::Note),
            (2 * SECOND, 2 * SECOND, Severity::Ok),
            (61 * SECOND, 100, Severity::Warning),
            (-3_600 * SECOND, 100, Severity::Warning),
        ] {
            let finding = check(&node(ahead, error)).unwrap();
            assert_eq!(finding.severity, severity, "{}", finding.seen);
        }
        let mut silent = healthy();
        silent.clock = None;
        assert_eq!(check(&silent), None);
    }

    #[test]
    fn nodes_are_compared_by_the_drift_of_the_ttl() {
        let ttl = Ttl::from_millis(30_000).unwrap();
        for (ahead, severity) in [
            (0, Severity::Ok),
            (300 * MILLI, Severity::Ok),
            (400 * MILLI, Severity::Warning),
            (-400 * MILLI, Severity::Warning),
            (11 * SECOND, Severity::Danger),
        ] {
            let finding = between(&[node(0, 100), node(ahead, 100)], ttl).unwrap();
            assert_eq!(finding.severity, severity, "{}", finding.seen);
        }
        assert_eq!(between(&[node(0, 0)], ttl), None);
    }
}
