//! The leases of this process on locks that others may hold at the same time, and the read leases that its readers
//! share.
//!
//! A lease is found here by its number, as the head of a local queue passes on with the grant. When readers share a
//! lease is decided by [`leasehold_core::read_window`]. A task for each lease that is shared has a hold of its own,
//! which keeps the lease until the end of the window.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use leasehold_core::read_window::{Joining, SHARE_TIME};
use leasehold_core::{Access, Claim, Grant, Instant, LeaseId, ReadWindow, Token};
use tokio::sync::Notify;

use super::Driver;
use super::active_lease::ActiveLease;
use super::context::AcquireOptions;
use super::hold::Hold;
use super::primitives::{Mutex, lock};
use crate::store::Key;

#[derive(Default)]
pub(crate) struct Shares(Mutex<Table>);

#[derive(Default)]
struct Table {
    leases: HashMap<u64, Entry>,
    /// The newest read lease of each name.
    readers: HashMap<Key, Readers>,
}

struct Entry {
    lease: Weak<ActiveLease>,
    /// The first of its tokens.
    first: Token,
    /// Wakes the task that converts it. `None`: it is not converted.
    converted: Option<Arc<Notify>>,
}

/// A read lease that readers of this process may join.
struct Readers {
    lease: Weak<ActiveLease>,
    options: AcquireOptions,
    window: ReadWindow,
    /// The holds that keep this lease and the one before it. No strong reference: a runtime that ends drops the holds.
    retained: [Weak<RetainedHold>; 2],
}

/// The hold that keeps a shared lease until the end of its window.
type RetainedHold = Mutex<Option<Hold>>;

/// What a grant is to a lease of this process.
pub(super) enum Known {
    /// The grant by which the lease is held, or an earlier one.
    Held,
    /// A later one: the lease has ended.
    Ended(Arc<ActiveLease>),
    /// There is no such lease.
    Nobody,
}

impl Shares {
    /// A lease begins.
    pub(super) fn begin(&self, lease: &Arc<ActiveLease>, options: &AcquireOptions, now: Instant) {
        let mut table = lock(&self.0);
        let entry = Entry {
            lease: Arc::downgrade(lease),
            first: lease.first,
            converted: None,
        };
        table.leases.insert(lease.id.number, entry);
        if options.is_reader() {
            let before = table.readers.remove(&lease.key);
            let [last, _] = before.map(|before| before.retained).unwrap_or_default();
            let readers = Readers {
                lease: Arc::downgrade(lease),
                options: options.clone(),
                window: ReadWindow::begin(now),
                retained: [Weak::new(), last],
            };
            table.readers.insert(lease.key.clone(), readers);
        }
    }

    /// A lease ends.
    pub(super) fn end(&self, lease: &Arc<ActiveLease>) {
        let mut table = lock(&self.0);
        table.leases.remove(&lease.id.number);
        if table
            .readers
            .get(&lease.key)
            .is_some_and(|it| it.is_of(lease))
        {
            table.readers.remove(&lease.key);
        }
    }

    /// A lease with this id.
    pub(super) fn lease(&self, id: LeaseId) -> Option<Arc<ActiveLease>> {
        let table = lock(&self.0);
        let lease = table.leases.get(&id.number)?.lease.upgrade()?;
        Some(lease).filter(|lease| lease.id == id)
    }

    /// A grant was notified for which no task waits at the head of a queue.
    pub(super) fn granted(&self, grant: &Grant) -> Known {
        let table = lock(&self.0);
        let Some(entry) = table.leases.get(&grant.lease.number) else {
            return Known::Nobody;
        };
        if let Some(converted) = &entry.converted {
            converted.notify_one();
            return Known::Held;
        }
        match entry.lease.upgrade() {
            Some(lease) if grant.is_after(entry.first) => Known::Ended(lease),
            Some(_) => Known::Held,
            None => Known::Nobody,
        }
    }

    /// Begins a conversion of a lease, which a notice wakes.
    pub(super) fn begin_conversion(&self, id: LeaseId) -> Arc<Notify> {
        let notify = Arc::new(Notify::new());
        if let Some(entry) = lock(&self.0).leases.get_mut(&id.number) {
            entry.converted = Some(Arc::clone(&notify));
        }
        notify
    }

