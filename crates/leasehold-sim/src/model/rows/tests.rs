//! Every variant of the short form has its expected result.

use super::*;
use crate::model::explore::NOT_FOUND;

/// Visits all states of each row, or, where a property must break, until it does.
fn check(rows: &[Row]) {
    for row in rows {
        let report = row.explore(Until::Violated(&row.breaks));
        let faults = row.faults(&report);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        for (_, trace) in &report.violated {
            assert!(!trace.to_string().contains(NOT_FOUND), "{trace}");
        }
    }
}

fn row(what: &str) -> Row {
    let mut rows = rows(Extent::Short).into_iter();
    rows.find(|row| row.what == what).unwrap()
}

#[test]
fn tokens_have_the_expected_results() {
    check(&tokens::rows(Extent::Short));
}

#[test]
fn exclusion_has_the_expected_results() {
    check(&times::rows(Extent::Short));
}

#[test]
fn failover_has_the_expected_results() {
    check(&failover::rows());
}

#[test]
fn the_watchdog_has_the_expected_results() {
    check(&watchdog::rows(Extent::Short));
}

#[test]
fn a_row_that_holds_where_it_must_break_is_a_fault() {
    let row = row("three masters, deadlines by the rule").breaks(&[Property::Exclusion]);
    let report = row.explore(Until::Done);
    assert_eq!(row.faults(&report).len(), 1);
}

#[test]
fn a_model_that_grants_nothing_is_a_fault() {
    let row = row("one store that keeps its data");
    let mut report = row.explore(Until::Done);
    report.successes = 1;
    assert_eq!(row.faults(&report).len(), 1);
}
