//! Results are merged as they were counted, and documents contain them.

use clap::{Args, Command, FromArgMatches};
use serde_json::json;

use super::figures::ProcessResult;
use super::*;

fn part(acquisitions: u64, waits: &[(u32, u64)], events: &[(u64, u64)]) -> ProcessResult {
    let answer = json!({
        "acquisitions": acquisitions,
        "seconds": 2.0,
        "wait_us": waits,
        "wait_max_us": 1_500.0,
        "events": events,
    });
    ProcessResult::parse(&answer).unwrap()
}

fn figures() -> Figures {
    let parts = [
        part(300, &[(20, 200), (40, 97)], &[(0, 1_000), (9_000, 10_000)]),
        part(100, &[(60, 3)], &[(3_000, 4_000)]),
    ];
    Figures::of(&parts, (800, 4_000))
}

#[test]
fn results_of_processes_are_merged() {
    let figures = figures();
    assert_eq!(figures.per_second, 200.0);
    // Bucket b is around 10^(b / 20) us.
    assert!((9.0..11.0).contains(&figures.wait_p50_us), "{figures:?}");
    assert!((95.0..110.0).contains(&figures.wait_p99_us), "{figures:?}");
    assert_eq!(figures.off_equal_share, 0.5);
    assert_eq!((figures.scripts_each, figures.commands_each), (2.0, 10.0));
    // From 1,000 to 3,000 ns, and from 4,000 to 9,000 ns.
    assert_eq!(figures.change_p99_us, Some(5.0));
}

#[test]
fn the_median_of_rounds_is_none_of_the_extremes() {
    let round = |per_second| Figures {
        per_second,
        ..Figures::default()
    };
    let median = Figures::median(&[round(5.0), round(1.0), round(100.0)]);
    assert_eq!(median.per_second, 5.0);
    assert_eq!(median.change_p50_us, None);
}

#[test]
fn a_result_without_its_figures_is_refused() {
    assert!(ProcessResult::parse(&json!({"acquisitions": 1})).is_none());
    assert!(ProcessResult::parse(&json!([])).is_none());
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
fn options_are_parsed_and_wrong_ones_refused() {
    let parse = |args: &str| {
        let command = Options::augment_args(Command::new("compare").no_binary_name(true));
        let matches = command.try_get_matches_from(args.split(' '));
        matches.and_then(|matches| Options::from_arg_matches(&matches))
    };
    let options = parse("--seconds 0.5 --only rslock,redsync").unwrap();
    assert_eq!(options.seconds, 0.5);
    assert_eq!(options.only.unwrap().len(), 2);
    for wrong in ["--seconds 0", "--rounds 0", "--rounds", "--what 1"] {
        parse(wrong).unwrap_err();
    }
}
