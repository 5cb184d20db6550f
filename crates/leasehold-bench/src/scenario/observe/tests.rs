//! The figures of observers, from counts that are known.

use super::observers::part_of;
use super::*;
use crate::options::Scenario;
use crate::scenario::known::{latencies, stats};
use crate::server_stats::ServerStats;

fn report(server: Option<ServerStats>) -> Report {
    let used = Usage {
        duration: Duration::ZERO,
        cpu: Duration::ZERO,
        calls: None,
        server,
        renewals: 0,
        batches: 0,
    };
    let findings = Findings {
        granted: latencies([200; 10]),
        notified: latencies(301..=400),
        notified_since_grant: latencies(101..=200),
        changes: 10,
        used: Some(used),
    };
    report::report(&Settings::of(Scenario::Observe), "redis://host", &findings)
}

#[test]
fn figures_are_what_was_counted() {
    let server = stats(5_000, 40, 900);
    let server = server.map(|stats| ServerStats {
        readings: 25,
        ..stats
    });
    report(server).check(&[
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
    ]);
    let unknown = ["readings_per_change", "server_cpu_us_per_change"];
    report(None).check_unknown(&unknown);
}

#[test]
fn observers_are_divided_between_processes() {
    for (observers, processes, parts) in [
        (100, 1, &[100][..]),
        (10, 3, &[4, 3, 3]),
        (3, 3, &[1, 1, 1]),
    ] {
        let found: Vec<_> = (0..processes)
            .map(|number| part_of(number, observers, processes))
            .collect();
        assert_eq!(found, parts);
    }
}
