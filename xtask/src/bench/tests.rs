//! Results are merged as they were counted, and documents contain them.

use serde_json::json;

use super::figures::ProcessResult;
use super::*;

fn process(acquisitions: u64, waits: &[(u32, u64)], events: &[(u64, u64)]) -> ProcessResult {
    let result = json!({
        "version": "1",
        "acquisitions": acquisitions,
        "seconds": 2.0,
        "wait_us": waits,
        "wait_max_us": 1_500.0,
        "events": events,
    });
    serde_json::from_value(result).unwrap()
}

fn figures() -> Figures {
    let processes = [
        process(300, &[(20, 200), (40, 97)], &[(0, 1_000), (9_000, 10_000)]),
        process(100, &[(60, 3)], &[(3_000, 4_000)]),
    ];
    super::figures::from_processes(&processes, (800, 4_000))
}

#[test]
fn results_of_processes_are_merged() {
    let figures = figures();
    // Bucket b is around 10^(b / 20) us; the lock changed hands from 1,000 to 3,000 ns, and from 4,000 to 9,000 ns.
    for (name, expected) in [
        ("acquisitions_per_second", 200.0..=200.0),
        ("wait_p50_us", 9.0..=11.0),
        ("wait_p99_us", 95.0..=110.0),
        ("share_deviation", 0.5..=0.5),
        ("script_calls_per_acquisition", 2.0..=2.0),
        ("commands_per_acquisition", 10.0..=10.0),
        ("release_to_acquisition_p99_us", 5.0..=5.0),
    ] {
        assert!(expected.contains(&figures[name]), "{name}: {figures:?}");
    }
}

#[test]
fn the_median_of_rounds_is_none_of_the_extremes() {
    let rounds = [5.0, 1.0, 100.0].map(|rate| Figures::from([("rate", rate)]));
    assert_eq!(super::figures::median(&rounds)["rate"], 5.0);
}

#[test]
fn reports_name_who_was_measured_and_who_was_not() {
    let results: Results = [
        (("contended", "leasehold".to_owned()), figures()),
        (("contended", "rslock".to_owned()), figures()),
    ]
    .into();
    let skipped = [("redisson".to_owned(), "no java".to_owned())];
    let report = report::json(&results, &BTreeMap::new(), &skipped, "m", "c");
    assert_eq!(report["left_out"][0]["why"], "no java");
    let document = report::document(&report);
    assert!(document.contains("| rslock | 200 | 1.0 |"), "{document}");
    assert!(!document.contains("## masters"));
    let theirs: Results = [(("contended", "rslock".to_owned()), figures())].into();
    let report = report::json(&theirs, &BTreeMap::new(), &[], "m", "c");
    assert!(report::document(&report).contains("| rslock | 200 | - |"));
}

/// The tables in the documents are those of the figures beside them.
#[test]
fn the_committed_tables_are_those_of_the_committed_figures() {
    let read = |name: &str| fs::read_to_string(root().join("docs/bench").join(name)).unwrap();
    let report = serde_json::from_str(&read("compare.json")).unwrap();
    let document = report::document(&report);
    assert_eq!(read("compare.md"), document);
}

#[test]
fn durations_are_positive() {
    assert_eq!(positive("0.5"), Ok(0.5));
    for wrong in ["0", "-1", "x"] {
        positive(wrong).unwrap_err();
    }
}
