//! The settings of what is held: a lock, a leadership, or the lock of a job.

use std::time::Duration;

use crate::{Durability, Owner};

/// How a lock is held: for how long, by whom, and how safely. For [`Mutex::with`](crate::Mutex::with),
/// [`Semaphore::with`](crate::Semaphore::with), [`RwLock::with`](crate::RwLock::with),
/// [`Election::with`](crate::Election::with) and [`Job::with`](crate::Job::with).
///
/// A setting that is not given keeps its value: that of the lock, election or job, which is at first that of the client.
/// A [fixed](Self::fixed) lease is the exception: later options with a ttl or a longest hold make it a renewed one.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
/// use leasehold::{Client, LeaseOptions};
///
/// let client = Client::connect("memory:").await?;
/// let short = LeaseOptions::new().ttl(Duration::from_secs(5)).max_hold(Duration::from_secs(60));
/// let orders = client.mutex("orders")?.with(short.clone())?;
/// let scheduler = client.election("scheduler")?.with(short)?;
///
/// // Ten seconds, not renewed.
/// let ten = LeaseOptions::new().fixed(Duration::from_secs(10));
/// let guard = orders.with(ten)?.lock().await?;
/// assert!(guard.time_left() <= Duration::from_secs(10));
/// # guard.release().await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "give it to the `with` of a lock, an election or a job"]
pub struct LeaseOptions {
    pub(crate) ttl: Option<Duration>,
    pub(crate) fixed: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) min_hold: Option<Duration>,
    pub(crate) durability: Option<Durability>,
    pub(crate) owner: Option<Owner>,
}

impl LeaseOptions {
    /// Options that change nothing.
    pub const fn new() -> Self {
        Self {
            ttl: None,
            fixed: None,
            max_hold: None,
            min_hold: None,
            durability: None,
            owner: None,
        }
    }

    /// The ttl of a renewed lease, from 100 ms to 24 h.
    ///
    /// A lease is renewed every third of its ttl, and given up when a third of it is left. This replaces
    /// [`ClientBuilder::renew_every`](crate::ClientBuilder::renew_every) and
    /// [`ClientBuilder::margin`](crate::ClientBuilder::margin).
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// A fixed lease, from 100 ms to 24 h: it is never renewed, and lost when it expires. The ttl and the longest hold
    /// of the same options have no effect on it.
    pub const fn fixed(mut self, lease: Duration) -> Self {
        self.fixed = Some(lease);
        self
    }

    /// The longest hold, at least the ttl. After this time the lease is no longer renewed: it is in jeopardy, and lost a
    /// margin (a third of the ttl) before it expires. So a holder that hangs does not keep the lock for ever.
    pub const fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// The minimum hold, up to 24 h: a released lock stays taken until this time has passed since it was acquired. So a
    /// machine whose clock is a little behind does not run a short job again.
    ///
    /// Meanwhile other clients are refused or wait, and [`LockInfo::min_hold`](crate::LockInfo::min_hold) is true. A
    /// revocation ends the minimum hold. Only a release starts it: if the process dies or the lease is lost, the lock is
    /// free at the end of the lease. Zero, the default, turns it off. Over many masters it is at most the longest ttl.
    ///
    /// An owner that enters a lease again can only extend its minimum hold. A lease is not handed off to another task of
    /// this client before the end of its minimum hold.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # use std::time::Duration;
    /// # use leasehold::LeaseOptions;
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let minute = LeaseOptions::new().min_hold(Duration::from_secs(60));
    /// let clean_up = client.mutex("clean-up")?.with(minute)?;
    /// assert_eq!(clean_up.try_run(async |_guard| "done").await?, Some("done"));
    /// // The other machines come a second later.
    /// assert_eq!(clean_up.try_run(async |_guard| "done").await?, None);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    pub const fn min_hold(mut self, min_hold: Duration) -> Self {
        self.min_hold = Some(min_hold);
        self
    }

    /// The replicas that must acknowledge the grant and each renewal before they take effect.
    ///
    /// If an owner enters a lease again with a stricter durability, that one counts for the whole lease.
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// The owner, which can enter the lock again. See [`Owner`]. It has an effect on a mutex and a job
    /// only: an election, a semaphore, a read-write lock and a set of locks ignore it.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }
}
