//! How many renewals travel together.

use std::time::Duration;

/// The size of the batches to one node of a store, as its answers tell.
///
/// A large batch costs less for each lease, but keeps the node busy for longer, and a failed one takes
/// more leases into jeopardy. So it grows as long as the answers come quickly, and shrinks when they
/// come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    size: usize,
}

impl Default for Batching {
    fn default() -> Self {
        Self { size: 256 }
    }
}

impl Batching {
    /// The smallest batch. Below it the round trip costs more than the renewals.
    pub const MIN: usize = 32;
    /// The largest batch.
    pub const MAX: usize = 1_024;

    const QUICK: Duration = Duration::from_millis(2);
    const SLOW: Duration = Duration::from_millis(50);

    /// How many leases the next batch takes at most.
    #[must_use]
    pub const fn size(self) -> usize {
        self.size
    }

    /// A batch of so many was answered after this time, or given up.
    pub fn answered(&mut self, leases: usize, took: Duration) {
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
        batching.answered(200, Duration::from_millis(1));
        assert_eq!(batching.size(), 256, "not full");
        for _ in 0..5 {
            batching.answered(batching.size(), Duration::from_millis(1));
        }
        assert_eq!(batching.size(), Batching::MAX);
        batching.answered(batching.size(), Duration::from_millis(3));
        assert_eq!(batching.size(), Batching::MAX);
        for _ in 0..9 {
            batching.answered(1, Duration::from_millis(50));
        }
        assert_eq!(batching.size(), Batching::MIN);
    }
}
