//! The size of batches of renewals.

use std::time::Duration;

/// The size of the batches to one node of a store, by the time of its replies.
///
/// A large batch costs less for each lease, but keeps the node busy for longer, and a failed one puts more
/// leases in jeopardy. So the size grows as long as replies are quick, and shrinks when they are late. Late
/// replies need not be caused by the size of the batch, though: the network may be slow, or the machine
/// overloaded. Then small batches would only multiply the delay, and a large backlog would not be renewed in
/// time. So a backlog is divided into few batches, whatever the replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batching {
    size: usize,
}

impl Default for Batching {
    fn default() -> Self {
        Self { size: 256 }
    }
}

impl Batching {
    /// The smallest batch. Below it the round trip costs more than the renewals.
    const MIN: usize = 32;
    /// The largest batch.
    const MAX: usize = 1_024;

    const QUICK: Duration = Duration::from_millis(2);
    const SLOW: Duration = Duration::from_millis(50);

    /// Into how many batches a backlog is divided, as long as they are not too large.
    const BACKLOG_BATCHES: usize = 4;

    /// How many leases the next batch has at most if so many wait.
    pub(crate) fn size(self, backlog: usize) -> usize {
        let share = backlog.div_ceil(Self::BACKLOG_BATCHES);
        share.clamp(self.size, Self::MAX)
    }

    /// Adjusts the size after a batch of `leases`, whose reply came after `took`, or that was given up then.
    pub(crate) fn replied(&mut self, leases: usize, took: Duration) {
        if took >= Self::SLOW {
            self.size = (self.size / 2).max(Self::MIN);
        } else if took <= Self::QUICK && leases >= self.size {
            self.size = (self.size * 2).min(Self::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_node_gets_larger_batches_and_a_slow_one_smaller() {
        let mut batching = Batching::default();
        batching.replied(200, Duration::from_millis(1));
        assert_eq!(batching.size(0), 256, "not full");
        for _ in 0..5 {
            batching.replied(batching.size(0), Duration::from_millis(1));
        }
        assert_eq!(batching.size(0), Batching::MAX);
        batching.replied(batching.size(0), Duration::from_millis(3));
        assert_eq!(batching.size(0), Batching::MAX);
        for _ in 0..9 {
            batching.replied(1, Duration::from_millis(50));
        }
        assert_eq!(batching.size(0), Batching::MIN);
    }

    /// Each reply is late, however small the batch: an overloaded machine, or a store far away.
    #[test]
    fn a_backlog_is_renewed_in_time_where_every_reply_is_late() {
        const LATE: Duration = Duration::from_millis(300);
        let mut batching = Batching::default();
        for _ in 0..9 {
            batching.replied(1, LATE);
        }
        let (mut backlog, mut took) = (20_000, Duration::ZERO);
        while backlog > 0 {
            // Two batches are in flight at a time.
            for _ in 0..2 {
                let batch = batching.size(backlog).min(backlog);
                backlog -= batch;
                batching.replied(batch, LATE);
            }
            took += LATE;
        }
        // A third of the usual ttl.
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
}
