//! Leader election: a mutex whose holder proclaims a value, and observers of it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::election::VALUE_BYTES_MAX;
use leasehold_core::{Leader, LeaderFilter, Slot, Token};

use super::mutex::Mutex;
#[cfg(doc)]
use crate::ErrorKind;
use crate::driver::read::Observer;
use crate::driver::report;
use crate::driver::value::Proclaimer;
use crate::store::Parts;
use crate::{Guard, LeaseOptions, Result, config};

/// An election with a name, in the store of its client.
///
/// One candidate at a time leads: the one that holds the [`Mutex`] of this name. It proclaims a value, such as its
/// address, which every client of the store can observe. Cheap to clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use std::time::Duration;
///
/// let client = leasehold::Client::connect("memory:").await?;
/// let election = client.election("scheduler")?;
///
/// let leadership = election.campaign("10.0.0.7:8080").await?; // waits until this candidate leads
/// println!("leads in term {}", leadership.term());
/// # leadership.proclaimed().await?;
///
/// let mut leaders = election.observe();
/// if let Some(leader) = leaders.next().await? {
///     println!("the leader is at {}", leader.value);
/// }
/// leadership.release().await?; // the next candidate leads in the same step
///
/// // `None`: another candidate leads, now or for three seconds.
/// if let Some(leadership) = election.try_campaign("10.0.0.7:8080").await? {
///     leadership.release().await?;
/// }
/// let three = Duration::from_secs(3);
/// if let Some(leadership) = election.campaign_timeout("10.0.0.7:8080", three).await? {
///     leadership.release().await?;
/// }
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    mutex: Mutex,
}

impl Election {
    pub(crate) fn new(mutex: Mutex) -> Self {
        Self {
            mutex: mutex.without_owner(),
        }
    }

    /// The lock whose holder leads. It has the name of the election.
    #[must_use]
    pub const fn mutex(&self) -> &Mutex {
        &self.mutex
    }

    /// The same election with other settings of its leaderships. See [`LeaseOptions`].
    ///
    /// # Errors
    ///
    /// As [`Mutex::with`].
    pub fn with(&self, options: LeaseOptions) -> Result<Self> {
        self.mutex.with(options).map(Self::new)
    }

    /// Waits until this candidate leads, without a limit, and proclaims a value of at most 4 KiB.
    ///
    /// It returns as soon as the store has granted the lock. The value is then written in the background, and again until
    /// the store has confirmed it: [`Leadership::proclaimed`] waits for that.
    ///
    /// A service campaigns again after each loss, and after an error of the store:
    ///
    /// ```
    /// # async fn schedule(_: leasehold::Token) {}
    /// use std::time::Duration;
    /// use leasehold::{Client, ErrorKind};
    ///
    /// async fn lead(client: Client, address: &str) -> leasehold::Result<()> {
    ///     let election = client.election("scheduler")?;
    ///     loop {
    ///         let led = async {
    ///             let leadership = election.campaign(address).await?;
    ///             leadership.run(schedule(leadership.term())).await
    ///         };
    ///         match led.await {
    ///             Ok(()) => return Ok(()),
    ///             Err(error) if error.kind() == ErrorKind::ShutDown => return Ok(()),
    ///             Err(error) => eprintln!("not leading: {error}"),
    ///         }
    ///         tokio::time::sleep(Duration::from_secs(1)).await;
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a longer value, otherwise as [`Mutex::lock`].
    ///
    /// # Cancel safety
    ///
    /// Dropped during the wait, the future has left the queue. A leadership that was granted meanwhile is ended in the
    /// background.
    pub async fn campaign(&self, value: impl AsRef<str>) -> Result<Leadership> {
        let value = self.checked(value.as_ref())?;
        Ok(Leadership::begin(self.mutex.lock().await?, value))
    }

    /// Leads if no other candidate leads or waits. `None`: another one does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a value over 4 KiB, otherwise as [`Mutex::try_lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`Election::campaign`].
    pub async fn try_campaign(&self, value: impl AsRef<str>) -> Result<Option<Leadership>> {
        let value = self.checked(value.as_ref())?;
        let guard = self.mutex.try_lock().await?;
        Ok(guard.map(|guard| Leadership::begin(guard, value)))
    }

