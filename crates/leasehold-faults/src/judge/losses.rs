//! P3: a loss is final, it comes no earlier than was promised, and a step begins in its time.

use super::facts::{Facts, Look, LookKind};
use super::verdict::Verdict;

pub(super) fn check(facts: &Facts, verdict: &mut Verdict) {
    for (hold, _) in facts.granted() {
        for look in &hold.looks {
            let late = look.until().is_some_and(|until| look.before >= until);
            if late && look.kind != LookKind::Told {
                let hold = facts.describe(hold);
                verdict.violation(format!(
                    "P1 {hold} was told a time that had passed: {look:?}"
                ));
            }
        }
        let Some(lost) = hold.lost() else {
            continue;
        };
        let risen = |look: &&Look| look.before > lost.at && look.until().is_some();
        if let Some(look) = hold.looks.iter().find(risen) {
            let hold = facts.describe(hold);
            verdict.violation(format!("P3 {hold} was lost by {lost:?}, then {look:?}"));
        }
        let before = hold.looks.iter().filter(|look| look.at <= lost.at);
        let promised = before.filter_map(Look::until).max().unwrap_or(0);
        // Who has left may be told that by any look that is still under way.
        let left = hold.leaving.is_some_and(|leaving| leaving <= lost.at);
        if lost.at < promised && !left {
            let granted = facts.before_grant(hold);
            if !facts.forgot_hold(hold, granted, lost.at) {
                let hold = facts.describe(hold);
                verdict.violation(format!(
                    "P1 {hold} was promised until {promised} and lost before: {lost:?}"
                ));
            }
        }
    }
}