    /// A conversion of a lease has ended. It has these tokens now.
    pub(super) fn end_conversion(&self, id: LeaseId, first: Token) {
        if let Some(entry) = lock(&self.0).leases.get_mut(&id.number) {
            entry.first = first;
            entry.converted = None;
        }
    }

    /// Notices may have been lost: each conversion sends a request.
    pub(super) fn interrupt(&self) {
        for entry in lock(&self.0).leases.values() {
            if let Some(converted) = &entry.converted {
                converted.notify_one();
            }
        }
    }

    /// Ends the sharing of the read leases of a name: a writer of this process comes.
    pub(super) fn end_window(&self, key: &Key) {
        let readers = lock(&self.0).readers.remove(key);
        // Not under the lock: the end of a hold may end its lease.
        for retained in readers.iter().flat_map(|readers| &readers.retained) {
            drop(release(retained));
        }
    }

    /// Whether this lease is still the newest read lease of its name.
    fn is_newest(&self, lease: &Arc<ActiveLease>) -> bool {
        let table = lock(&self.0);
        table
            .readers
            .get(&lease.key)
            .is_some_and(|it| it.is_of(lease))
    }
}

/// Joins the readers of this process, for a reader. A writer ends the sharing of their lease. `None`: there are no readers
/// to join, or no longer.
pub(super) fn join(driver: &Arc<Driver>, key: &Key, options: &AcquireOptions) -> Option<Hold> {
    if options.claim == Claim::Access(Access::Write) {
        driver.shares.end_window(key);
    }
    if !options.is_reader() {
        return None;
    }
    let now = driver.context.clock.now();
    let (lease, joining) = {
        let mut table = lock(&driver.shares.0);
        let readers = table.readers.get_mut(key)?;
        let lease = readers.lease.upgrade()?;
        if readers.options != *options {
            return None;
        }
        match readers.window.join(now) {
            Joining::Over => {
                // The release of the lease before this one travels with the request for the next one.
                let before = std::mem::take(&mut readers.retained[1]);
                drop(table);
                drop(release(&before));
                return None;
            }
            joining => (lease, joining),
        }
    };
    let hold = Hold::join(driver, &lease, now)?;
    if joining == Joining::First {
        keep(driver, &lease, now);
    }
    Some(hold)
}

/// Keeps a shared lease until the end of its window. If another read lease has followed by then, a writer also waits
/// for that: this one is then released with the request behind that.
fn keep(driver: &Arc<Driver>, lease: &Arc<ActiveLease>, now: Instant) {
    let Some(hold) = Hold::join(driver, lease, now) else {
        return;
    };
    let retained = Arc::new(RetainedHold::new(Some(hold)));
    let end = {
        let mut table = lock(&driver.shares.0);
        let readers = table.readers.get_mut(&lease.key);
        readers.filter(|it| it.is_of(lease)).map(|readers| {
            readers.retained[0] = Arc::downgrade(&retained);
            readers.window.end()
        })
    };
    // Without one, a writer has come meanwhile, and the hold is dropped here.
    let Some(end) = end else { return };
    let (driver, lease) = (Arc::clone(driver), Arc::clone(lease));
    let runtime = driver.context.runtime.clone();
    runtime.spawn(async move {
        let clock = &driver.context.clock;
        clock.sleep_until(end).await;
        if !driver.shares.is_newest(&lease) {
            clock.sleep_until(end.after(SHARE_TIME)).await;
        }
        drop(lock(&retained).take());
    });
}

/// Takes a retained hold, which is then dropped.
fn release(retained: &Weak<RetainedHold>) -> Option<Hold> {
    lock(&*retained.upgrade()?).take()
}

impl Readers {
    fn is_of(&self, lease: &Arc<ActiveLease>) -> bool {
        std::ptr::eq(self.lease.as_ptr(), Arc::as_ptr(lease))
    }
}

/// Shows the number of leases, which tests check.
impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = lock(&self.0);
        f.debug_struct("Shares")
            .field("leases", &table.leases.len())
            .field("readers", &table.readers.len())
            .finish()
    }
}
