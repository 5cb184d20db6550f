//! The figures of observers, from counts that are known.

use super::*;
use crate::options::Scenario;
use crate::report::{UNKNOWN, check};
use crate::scenario::known::{latencies, stats};

#[test]
fn figures_are_what_was_counted() {
    let server = stats(5_000, 40, 900);
    let mut findings = Findings {
        granted: latencies([200; 10]),
        notified: latencies(301..=400),
        notified_since_grant: latencies(101..=200),
        changes: 10,
        server: server.map(|stats| ServerStats {
            readings: 25,
            ..stats
        }),
    };
    let settings = Settings::of(Scenario::Observe);
    check(
        &figures(&settings, &findings),
        &[
            ("observers", 100.0),
            ("changes", 10.0),
            ("granted.p50_us", 200.0),
            ("notified.count", 100.0),
            ("notified.p50_us", 350.0),
            ("notified.p99_us", 399.0),
            ("notified.max_us", 400.0),
            ("notified_since_grant.p50_us", 150.0),
            ("readings_per_change", 2.5),
            ("server_cpu_us_per_change", 500.0),
        ],
    );
    findings.server = None;
    check(
        &figures(&settings, &findings),
        &[
            ("readings_per_change", UNKNOWN),
            ("server_cpu_us_per_change", UNKNOWN),
        ],
    );
}
