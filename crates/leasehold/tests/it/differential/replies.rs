//! Replies of a store beside those of the rule.

use std::time::Duration;

use leasehold::__private::store::Reply;
use leasehold::ErrorKind;
use leasehold_core::record::Kind;
use leasehold_core::{Mismatch, Op, Outcome, StoreTime};

/// The time in a reply.
pub(super) fn time(reply: &Reply) -> Option<StoreTime> {
    match reply {
        Reply::Applied { now, .. } => *now,
        Reply::Rejected(_) | Reply::Unknown(_) => None,
    }
}

/// Sorts replies by their times, as far as these are known: a store may apply operations on different names in any order,
/// and renewals as well.
pub(super) fn in_order(played: &mut [(&(usize, Op), Reply)], mut times: Vec<Option<StoreTime>>) {
    for nth in 0..times.len() {
        if times[nth].is_none() {
            // That of the operation before on this name, or behind it.
            let same = |other: &usize| played[*other].0.0 == played[nth].0.0;
            let before = (0..nth).rev().filter(same).find_map(|other| times[other]);
            let behind = || {
                (nth..times.len())
                    .filter(same)
                    .find_map(|other| times[other])
            };
            let any = || (0..nth).rev().find_map(|other| times[other]);
            times[nth] = before.or_else(behind).or_else(any);
        }
    }
    let mut order: Vec<_> = times.into_iter().enumerate().collect();
    order.sort_by_key(|(_, time)| *time);
    let mut sorted: Vec<_> = Vec::with_capacity(played.len());
    for (nth, _) in order {
        sorted.push((played[nth].0, played[nth].1.clone()));
    }
    played.clone_from_slice(&sorted);
}

/// Checks that a reading was refused because the name is used as another kind.
pub(super) fn refused(kind: Kind, found: Result<(), leasehold::Error>) -> Result<(), String> {
    let expected = Mismatch::Kind(kind).to_string();
    match found {
        Err(error)
            if error.kind() == ErrorKind::Conflict && error.to_string().ends_with(&expected) =>
        {
            Ok(())
        }
        found => Err(format!(
            "a reading of another kind had the result {found:?}"
        )),
    }
}

/// Whether a reply is that of the rule, but for the rounding of the time left.
pub(super) fn alike(mut actual: Outcome, expected: &Outcome, slack: Duration) -> bool {
    if let (
        Outcome::Refused { time_left, .. },
        Outcome::Refused {
            time_left: exact, ..
        },
    ) = (&mut actual, expected)
        && time_left
            .unwrap_or_default()
            .abs_diff(exact.unwrap_or_default())
            <= slack
    {
        *time_left = *exact;
    }
    actual == *expected
}
