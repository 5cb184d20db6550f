//! Traces that are too long for an exploration in every test run.

use super::*;
use crate::model::explore::follow;

/// Two of five come back empty together. One reads from the other, and not from the third that knows the token.
const EMPTY_MINORITY: &str = "\
    1 grants to A with token 1; 2 grants to A with token 1; 3 grants to A with token 1; \
    A owns 1 and 2 and 3: token 2; 1 stores token 2 of A; 2 stores token 2 of A; 3 stores token 2 of A; \
    A has won; 1 is restarted; 2 is restarted; 1 was kept out for a ttl; \
    1 reads from 2 and 4 and 5 and is admitted; 4 grants to B with token 1; 5 grants to B with token 1; \
    1 grants to B with token 1; B owns 1 and 4 and 5: token 2; 4 stores token 2 of B; \
    5 stores token 2 of B; 1 stores token 2 of B; B has won";

fn model(recovery: Recovery) -> Tokens<5> {
    Tokens {
        attempts: 2,
        counters: 0,
        faults: 2,
        together: true,
        recovery,
        ..Tokens::RULE
    }
}

#[test]
fn a_master_admitted_by_one_that_is_not_admitted_repeats_tokens() {
    let model = model(Recovery::AdmittedByAll);
    let state = follow(&model, EMPTY_MINORITY).unwrap();
    let all = [Property::Unique, Property::RealTime, Property::Ownership];
    assert_eq!(model.violations(&state), all);
}

#[test]
fn by_the_rule_only_admitted_masters_count() {
    let followed = follow(&model(Recovery::Rule), EMPTY_MINORITY);
    assert_eq!(followed, Err("1 reads from 2 and 4 and 5 and is admitted"));
}
