//! What of that which happened to holders under load must not.

use super::super::outcome::Outcome;
use super::seat::{Loss, Record};
use crate::clock::{MILLI, Nanos};

/// A time in which some holders have no node that looks after them.
pub(super) type Gap = (Nanos, Nanos);

/// Judges what happened to a holder.
pub(super) fn judge(record: &Record, gaps: &[Gap], outcome: &mut Outcome) {
    let name = &record.name;
    for loss in &record.lost {
        if !is_excused(record, loss, gaps) {
            let Loss { at, why, .. } = loss;
            outcome.miss(format!("{name} was lost at {} ms: {why}", at / MILLI));
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

/// Whether it was lost in a pause in which nobody looked after it at some time.
fn is_excused(record: &Record, loss: &Loss, gaps: &[Gap]) -> bool {
    let mut pauses = record.pauses.iter();
    pauses.any(|(stop, go_on)| {
        let lost_in_it = *stop <= loss.at && loss.promised <= *go_on;
        lost_in_it && gaps.iter().any(|(from, to)| stop <= to && from <= go_on)
    })
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
