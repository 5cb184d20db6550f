//! The figures of waking up, from counts that are known.

use super::holds::Hold;
use super::*;
use crate::clock::Moment;
use crate::options::Scenario;
use crate::report::{UNKNOWN, check};
use crate::scenario::known::{latencies, stats};

/// The result of so many releases with two calls each.
fn result(releases: usize) -> SliceResult {
    let hold = Hold {
        requested: Moment::default(),
        acquired: Moment::default(),
        proclaimed: Moment::default(),
        released: Moment::default(),
    };
    SliceResult {
        holds: vec![hold; releases],
        round_trips: latencies([]),
        calls: Some(2 * releases as u64),
    }
}

fn findings() -> Findings {
    let mut one = Work::default();
    one.add(&[result(40), result(60)], stats(10_000, 200, 4_000));
    let mut many = Work::default();
    many.add(&[result(30), result(20)], stats(6_000, 100, 2_500));
    many.add(&[result(30), result(20)], stats(6_000, 100, 2_500));
    Findings {
        hold: Duration::from_micros(500),
        wakeups: latencies(60..=160),
        proclaimed: latencies(160..=260),
        round_trips: latencies([100; 10]),
        one,
        many,
        requests: requests(&[Some(5), Some(6)], stats(1, 17, 1), Some(9)),
    }
}

fn settings(waiters: u16) -> Settings {
    Settings {
        waiters,
        ..Settings::of(Scenario::Wakeup)
    }
}

#[test]
fn figures_are_what_was_counted() {
    check(
        &figures(&settings(4), &findings()).unwrap(),
        &[
            ("wakeup.count", 101.0),
            ("wakeup.p50_us", 110.0),
            ("wakeup.max_us", 160.0),
            ("proclaimed", UNKNOWN),
            ("ratio.p50", 1.1),
            ("hold_us", 500.0),
            ("one_waiter.waiters", 1.0),
            ("one_waiter.releases", 100.0),
            ("one_waiter.commands_per_release", 2.0),
            ("one_waiter.server_cpu_us_per_release", 100.0),
            ("one_waiter.script_us_per_release", 40.0),
            ("many_waiters.waiters", 4.0),
            ("many_waiters.releases", 100.0),
            ("many_waiters.server_cpu_us_per_release", 120.0),
            ("server_cpu_ratio", 1.2),
            // The server ran 17 scripts, 9 of them for the holder.
            ("while_waiting.requests", 8.0),
            ("while_waiting.requests_per_waiter_and_ttl", 1.0),
        ],
    );
    let elected = Settings {
        election: true,
        ..settings(1)
    };
    let elected = figures(&elected, &findings()).unwrap();
    check(
        &elected,
        &[("wakeup.p50_us", 110.0), ("proclaimed.p50_us", 210.0)],
    );
}

#[test]
fn figures_that_were_not_counted_are_null() {
    let mut findings = findings();
    findings.many.add(&[result(1)], None);
    findings.requests = requests(&[Some(5), Some(3)], None, Some(9));
    check(
        &figures(&settings(4), &findings).unwrap(),
        &[
            ("many_waiters.server_cpu_us_per_release", UNKNOWN),
            ("server_cpu_ratio", UNKNOWN),
            ("many_waiters.commands_per_release", 2.0),
            // By the clients' own count.
            ("while_waiting.requests_per_waiter_and_ttl", 1.0),
        ],
    );
    let one = figures(&settings(1), &findings).unwrap();
    check(
        &one,
        &[("many_waiters", UNKNOWN), ("server_cpu_ratio", UNKNOWN)],
    );
    findings.wakeups = latencies([]);
    let failure = figures(&settings(1), &findings).unwrap_err().to_string();
    assert!(failure.contains("--seconds"), "{failure}");
}
