//! The open files of a node that its peers cause.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A count of open files.
#[derive(Debug, Default)]
pub(crate) struct Files(AtomicUsize);

/// Some of them, counted as long as this exists.
#[derive(Debug)]
pub(crate) struct Counted {
    files: Arc<Files>,
    count: usize,
}

impl Files {
    /// Counts some more.
    pub(crate) fn count(self: &Arc<Self>, count: usize) -> Counted {
        self.0.fetch_add(count, Ordering::Relaxed);
        Counted {
            files: Arc::clone(self),
            count,
        }
    }

    /// How many there are.
    pub(crate) fn open(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counted {
    /// Separates one of them, which may outlive the others.
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