    /// Waits until this candidate leads, no longer than `timeout`. `None`: it did not lead in that time.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a value over 4 KiB, otherwise as [`Mutex::lock_timeout`].
    ///
    /// # Cancel safety
    ///
    /// As [`Election::campaign`].
    pub async fn campaign_timeout(
        &self,
        value: impl AsRef<str>,
        timeout: Duration,
    ) -> Result<Option<Leadership>> {
        let value = self.checked(value.as_ref())?;
        let guard = self.mutex.lock_timeout(timeout).await?;
        Ok(guard.map(|guard| Leadership::begin(guard, value)))
    }

    /// The leader at this moment, by one request. `None`: nobody leads, or the leader has not proclaimed a value yet. It is
    /// this client if `leader.lease.client` is its [`id`](crate::Client::id).
    ///
    /// If the store loses its last writes, a second call may return an earlier term or value; those of
    /// [`Election::observe`] never go back.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let leader = client.election("scheduler")?.leader().await?;
    /// let address: Option<String> = leader.map(|leader| leader.value.to_string());
    /// # assert_eq!(address, None);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As the store replies.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let Mutex { driver, key, .. } = &self.mutex;
        driver.check_open(key)?;
        let parts = Parts::Annotation(Slot::Value);
        let view = driver.context.store.view(key, parts).await;
        let view = view.map_err(|error| driver.context.name_error(error, key))?;
        let holder = view.lease().map(|(lease, _)| lease);
        Ok(Leader::of(holder, view.annotation()))
    }

    /// The leaders, one after the other, starting with the one at this moment.
    #[must_use]
    pub fn observe(&self) -> Leaders {
        let Mutex { driver, key, .. } = &self.mutex;
        Leaders {
            observer: Observer::new(Arc::clone(driver), key.clone(), Parts::State(Slot::Value)),
            filter: LeaderFilter::default(),
        }
    }

    fn checked(&self, value: &str) -> Result<Arc<str>> {
        let Mutex { driver, key, .. } = &self.mutex;
        check(value).map_err(|error| driver.context.name_error(error, key))?;
        Ok(value.into())
    }
}

fn check(value: &str) -> Result<()> {
    let bytes = value.len();
    if bytes > VALUE_BYTES_MAX {
        return Err(config::invalid(format!(
            "the value of a leader has at most {VALUE_BYTES_MAX} bytes, not {bytes}"
        )));
    }
    Ok(())
}

/// A leadership, until it is released, dropped or lost.
///
/// It derefs to the [`Guard`] of the lock of the election, and has a value that observers see. Dropping it ends the
/// leadership in the background.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let client = leasehold::Client::connect("memory:").await?;
/// # async fn schedule() {}
/// let election = client.election("scheduler")?;
/// let leadership = election.campaign("10.0.0.7:8080").await?;
/// leadership.run(schedule()).await?; // dropped when the leadership is lost
/// leadership.proclaim("10.0.0.7:8081").await?; // another value
/// leadership.release().await?;
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
///
/// The handlers of a service share it, and check its [state](Guard::state) for each request. [`Election::leader`] and
/// [`Leaders`] do not replace this check: they may name this process after it has lost the leadership. When the last
/// reference is dropped, the leadership is released.
///
/// ```
/// use std::sync::Arc;
/// use leasehold::{Election, Leadership, Result, Token};
/// use tokio::sync::watch;
///
/// type Current = Option<Arc<Leadership>>;
///
/// /// Leads once, and lends the leadership to the handlers. The loop around it is that of `Election::campaign`.
/// async fn lead(election: &Election, current: &watch::Sender<Current>) -> Result<()> {
///     let leadership = Arc::new(election.campaign("10.0.0.7:8080").await?);
///     current.send_replace(Some(Arc::clone(&leadership)));
///     let cause = leadership.lost().await;
///     current.send_replace(None);
///     println!("not leading: {cause}");
///     Ok(())
/// }
///
/// /// The term in which a handler serves a request. `None`: this process does not lead at this instant.
/// fn term(current: &watch::Receiver<Current>) -> Option<Token> {
///     let leadership = current.borrow().clone()?;
///     (!leadership.state().is_lost()).then(|| leadership.term())
/// }
/// ```
#[derive(Debug)]
#[must_use = "bind it to `_leadership`: `let _` drops it, which ends the leadership"]
pub struct Leadership {
    // Dropped first: nothing is written after the release.
    proclaimer: Proclaimer,
    guard: Guard,
}

