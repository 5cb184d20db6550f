//! Paths of variants with too many states to visit all of them.

use super::*;
use crate::model::explore::follow;

#[test]
fn a_write_without_its_condition_replaces_a_holder() {
    let path = "A reads the document; B reads the document; A sends an acquire, 0 ticks on; \
         B sends an acquire, 0 ticks on; the write of A is applied; A receives the reply; \
         the write of B is applied; B receives the reply";
    let rule = Documents::RULE;
    assert_eq!(follow(&rule, path), Err("the write of B is applied"));
    let variant = Documents {
        unconditional: true,
        ..rule
    };
    let state = follow(&variant, path).unwrap();
    let violations = variant.violations(&state);
    assert_eq!(violations, [Property::Exclusion, Property::Ownership]);
}

#[test]
fn a_late_write_of_a_version_that_repeats_replaces_a_holder() {
    let path = "A reads the document; A sends an acquire, 0 ticks on; the write of A is applied; \
         A gives up its request; A reads the document; A sends an acquire, 0 ticks on; \
         A gives up its request; a tick; a tick; A removes the document; \
         B reads the document; B sends an acquire, 0 ticks on; the write of B is applied; \
         B receives the reply; a late write of A is applied; A reads the document; \
         A sends an acquire, 0 ticks on; the write of A is applied; A receives the reply";
    let rule = Documents {
        queue: false,
        renews: false,
        removals: 1,
        ..Documents::RULE
    };
    assert_eq!(follow(&rule, path), Err("a late write of A is applied"));
    let variant = Documents {
        repeated_versions: 3,
        ..rule
    };
    let state = follow(&variant, path).unwrap();
    let violations = variant.violations(&state);
    assert_eq!(violations, [Property::Exclusion, Property::Ownership]);
}
