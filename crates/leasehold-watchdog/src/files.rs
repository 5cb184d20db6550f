//! The number of files that a node has open for its peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A count of open files.
#[derive(Debug, Default)]
pub(crate) struct Files(AtomicUsize);

/// Some open files, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    files: Arc<Files>,
    count: usize,
}

impl Files {
    /// Counts `count` more open files.
    pub(crate) fn count(self: &Arc<Self>, count: usize) -> Counted {
        self.0.fetch_add(count, Ordering::Relaxed);
        Counted {
            files: Arc::clone(self),
            count,
        }
    }

    /// The number of open files.
    pub(crate) fn open(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counted {
    /// Splits off the count of one file, which may stay open longer than the others.
    pub(crate) fn split_one(&mut self) -> Self {
        let count = self.count.min(1);
        self.count -= count;
        Self {
            files: Arc::clone(&self.files),
            count,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.files.0.fetch_sub(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_counted_until_its_own_count_is_dropped() {
        let files = Arc::<Files>::default();
        let mut some = files.count(3);
        let one = some.split_one();
        assert_eq!(files.open(), 3);
        drop(some);
        assert_eq!(files.open(), 1);
        drop(one);
        assert_eq!(files.open(), 0);
    }
}