impl Leadership {
    fn begin(mut guard: Guard, value: Arc<str>) -> Self {
        let hold = guard.hold_mut();
        // Each leadership has a lease of its own: a late write for the one before is refused.
        hold.prevent_handoff();
        let proclaimer = Proclaimer::start(hold, value);
        report(|| metrics::counter!("leasehold_leader_changes_total").increment(1));
        Self { proclaimer, guard }
    }

    /// The term: the fencing token, larger than that of every earlier leader. See [`Guard::token`].
    #[must_use]
    pub fn term(&self) -> Token {
        self.guard.token()
    }

    /// Replaces the value, and waits until observers can see it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a value over 4 KiB, [`ErrorKind::Lost`] if the leadership is lost, otherwise as
    /// the store replies. A transient error is retried until the leadership is lost.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the value is written in the background.
    pub async fn proclaim(&self, value: impl AsRef<str>) -> Result<()> {
        let value = value.as_ref();
        check(value).map_err(|error| self.guard.name_error(error))?;
        self.unless_lost(self.proclaimer.proclaim(value.into()))
            .await
    }

    /// Waits until the newest value is written, so that observers can see this leader.
    ///
    /// # Errors
    ///
    /// As [`Leadership::proclaim`].
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn proclaimed(&self) -> Result<()> {
        self.unless_lost(self.proclaimer.written()).await
    }

    async fn unless_lost(&self, written: impl Future<Output = Result<()>>) -> Result<()> {
        tokio::select! {
            biased;
            // First: a lost leadership writes no value.
            cause = self.guard.lost() => Err(self.guard.lost_error(cause)),
            written = written => written,
        }
    }

    /// Ends the leadership: the next candidate leads in the same step.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        let Self { proclaimer, guard } = self;
        drop(proclaimer);
        guard.release().await
    }
}

impl Deref for Leadership {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

/// The leaders of an election, one after the other. Made by [`Election::observe`].
///
/// As a stream, with the crate `futures-util`:
///
/// ```
/// use futures_util::stream::{Stream, try_unfold};
/// use leasehold::{Error, Leader, Leaders};
///
/// fn stream(leaders: Leaders) -> impl Stream<Item = Result<Option<Leader>, Error>> {
///     try_unfold(leaders, async |mut leaders| {
///         let leader = leaders.next().await?;
///         Ok(Some((leader, leaders)))
///     })
/// }
/// ```
#[derive(Debug)]
pub struct Leaders {
    observer: Observer,
    filter: LeaderFilter,
}

impl Leaders {
    /// Waits for the next leader: first the leader at this moment, then each change of the leader or its value. `None`:
    /// nobody leads, or the leader has not proclaimed a value yet.
    ///
    /// Terms never fall, and the values of a leader never go back. Of several changes between two calls,
    /// only the newest is returned. While the store fails, nothing is returned, although the last leader may have lost its
    /// leadership: [`Mutex::events`] of [`Election::mutex`] reports such times.
    ///
    /// # Errors
    ///
    /// As the store replies, and [`ErrorKind::ShutDown`] after a shutdown of the client. Transient errors are waited for.
    ///
    /// After an error the next call reads the store again, without a pause: a loop pauses, and ends with
    /// [`ErrorKind::ShutDown`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        loop {
            let view = self.observer.next().await?;
            let holder = view.lease().map(|(lease, _)| lease);
            if let Some(leader) = self.filter.handle(holder, view.annotation()) {
                return Ok(leader);
            }
        }
    }
}
