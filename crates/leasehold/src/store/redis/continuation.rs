//! Continues calls that have left dead waiters in a queue.
//!
//! One call passes over a limited number of dead waiters, as the server does nothing else meanwhile. The
//! replies of the first call are final.

use std::time::{Duration, Instant};

use redis::Value;

use super::codec;
use super::connection_manager::ConnectionManager;
use super::script::Script;
use crate::store::api::Key;

/// How long continuations may delay a reply, not counting the last call. The next request for the lock
/// continues with the rest.
const TIME_MAX: Duration = Duration::from_millis(250);

/// Passes over the dead waiters that a call has left for these keys. In a cluster, the keys are in one slot.
pub(super) async fn continue_passing(
    manager: &ConnectionManager,
    script: &Script,
    mut keys: Vec<Key>,
) {
    let start = Instant::now();
    while !keys.is_empty() && start.elapsed() < TIME_MAX {
        let open = &keys;
        let answer = manager.exchange(|mut connection| async move {
            let node = manager.notifications().node();
            let encode = |verb: &str, text: &str| codec::encode_continue(verb, text, open, node);
            script.call(&mut connection, encode).await
        });
        let Ok(answer) = answer.await else {
            return;
        };
        keys = unfinished(&answer, keys.iter());
    }
}

/// The keys for which a call has left dead waiters, of the `keys` of its operations in order.
pub(super) fn unfinished<'a>(
    answer: &Value,
    keys: impl ExactSizeIterator<Item = &'a Key> + Clone,
) -> Vec<Key> {
    let Value::Array(items) = answer else {
        return Vec::new();
    };
    let numbers = items.iter().skip(1 + 2 * keys.len());
    let unfinished = numbers.filter_map(|number| match number {
        Value::Int(number) => keys
            .clone()
            .nth(usize::try_from(number.checked_sub(1)?).ok()?),
        _ => None,
    });
    unfinished.cloned().collect()
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Name, ScopeName};

    use super::*;
    use crate::store::api::Keyspace;

    #[test]
    fn an_answer_names_what_is_unfinished() {
        let scope = |text| ScopeName::parse(text).unwrap();
        let space = Keyspace::new(scope("app"), scope("t"));
        let keys = ["a", "b"].map(|name| space.key(Name::parse(name).unwrap()));
        let named = |numbers: &[i64]| {
            let items = [7, 4, 0, 4, 0].iter().chain(numbers);
            let answer = Value::Array(items.map(|number| Value::Int(*number)).collect());
            unfinished(&answer, keys.iter())
        };
        assert_eq!(named(&[]), []);
        assert_eq!(named(&[2]), keys[1..]);
        assert_eq!(named(&[1, 2]), keys);
        assert_eq!(named(&[0, 3, -1, i64::MIN]), []);
        assert_eq!(unfinished(&Value::Nil, keys.iter()), []);
    }
}
