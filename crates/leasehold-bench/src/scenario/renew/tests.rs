//! The figures of renewals, from counts that are known.

use leasehold::Guard;

use super::slices::Work;
use super::*;
use crate::latencies::lock;
use crate::options::Scenario;
use crate::report::{UNKNOWN, check};
use crate::scenario::known::{latencies, stats};

fn pairs(millis: u64, micros: [u64; 5]) -> Pairs {
    let mut pairs = Pairs::new(Vec::new());
    pairs.busy = Duration::from_millis(millis);
    *lock(&pairs.latencies) = latencies(micros);
    pairs
}

/// A thousand leases, each renewed twice in 20 s.
fn findings() -> Findings {
    Findings {
        taking: Duration::from_millis(20),
        resident: [Some(5_000_000), Some(5_500_000), Some(5_600_000)],
        observed: Usage {
            duration: Duration::from_secs(20),
            cpu: Duration::from_millis(500),
            calls: Some(50),
            server: stats(400_000, 1, 9_000),
            renewals: 2_000,
            batches: 40,
        },
        tables: vec![[7, 0]],
        lag: latencies([1_000, 2_000, 3_000]),
        slices: Slices {
            ours: Work {
                due: 100,
                by_baseline: 0,
                server: stats(300, 1, 200),
            },
            baseline: Work {
                due: 50,
                by_baseline: 1_000,
                server: stats(10_150, 1, 5_100),
            },
            pairs: pairs(10, [90, 100, 110, 120, 130]),
        },
        pairs_without_renewals: pairs(8, [80, 90, 100, 110, 120]),
        jeopardy: 0,
        lost: 0,
        held: 1_000,
        releasing: Duration::from_millis(10),
        still_held: 0,
    }
}

fn report(findings: &Findings) -> crate::report::Findings {
    report::report(&Settings::of(Scenario::Renew), findings)
}

#[test]
fn figures_are_what_was_counted() {
    let (figures, failure) = report(&findings());
    let guard = size_of::<Guard>() as f64;
    check(
        &figures,
        &[
            ("taken.seconds", 0.02),
            ("taken.per_second", 50_000.0),
            ("released.per_second", 100_000.0),
            ("held.process_cpu", 0.025),
            ("held.server_cpu", 0.02),
            ("held.renewals", 2_000.0),
            ("held.renewed_every_s", 10.0),
            ("held.calls", 50.0),
            ("held.calls_per_10_s", 25.0),
            ("held.renewals_per_batch", 50.0),
            ("held.lag.count", 3.0),
            ("held.lag.p50_us", 2_000.0),
            ("held.lag.max_us", 3_000.0),
            ("memory.guard", guard),
            ("tables.bytes.0", 7.0),
            ("memory.beyond_guard", 600.0 - guard),
            ("memory.beyond_guard_taken", 500.0 - guard),
            ("renewal.ours.server_cpu_us", 3.0),
            ("renewal.ours.script_us", 2.0),
            // Without the 50 that were due meanwhile.
            ("renewal.baseline.server_cpu_us", 10.0),
            ("renewal.baseline.script_us", 5.0),
            ("renewal.ratio.server_cpu", 0.3),
            ("renewal.ratio.script", 0.4),
            ("pairs.without_renewals.per_second", 625.0),
            ("pairs.with_renewals.per_second", 500.0),
            ("pairs.ratio.throughput", 0.8),
            ("pairs.ratio.p50", 1.1),
            ("still_held", 0.0),
        ],
    );
    assert_eq!(failure, None);
}

/// As with a store in memory, and a library that counts less.
#[test]
fn figures_that_were_not_counted_are_null() {
    let mut findings = findings();
    // Calls are batches where batches are not counted.
    findings.observed.batches = 0;
    check(&report(&findings).0, &[("held.renewals_per_batch", 40.0)]);
    findings.observed.calls = None;
    findings.observed.server = None;
    findings.observed.renewals = 0;
    findings.lag = latencies([]);
    findings.resident[0] = None;
    findings.tables.clear();
    findings.slices.ours.due = 0;
    let unknown = [
        "held.server_cpu",
        "held.calls",
        "held.calls_per_10_s",
        "held.renewals_per_batch",
        "held.renewed_every_s",
        "held.lag",
        "memory",
        "tables",
        "renewal",
    ];
    check(&report(&findings).0, &unknown.map(|path| (path, UNKNOWN)));
}

#[test]
fn lost_and_remaining_leases_are_a_failure() {
    let failure = |held, lost, still_held| {
        let findings = Findings {
            held,
            lost,
            still_held,
            ..findings()
        };
        report(&findings).1.unwrap_or_default()
    };
    assert!(failure(990, 0, 0).contains("10 lost"));
    assert!(failure(1_000, 3, 0).contains("3 lost"));
    assert!(failure(1_000, 0, 7).contains("7 still"));
    assert_eq!(failure(1_000, 0, 0), "");
}
