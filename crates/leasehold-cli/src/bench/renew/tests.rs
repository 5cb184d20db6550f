//! The figures about renewals, from counts that are known.

use leasehold::Guard;
use leasehold::store::yardstick::Load;

use super::turns::Work;
use super::*;

fn times(micros: impl IntoIterator<Item = u64>) -> Times {
    let mut times = Times::new().unwrap();
    for micros in micros {
        times.record_nanos(micros * 1_000, 1);
    }
    times
}

fn pairs(millis: u64, micros: [u64; 5]) -> Pairs {
    Pairs {
        busy: Duration::from_millis(millis),
        times: times(micros),
    }
}

fn load(cpu_us: u64, script_us: u64) -> Option<Load> {
    Some(Load {
        cpu: Duration::from_micros(cpu_us),
        script_calls: 1,
        script_time: Duration::from_micros(script_us),
    })
}

/// A thousand leases, each renewed twice in 20 s.
fn findings() -> Findings {
    Findings {
        taking: Duration::from_millis(20),
        resident: [Some(5_000_000), Some(5_500_000), Some(5_600_000)],
        watched: Watched {
            spent: Spent {
                span: Duration::from_secs(20),
                cpu: Duration::from_millis(500),
                calls: Some(50),
                server: load(400_000, 9_000),
                renewals: 2_000,
                batches: 40,
            },
            lag: times([1_000, 2_000, 3_000]),
        },
        turns: Turns {
            ours: Work {
                renewals: 100,
                bare: 0,
                server: load(300, 200),
            },
            bare: Work {
                renewals: 50,
                bare: 1_000,
                server: load(10_150, 5_100),
            },
            pairs: pairs(10, [90, 100, 110, 120, 130]),
        },
        alone: pairs(8, [80, 90, 100, 110, 120]),
        trouble: Trouble {
            jeopardy: 0,
            lost: 0,
            held: 1_000,
        },
        released: Released {
            took: Duration::from_millis(10),
            left: 0,
        },
    }
}

fn report(findings: &Findings) -> Report {
    let renew = Renew {
        leases: 1_000,
        ttl: Duration::from_secs(30),
        tasks: 256,
        threads: 1,
        span: Duration::from_secs(20),
    };
    Report::new(&renew, "redis://host".into(), findings)
}

fn near(figure: f64, expected: f64) {
    assert!(
        (figure / expected - 1.0).abs() < 0.002,
        "{figure}, not {expected}"
    );
}

#[test]
fn figures_are_what_was_counted() {
    let report = report(&findings());
    assert_eq!(
        (report.taken.seconds, report.taken.per_second),
        (0.02, 50_000.0)
    );
    assert_eq!(report.released.per_second, 100_000.0);
    let held = report.held;
    assert_eq!((held.process_cpu, held.server_cpu), (0.025, Some(0.02)));
    assert_eq!((held.renewals, held.renewed_every_s), (2_000, Some(10.0)));
    assert_eq!((held.calls, held.calls_per_10_s), (Some(50), Some(25.0)));
    assert_eq!(held.renewals_per_batch, Some(50.0));
    let lag = held.lag.unwrap();
    assert_eq!(lag.count, 3);
    near(lag.p50_us, 2_000.0);
    near(lag.max_us, 3_000.0);
    let memory = report.memory.unwrap();
    let guard = size_of::<Guard>();
    assert_eq!(memory.guard, guard);
    assert_eq!(memory.beyond_guard, 600.0 - guard as f64);
    assert_eq!(memory.beyond_guard_taken, 500.0 - guard as f64);
    let renewal = report.renewal.unwrap();
    assert_eq!(
        (renewal.ours.server_cpu_us, renewal.ours.script_us),
        (3.0, 2.0)
    );
    // Without the 50 that were due meanwhile.
    assert_eq!(
        (renewal.bare.server_cpu_us, renewal.bare.script_us),
        (10.0, 5.0)
    );
    assert_eq!((renewal.ratio.server_cpu, renewal.ratio.script), (0.3, 0.4));
    let pairs = report.pairs;
    assert_eq!(
        (pairs.alone.per_second, pairs.beside.per_second),
        (625.0, 500.0)
    );
    assert_eq!(pairs.ratio.throughput, 0.8);
    near(pairs.ratio.p50, 1.1);
    assert!(report.verdict().is_ok());
}

/// As with a store in memory, and a library that counts less.
#[test]
fn what_nobody_tells_is_not_known() {
    let mut found = findings();
    found.watched.spent.calls = None;
    found.watched.spent.server = None;
    found.watched.spent.batches = 0;
    found.watched.lag = times([]);
    found.resident[0] = None;
    found.turns.ours = Work::default();
    found.turns.bare = Work::default();
    let report = report(&found);
    let held = report.held;
    assert_eq!((held.server_cpu, held.calls_per_10_s), (None, None));
    assert_eq!((held.calls, held.renewals_per_batch), (None, None));
    assert!(held.lag.is_none() && report.memory.is_none() && report.renewal.is_none());
    let picture = draw(&report);
    for text in ["  server", "calls", "memory", "they were due"] {
        assert!(!picture.contains(text), "{text}:\n{picture}");
    }
    // Calls are batches where batches are not counted.
    let mut found = findings();
    found.watched.spent.batches = 0;
    assert_eq!(self::report(&found).held.renewals_per_batch, Some(40.0));
}

#[test]
fn no_renewal_is_no_division_by_zero() {
    let mut found = findings();
    found.watched.spent.renewals = 0;
    found.turns.ours.renewals = 0;
    let report = report(&found);
    assert_eq!(report.held.renewed_every_s, None);
    assert!(report.renewal.is_none());
    assert!(!draw(&report).contains("NaN"));
}

#[test]
fn whoever_loses_or_leaves_leases_fails() {
    let lost = |trouble: Trouble, left| {
        let mut found = findings();
        (found.trouble, found.released.left) = (trouble, left);
        report(&found).verdict().unwrap_err().to_string()
    };
    let fine = findings().trouble;
    let failure = lost(Trouble { held: 990, ..fine }, 0);
    assert!(failure.contains("10 lost"), "{failure}");
    let failure = lost(Trouble { lost: 3, ..fine }, 0);
    assert!(failure.contains("3 lost"), "{failure}");
    let failure = lost(fine, 7);
    assert!(failure.contains("7 still"), "{failure}");
}

#[test]
fn the_picture_has_a_bar_for_each_figure() {
    let picture = draw(&report(&findings()));
    for name in [
        "process",
        "server",
        "batches",
        "leasehold",
        "bare calls",
        "no leases",
        "beside them",
    ] {
        let mut lines = picture.lines().map(str::trim_start);
        let barred = lines.any(|line| line.starts_with(name) && line.contains('█'));
        assert!(barred, "{name}:\n{picture}");
    }
    assert!(picture.contains("0.30 times a bare call"), "{picture}");
    let widest = picture.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(84), "{widest:?}:\n{picture}");
}
