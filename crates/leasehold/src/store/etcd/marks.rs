//! How long ago a document was written, at least.
//!
//! A mark is a key under a lease that is never renewed, of [`TTL`]; each process makes one of its own every [`PERIOD`]. A
//! document names the mark that its writer had made before it, and at most [`PERIOD`] before it applied the rule, by a clock
//! that counts the time of a suspend. A server ends a lease only when its ttl has passed since it was granted, and longer ago
//! than that the mark was not requested; a change of the leader or a server that was suspended makes it end later. So if
//! somebody finds, after it has read the document, that the mark is gone, then at least `TTL - PERIOD` have passed since the
//! rule was applied, whenever the write arrived; two seconds of that allow for clocks that differ by 1 %. A mark that is
//! there, or was there a moment ago, proves nothing, and neither does one of a client that revokes leases of others.

use std::collections::{BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::cluster::Cluster;
use super::messages::Put;
use crate::Result;
use crate::clock::{BootClock, Clock as _};
use crate::store::lock::lock;
use leasehold_core::Instant;

/// How long a mark stays.
const TTL: Duration = Duration::from_secs(90);

/// The age beyond which no document is written under a mark, and the one at which the next is made.
const PERIOD: Duration = Duration::from_secs(30);
const REFRESH: Duration = Duration::from_secs(20);

/// The age of a document whose mark is gone.
const AGE: Duration = Duration::from_secs(58);

/// How long a mark that was found is not read again.
const FOUND: Duration = Duration::from_secs(5);

/// The number of marks that are remembered.
const MARKS_MAX: usize = 4_096;

/// The marks of this process and of others.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The newest of this process, and the instant before it was requested.
    current: Mutex<Option<(String, Instant)>>,
    /// Whether a document was written since it was made.
    is_used: AtomicBool,
    /// Those that are gone (`None`), and those that were found at an instant.
    known: Mutex<HashMap<String, Option<Instant>>>,
}

impl Marks {
    /// The mark for documents that are written now.
    pub(super) async fn current(&self, cluster: &Cluster) -> Result<String> {
        self.is_used.store(true, Ordering::Relaxed);
        match self.younger_than(PERIOD) {
            Some(mark) => Ok(mark),
            None => self.make(cluster).await,
        }
    }

    /// Makes the next mark in time, so that no write waits for it.
    pub(super) async fn refresh(&self, cluster: &Cluster) {
        if self.younger_than(REFRESH).is_none() && self.is_used.swap(false, Ordering::Relaxed) {
            // A write tries it again.
            let _ = self.make(cluster).await;
        }
    }

    fn younger_than(&self, age: Duration) -> Option<String> {
        let current = lock(&self.current);
        let (mark, requested) = current.as_ref()?;
        (BootClock.now().since(*requested) < age).then(|| mark.clone())
    }

    async fn make(&self, cluster: &Cluster) -> Result<String> {
        let requested = BootClock.now();
        let lease = cluster.grant(TTL).await?.id;
        let mark = lease.to_string();
        let put = Put {
            key: cluster.keys.mark(&mark).into(),
            value: Vec::new(),
            lease,
        };
        cluster.ask(&put).await?;
        *lock(&self.current) = Some((mark.clone(), requested));
        Ok(mark)
    }

    /// The ages of documents, which were read before, by their marks.
    pub(super) async fn ages(&self, cluster: &Cluster, marks: &[Option<String>]) -> Vec<Duration> {
        let unknown = marks.iter().flatten().filter(|it| self.is_unknown(it));
        let unknown: BTreeSet<_> = unknown.cloned().collect();
        // Without a reply their ages are unknown.
        let _ = self.find(cluster, unknown).await;
        let known = lock(&self.known);
        let is_gone = |mark: &String| known.get(mark) == Some(&None);
        let age = |mark: &Option<String>| match mark.as_ref().is_some_and(is_gone) {
            true => AGE,
            false => Duration::ZERO,
        };
        marks.iter().map(age).collect()
    }

    fn is_unknown(&self, mark: &str) -> bool {
        match lock(&self.known).get(mark) {
            Some(Some(found)) => BootClock.now().since(*found) >= FOUND,
            Some(None) => false,
            None => true,
        }
    }

    async fn find(&self, cluster: &Cluster, marks: BTreeSet<String>) -> Result<()> {
        let now = BootClock.now();
        let keys = marks.iter().map(|mark| cluster.keys.mark(mark));
        let found = cluster.read(keys.collect()).await?;
        let mut known = lock(&self.known);
        if known.len() > MARKS_MAX {
            known.clear();
        }
        for (mark, found) in marks.into_iter().zip(found) {
            known.insert(mark, found.map(|_| now));
        }
        Ok(())
    }
}
