//! Which batches are in flight to the shards of a store.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::batching::Batching;

/// How many batches may be in flight to one shard: one that it works on, and one that comes next. More would not
/// keep it busier, and would delay other operations.
const IN_FLIGHT_MAX: usize = 2;

/// A queue for each shard, sent in batches of which few are in flight. A slow or failing shard does not delay the
/// others.
///
/// `K` names a shard, and a batch consists of `T`s. The host pushes what is due, sends every
/// [`ShardLimiter::next_batch`], and reports the end of each with [`ShardLimiter::finished`], after which there may be
/// further batches.
///
/// A queue is cut into batches only when one may be sent: entries fall due one by one, and with a batch for each, the
/// last would wait for as many round trips as there are entries.
#[derive(Debug)]
pub struct ShardLimiter<K, T>(BTreeMap<K, ShardQueue<T>>);

#[derive(Debug)]
struct ShardQueue<T> {
    queue: VecDeque<T>,
    in_flight: usize,
    batching: Batching,
}

impl<K, T> Default for ShardLimiter<K, T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Default for ShardQueue<T> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            in_flight: 0,
            batching: Batching::default(),
        }
    }
}

impl<K: Copy + Ord, T> ShardLimiter<K, T> {
    /// Adds an entry to the queue of a shard.
    pub fn push(&mut self, shard: K, entry: T) {
        self.0.entry(shard).or_default().queue.push_back(entry);
    }

    /// The next batch of a shard that may be sent, which is in flight from now on. `None`: each queue is empty, or
    /// its shard has enough batches in flight.
    pub fn next_batch(&mut self) -> Option<(K, Vec<T>)> {
        let mut shards = self.0.iter_mut();
        let ready =
            |shard: &ShardQueue<T>| !shard.queue.is_empty() && shard.in_flight < IN_FLIGHT_MAX;
        let (key, shard) = shards.find(|(_, shard)| ready(shard))?;
        shard.in_flight += 1;
        let waiting = shard.queue.len();
        let size = shard.batching.size(waiting).min(waiting);
        Some((*key, shard.queue.drain(..size).collect()))
    }

    /// Handles the end of a batch. `round_trip` is how many entries it had when it was sent, and the time until the
    /// reply or its timeout. `None`: it was not sent, or its task was dropped.
    pub fn finished(&mut self, shard: K, round_trip: Option<(usize, Duration)>) {
        let Some(shard) = self.0.get_mut(&shard) else {
            return;
        };
        shard.in_flight = shard.in_flight.saturating_sub(1);
        if let Some((entries, took)) = round_trip {
            shard.batching.replied(entries, took);
        }
    }

    /// Whether the queue of a shard is empty and nothing of it is in flight.
    #[must_use]
    pub fn is_idle(&self, shard: K) -> bool {
        let shard = self.0.get(&shard);
        shard.is_none_or(|shard| shard.queue.is_empty() && shard.in_flight == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_millis(1);

    fn limiter(entries: &[(char, u32)]) -> ShardLimiter<char, u32> {
        let mut limiter = ShardLimiter::default();
        for (shard, count) in entries {
            (0..*count).for_each(|entry| limiter.push(*shard, entry));
        }
        limiter
    }

    #[test]
    fn a_shard_that_never_replies_does_not_delay_the_others() {
        let mut limiter = limiter(&[('a', 2_000), ('b', 1)]);
        let sent: Vec<_> = std::iter::from_fn(|| limiter.next_batch()).collect();
        let shards: Vec<_> = sent.iter().map(|(shard, _)| *shard).collect();
        assert_eq!(shards, ['a', 'a', 'b']);
        for entry in 0..100 {
            limiter.finished('b', Some((1, QUICK)));
            limiter.push('b', entry);
            assert_eq!(limiter.next_batch(), Some(('b', vec![entry])));
            assert_eq!(limiter.next_batch(), None);
        }
    }

    #[test]
    fn each_entry_is_sent_once_and_in_order() {
        let mut limiter = limiter(&[('a', 2_000)]);
        let mut sent = Vec::new();
        while let Some((shard, batch)) = limiter.next_batch() {
            assert!(!limiter.is_idle(shard));
            // The task of every second batch is dropped.
            let round_trip = (sent.len() % 2 == 0).then_some((batch.len(), QUICK));
            limiter.finished(shard, round_trip);
            sent.push(batch);
        }
        assert!(limiter.is_idle('a') && limiter.is_idle('b'));
        assert_eq!(sent.concat(), (0..2_000).collect::<Vec<_>>());
    }

    #[test]
    fn entries_that_fall_due_while_batches_are_in_flight_share_the_next_one() {
        let mut limiter = limiter(&[('a', 1)]);
        assert!(limiter.next_batch().is_some());
        limiter.push('a', 1);
        assert!(limiter.next_batch().is_some());
        (2..200).for_each(|entry| limiter.push('a', entry));
        assert_eq!(limiter.next_batch(), None);
        limiter.finished('a', Some((1, QUICK)));
        assert_eq!(limiter.next_batch(), Some(('a', (2..200).collect())));
    }
}
