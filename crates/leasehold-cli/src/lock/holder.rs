//! The holder of a lock that this process wants, in words.

use std::time::Duration;

use leasehold::{Access, ClientId, LockInfo};

use crate::args::{ShareArgs, StoreArgs};
use crate::{duration, output, release};

/// The usual time limit of a query for the holder: its words must not delay an exit.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Describes who holds a lock, and for how long, or when the hold that follows a run ends.
pub(super) fn describe(info: &LockInfo, store: &StoreArgs) -> String {
    let holder = output::holder(info);
    if info.min_hold {
        let time_left = duration::format(info.time_left);
        return format!(
            "is free in {time_left}: the run of {holder} has ended, and its --at-least or --retry-after lasts that long, \
             unless {} ends it",
            release::command(&info.name, store)
        );
    }
    match info.since {
        Some(_) => format!("is held by {holder} for {}", output::age(info)),
        None => format!("is held by {holder}"),
    }
}

/// What keeps a client from sharing a lock with its holders: too few free permits, or a request that comes first. `None`:
/// only the holders do.
pub(super) fn obstacle(info: &LockInfo, share: &ShareArgs, client: ClientId) -> Option<String> {
    let mut waiters = info.waiters.iter();
    let is_behind = waiters.any(|waiter| waiter.lease.client != client);
    if info.access.is_some_and(|access| access != Access::Write) {
        return is_behind.then(|| "a writer waits before this request".to_owned());
    }
    let others: u64 = info.others.iter().map(|holder| holder.weight).sum();
    let (permits, taken) = (info.permits?, info.weight? + others);
    let free = permits.checked_sub(taken).filter(|free| *free > 0)?;
    let needed = u64::from(share.weight.unwrap_or(1));
    let reason = match free < needed {
        true => format!("{needed} are needed"),
        false if is_behind => "but another request waits before this one".to_owned(),
        false => return None,
    };
    let are = if free == 1 { "is" } else { "are" };
    Some(format!("{free} of {permits} permits {are} free, {reason}"))
}

/// The position of a client in the queue of the store, such as `2nd`. `None`: it is not in the queue, or the store has
/// none.
pub(super) fn position(info: &LockInfo, client: ClientId) -> Option<String> {
    let mut waiters = info.waiters.iter();
    let ahead = waiters.position(|waiter| waiter.lease.client == client)?;
    Some(ordinal(ahead + 1))
}

fn ordinal(number: usize) -> String {
    let suffix = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_end_as_they_are_spoken() {
        let numbers = [1, 2, 3, 4, 10, 11, 12, 13, 21, 22, 101, 111, 112, 123];
        let ordinals = numbers.map(ordinal).join(" ");
        let spoken = "1st 2nd 3rd 4th 10th 11th 12th 13th 21st 22nd 101st 111th 112th 123rd";
        assert_eq!(ordinals, spoken);
    }
}
