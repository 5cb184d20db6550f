//! Every variant of the short form has its expected result.

use super::*;
use crate::model::explore::NOT_FOUND;

/// Visits all states of each row, or, where a property must break, until it does.
fn check(rows: Vec<Row>) {
    for row in expected(rows) {
        let breaks = row.breaks.as_ref().map_or(0, Vec::len);
        let stop_after = (breaks > 0).then_some(breaks);
        let report = row.explore(stop_after);
        assert_eq!(row.faults(&report), [""; 0], "{}", row.what);
        let mut steps = report.violated.values().flatten();
        assert!(steps.all(|step| step != NOT_FOUND), "{report:#?}");
    }
}

#[test]
fn tokens_have_the_expected_results() {
    check(tokens::rows(Extent::Short));
}

#[test]
fn exclusion_has_the_expected_results() {
    check(times::rows(Extent::Short));
}

#[test]
fn failover_has_the_expected_results() {
    check(failover());
}

#[test]
fn minimum_holds_have_the_expected_results() {
    check(record::rows(Extent::Short));
}

#[test]
fn shares_have_the_expected_results() {
    check(shares::rows(Extent::Short));
}

#[test]
fn documents_have_the_expected_results() {
    check(documents::rows(Extent::Short));
}

#[test]
fn the_watchdog_has_the_expected_results() {
    check(watchdog::rows(Extent::Short));
}

#[test]
fn the_table_has_every_variant() {
    let rows = rows(Extent::Full);
    assert!(rows.iter().all(|row| row.breaks.is_some()));
    let lines = DOCUMENT.lines();
    let lines = lines.skip_while(|line| !line.starts_with("| variant |"));
    let lines = lines.skip(2).take_while(|line| line.starts_with('|'));
    assert_eq!(lines.count(), rows.len());
}

#[test]
fn results_that_are_not_the_expected_ones_are_faults() {
    let mut row = expected(times::rows(Extent::Short)).remove(0);
    let mut report = row.explore(None);
    assert_eq!(row.faults(&report), [""; 0]);
    report.successes = 1;
    row.breaks = Some(vec!["exclusion"]);
    assert_eq!(row.faults(&report).len(), 2);
}
