//! Hold counts are exact while the lease is held.
//!
//! Only on a single server: many masters are not read in one instant, and one may lag behind.

use super::facts::Facts;
use super::verdict::Verdict;

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    if facts.many {
        return;
    }
    for (hold, grant) in facts.granted() {
        for count in hold.counts.iter().filter(|count| count.held) {
            verdict.figures.counts_compared += 1;
            let expected = Some((grant.lease.clone(), count.expected));
            let granted = facts.before_grant(hold);
            if count.seen != expected && !facts.forgot_hold(hold, granted, count.at) {
                verdict.violation(format!(
                    "P6 {} should have the hold count {}: {count:?}",
                    facts.describe(hold),
                    count.expected,
                ));
            }
        }
    }
}
