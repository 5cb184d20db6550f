//! What of that which happened to holders under load must not.

use super::super::outcome::Outcome;
use super::seat::{Loss, Record, TTL_MS};
use crate::clock::{MILLI, Nanos};

/// How long a holder waits for an answer of the store: a sixth of its ttl.
const ANSWER_MAX: Nanos = TTL_MS * MILLI / 6;

/// What is told of the time around a loss.
const NEAR_MS: i128 = 10_000;

/// A time in which some holders have no node that looks after them.
pub(super) type Gap = (Nanos, Nanos);

/// Judges what happened to a holder.
pub(super) fn judge(record: &Record, gaps: &[Gap], outcome: &mut Outcome) {
    let name = &record.name;
    for loss in &record.lost {
        if !is_excused(record, loss, gaps) {
            outcome.miss(tale(record, loss, gaps));
        }
    }
    if record.served.len() > record.lost.len() {
        let (served, lost) = (record.served.len(), record.lost.len());
        outcome.miss(format!(
            "{name} was served {served} times and lost {lost} times"
        ));
    }
    // There is one who waits in each hold, so the nth who was served took the nth that was lost.
    for (served, loss) in record.served.iter().zip(&record.lost) {
        if *served < loss.promised {
            let early = (loss.promised - served) / MILLI;
            outcome.miss(format!(
                "{name} was served {early} ms before the end of what was promised"
            ));
        }
    }
}

/// Whether it was lost by a pause in which nobody looked after it at some time.
fn is_excused(record: &Record, loss: &Loss, gaps: &[Gap]) -> bool {
    let mut pauses = record.pauses.iter();
    pauses.any(|(stop, go_on)| {
        // Who wakes so late has not the time for an answer that may take as long as it is allowed to.
        let lost_by_it = *stop <= loss.at && loss.promised <= go_on + ANSWER_MAX;
        lost_by_it && gaps.iter().any(|(from, to)| stop <= to && from <= go_on)
    })
}

/// How a lease was lost, with all times relative to that.
fn tale(record: &Record, loss: &Loss, gaps: &[Gap]) -> String {
    let ago = |at: Nanos| (i128::from(at) - i128::from(loss.at)) / i128::from(MILLI);
    let near = |spans: &[(Nanos, Nanos)]| {
        let spans = spans.iter().map(|(from, to)| (ago(*from), ago(*to)));
        spans
            .filter(|(from, to)| *to > -NEAR_MS && *from < NEAR_MS)
            .collect::<Vec<_>>()
    };
    format!(
        "{} was lost: {}; in ms from there: promised until {}, stopped {:?}, without nodes {:?}",
        record.name,
        loss.why,
        ago(loss.promised),
        near(&record.pauses),
        near(gaps),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pause: (Nanos, Nanos), served: Nanos, promised: Nanos) -> Record {
        Record {
            name: "a".into(),
            pauses: vec![pause],
            served: vec![served],
            lost: vec![Loss {
                at: pause.1 + 1,
                promised,
                why: String::new(),
            }],
        }
    }

    fn misses(record: &Record, gaps: &[Gap]) -> usize {
        let mut outcome = Outcome::default();
        judge(record, gaps, &mut outcome);
        outcome.misses.len()
    }

    #[test]
    fn only_who_was_paused_without_a_node_may_lose() {
        let lost = record((10, 50), 40, 30);
        assert_eq!(misses(&lost, &[(20, 25)]), 0);
        assert_eq!(misses(&lost, &[(60, 70)]), 1);
        assert_eq!(misses(&lost, &[]), 1);
        let promised = 50 + 2 * ANSWER_MAX;
        let in_time = record((10, 50), promised, promised);
        assert_eq!(misses(&in_time, &[(20, 25)]), 1);
    }

    #[test]
    fn nobody_is_served_in_the_time_of_another() {
        let early = record((10, 50), 20, 30);
        assert_eq!(misses(&early, &[(20, 25)]), 1);
    }

    #[test]
    fn whoever_was_served_took_it_from_somebody_who_knows() {
        let mut unknown = record((10, 50), 40, 30);
        unknown.lost.clear();
        assert_eq!(misses(&unknown, &[(20, 25)]), 1);
    }
}
