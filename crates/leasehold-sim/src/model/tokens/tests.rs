//! Ways that are too long to be found in every test run.

use super::*;
use crate::model::explore::follow;

/// Two of five forget together. One of them reads from the other, and nobody hears the third that knows.
const FORGOTTEN: [&str; 20] = [
    "1 grants to A with token 1",
    "2 grants to A with token 1",
    "3 grants to A with token 1",
    "A owns 1 and 2 and 3: token 2",
    "1 takes token 2 of A",
    "2 takes token 2 of A",
    "3 takes token 2 of A",
    "A has won",
    "1 is started again",
    "2 is started again",
    "1 was out for a ttl",
    "1 reads from 2 and 4 and 5 and is admitted",
    "4 grants to B with token 1",
    "5 grants to B with token 1",
    "1 grants to B with token 1",
    "B owns 1 and 4 and 5: token 2",
    "4 takes token 2 of B",
    "5 takes token 2 of B",
    "1 takes token 2 of B",
    "B has won",
];

fn model(back: Back) -> Tokens<5> {
    Tokens::new(Setup {
        attempts: 2,
        counters: 0,
        faults: 2,
        together: true,
        back,
        ..Setup::default()
    })
}

#[test]
fn a_master_admitted_by_one_that_is_not_admitted_repeats_tokens() {
    let model = model(Back::AdmittedByAnybody);
    let state = follow(&model, &FORGOTTEN).unwrap();
    for property in [Property::Unique, Property::RealTime, Property::Ownership] {
        assert!(model.breaks(&state, property), "{property}");
    }
}

#[test]
fn by_the_rule_only_admitted_masters_count() {
    let way = follow(&model(Back::Rule), &FORGOTTEN);
    assert_eq!(way, Err("1 reads from 2 and 4 and 5 and is admitted"));
}
