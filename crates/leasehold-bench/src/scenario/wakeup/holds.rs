//! The release that woke each waiter.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Moment;

/// One hold of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hold {
    pub(super) requested: Moment,
    pub(super) acquired: Moment,
    /// When the store had confirmed the value of a leader.
    pub(super) proclaimed: Moment,
    /// Just before the release.
    pub(super) released: Moment,
}

/// The nanoseconds from a release to the acquisition of the waiter that it woke, and to the confirmation of its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wakeup {
    pub(super) acquired: u64,
    pub(super) proclaimed: u64,
}

/// For each hold of one process that had to wait, the time from the first release in another process that could
/// have led to it.
///
/// The first, not the last: a waiter that is passed over was not woken. Releases in the first half of
/// a hold's length after the request do not count, as it may not have been at the store by then.
pub(super) fn wakeups(processes: &[&[Hold]], length: Duration) -> Vec<Wakeup> {
    let mut found = Vec::new();
    for (own, holds) in processes.iter().enumerate() {
        let others = processes
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != own);
        let mut releases: Vec<_> = others
            .flat_map(|(_, holds)| holds.iter().map(|hold| hold.released))
            .collect();
        releases.sort_unstable();
        for hold in *holds {
            let waiting = hold.requested.after(length / 2);
            let first = releases.partition_point(|released| *released < waiting);
            if let Some(released) = releases.get(first)
                && *released < hold.acquired
            {
                found.push(Wakeup {
                    acquired: hold.acquired.nanos_since(*released),
                    proclaimed: hold.proclaimed.nanos_since(*released),
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_nanos(100);

    fn holds(times: &[(u64, u64, u64)]) -> Vec<Hold> {
        let at = |nanos| Moment::default().after(Duration::from_nanos(nanos));
        let hold = |&(requested, acquired, released)| Hold {
            requested: at(requested),
            acquired: at(acquired),
            proclaimed: at(acquired + 5),
            released: at(released),
        };
        times.iter().map(hold).collect()
    }

    #[test]
    fn a_waiter_is_woken_by_the_release_of_the_other() {
        let one = holds(&[(0, 10, 110), (120, 230, 330)]);
        let other = holds(&[(0, 117, 220), (235, 339, 440)]);
        let found = wakeups(&[&one, &other], LENGTH);
        let mut found: Vec<_> = found
            .iter()
            .map(|it| (it.acquired, it.proclaimed))
            .collect();
        found.sort_unstable();
        assert_eq!(found, [(7, 12), (9, 14), (10, 15)]);
    }

    #[test]
    fn a_free_lock_wakes_nobody() {
        let one = holds(&[(0, 10, 110)]);
        let other = holds(&[(500, 510, 600)]);
        assert!(wakeups(&[&one, &other], LENGTH).is_empty());
        // It was released while the request was on its way.
        let other = holds(&[(105, 115, 600)]);
        assert!(wakeups(&[&one, &other], LENGTH).is_empty());
    }

    /// A lock that the releaser takes again immediately is not a fast one.
    #[test]
    fn a_waiter_that_is_passed_over_waits_since_the_first_release() {
        let one = holds(&[(0, 10, 110), (111, 115, 215), (216, 220, 320)]);
        let other = holds(&[(0, 325, 400)]);
        let found = wakeups(&[&one, &other], LENGTH);
        assert_eq!(
            found.iter().map(|it| it.acquired).collect::<Vec<_>>(),
            [215]
        );
    }
}
