//! The guard of a lock that is held.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::acquisition::Numbering;
use leasehold_core::{Cause, Instant, LeaseId, NewNote, State, StateKind, Token};

use crate::driver::hold::Hold;
use crate::{Error, ErrorKind, Result, config};

/// A lock that is held, until it is released, dropped or lost. [`Leadership`](crate::Leadership), [`Run`](crate::Run),
/// [`Permit`](crate::Permit) and the guards of a [`RwLock`](crate::RwLock) deref to it.
///
/// Dropping a guard releases the lock in the background. [`Guard::release`] waits for the release and reports
/// whether the lock was held to the end. A leaked guard keeps its lease renewed.
///
/// A lease can be lost while the guard lives. [`Guard::state`] is what it is worth at this instant,
/// [`Guard::lost`] returns when it is lost, and [`Guard::token`] lets the protected resource refuse a
/// holder that did not notice the loss.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let client = leasehold::Client::connect("memory:").await?;
/// let mutex = client.mutex("orders/42")?;
/// let _ = mutex.lock().await?; // not held: `let _` drops the guard immediately
/// let _guard = mutex.lock().await?; // held until the end of the block
/// assert!(mutex.try_lock().await?.is_none());
/// # Ok::<(), leasehold::Error>(()) }).unwrap();
/// ```
#[must_use = "bind it to `_guard`: `let _` drops it, which releases the lock"]
pub struct Guard {
    hold: Hold,
}

impl Guard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.lease.key.name.as_str()
    }

    /// The fencing token: larger than that of every earlier grant under this name.
    ///
    /// Send it with every write to the protected resource and let the resource refuse a token
    /// smaller than the largest it has seen: [`fence`](crate::fence) has such checks. All holds of one owner on one
    /// lease have the same token.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// let mutex = client.mutex("orders/42")?;
    /// let first = mutex.lock().await?.token();
    /// let second = mutex.lock().await?.token();
    /// assert!(second > first);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token
    }

    /// The id of the lease, which stands for one grant of the store. A released lease may be handed off to another task
    /// of this client: the next guard has the same id and a larger [`Guard::token`].
    #[must_use]
    pub fn lease_id(&self) -> LeaseId {
        self.hold.lease.id
    }

    /// The local instant until which the store certainly keeps the lease, as known at this moment. Each renewal moves
    /// it on.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.hold.deadline()
    }

    /// The time until [`Guard::deadline`]; zero if it has passed. A renewed lease is lost earlier, a third of its ttl
    /// before the deadline: [`State::Held`] has that instant.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.hold.driver.context.clock.now().until(self.deadline())
    }

    /// What the lease is worth at this instant, by a clock that counts suspend.
    ///
    /// It needs no reply from the store: a process that was stopped for longer than its lease reads
    /// [`State::Lost`] here before it does anything else.
    #[must_use]
    pub fn state(&self) -> State {
        self.hold.state()
    }

    /// The changes of [`Guard::state`], starting with the current state.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # let mutex = client.mutex("orders/42")?;
    /// use leasehold::State;
    ///
    /// let guard = mutex.lock().await?;
    /// let mut states = guard.states();
    /// # mutex.revoke().await?;
    /// while let Some(state) = states.next().await {
    ///     match state {
    ///         State::Held { .. } => println!("held until {:?}", guard.deadline()),
    ///         State::Jeopardy { cause, .. } => println!("in jeopardy: {cause}"),
    ///         State::Lost(cause) => println!("lost: {cause}"),
    ///     }
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    #[must_use]
    pub fn states(&self) -> States<'_> {
        States {
            hold: &self.hold,
            last: None,
        }
    }

    /// Waits until the lease is lost, and returns the cause.
    ///
    /// For a renewed lease that is a third of its ttl *before* the store can grant the lock to another,
    /// unless the store itself replied that the lease has ended. Use the time to stop. Then release or drop the guard:
    /// the store may keep the lease until it expires, and others wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # async fn import() {}
    /// let guard = client.mutex("import")?.lock().await?;
    /// tokio::select! {
    ///     cause = guard.lost() => println!("stopped: {cause}"),
    ///     () = import() => guard.release().await?,
    /// }
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses nothing.
    pub async fn lost(&self) -> Cause {
        let mut states = self.states();
        loop {
            if let Some(State::Lost(cause)) = states.next().await {
                return cause;
            }
        }
    }

    /// Polls a future under the lock, and drops it at its next `.await` when the lease is lost.
    ///
    /// After a pause of the process, the lease is checked before the work goes on. The guard is not released: it can
    /// run more work. Unlike [`Mutex::run`](crate::Mutex::run), which acquires and releases the lock, this takes a
    /// future and not a closure.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # async fn copy() -> u64 { 1 }
    /// # async fn check() {}
    /// let guard = client.mutex("backup")?.lock().await?;
    /// let bytes = guard.run(copy()).await?;
    /// guard.run(check()).await?;
    /// guard.release().await?;
    /// # assert_eq!(bytes, 1);
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if the lease was lost before the work had ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let outcome = run_unless_lost(|| self.state(), self.lost(), work);
        outcome.await.map_err(|cause| self.lost_error(cause))
    }

    /// Makes sure that the lease lasts for at least `duration` more; renews it immediately if it does not.
    ///
    /// Call it before a step that must not be cut off. At most 19.6 s of the default ttl of 30 s are possible, if the store
    /// replies within 90 ms: a lease is given up when a third of its ttl is left, and 1 % of the ttl and the time of the
    /// renewal go off the rest.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
    /// use std::time::Duration;
    ///
    /// # let client = leasehold::Client::connect("memory:").await?;
    /// # async fn pay() {}
    /// let guard = client.mutex("invoices")?.lock().await?;
    /// guard.ensure(Duration::from_secs(10)).await?;
    /// pay().await; // takes less than ten seconds
    /// guard.release().await?;
    /// # Ok::<(), leasehold::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if the lease is lost or ends before, [`ErrorKind::InvalidConfig`] if no renewal makes a lease of
    /// this ttl last that long, [`ErrorKind::Unreachable`] or the store's own error if it could not be renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the lease as it is, renewed or not.
    pub async fn ensure(&self, duration: Duration) -> Result<()> {
        if self.lasts(duration)? {
            return Ok(());
        }
        if self.hold.lease.fixed_end(self.hold.id).is_none() {
            self.hold.renew().await?;
            if self.lasts(duration)? {
                return Ok(());
            }
            if duration > self.hold.lease.lock().lease.longest_renewal() {
                let message = format!("its ttl is too short for {duration:?}; choose a longer one");
                return Err(self.name_error(config::invalid(message)));
            }
        }
        let message = format!("the lease cannot last {duration:?} more; acquire the lock again");
        Err(self.name_error(Error::new(ErrorKind::Lost, message)))
    }

    fn lasts(&self, duration: Duration) -> Result<bool> {
        let now = self.hold.driver.context.clock.now();
        match self.hold.state() {
            State::Lost(cause) => Err(self.hold.lost(cause)),
            // After a pause of the process, only the store knows.
            State::Jeopardy {
                cause: Cause::Paused,
                ..
            } => Ok(false),
            State::Held { until } | State::Jeopardy { until, .. } => {
                Ok(now.until(until) >= duration)
            }
        }
    }

    /// Gives up the minimum hold of the lease, even that of other holds on it, and the delay after a failed run: its
    /// release frees the lock immediately. For a command that was not started.
    #[doc(hidden)]
    pub fn waive_min_hold(&self) {
        self.hold.waive_min_hold();
    }

    /// Releases the lock and waits for the reply.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if the lease was lost before: the work under it was not protected to the end.
    /// Any other error means that the release failed, which changes nothing for the work: it was protected. The release
    /// is repeated in the background, and the lease expires at its deadline.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it has ended, the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        self.hold.release().await
    }

    pub(crate) const fn hold_mut(&mut self) -> &mut Hold {
        &mut self.hold
    }

    /// Names the lock and the store in an error.
    pub(crate) fn name_error(&self, error: Error) -> Error {
        let Hold { driver, lease, .. } = &self.hold;
        driver.context.name_error(error, &lease.key)
    }

    /// What the grant says beside its tokens.
    pub(crate) fn numbering(&self) -> Numbering {
        let share = self.hold.lease.share.as_deref();
        share.copied().unwrap_or_default()
    }

    /// Releases the lock together with others that are released at the same time.
    pub(crate) fn release_with_others(self) -> impl Future<Output = Result<()>> + Send {
        self.hold.release_by(true)
    }

    /// The id of the lease, and its first fencing token.
    pub(crate) fn lease(&self) -> (LeaseId, Token) {
        (self.hold.lease.id, self.hold.lease.first)
    }

    /// Releases the lock with a note, and waits until the store has confirmed both, or the lease has expired.
    pub(crate) async fn complete(self, note: NewNote) -> Result<()> {
        self.hold.complete(note).await
    }

    /// From now on the release of the lease keeps the lock taken until `duration` has passed.
    pub(crate) fn require_min_hold(&self, duration: Duration) {
        self.hold.require_min_hold(duration);
    }

    pub(crate) fn lost_error(&self, cause: Cause) -> Error {
        self.hold.lost(cause)
    }
}

/// Polls a future, and drops it at its next `.await` when a lease is lost.
pub(crate) async fn run_unless_lost<T>(
    state: impl Fn() -> State,
    lost: impl Future<Output = Cause>,
    work: impl Future<Output = T>,
) -> Result<T, Cause> {
    let mut work = pin!(work);
    let mut lost = pin!(lost);
    let outcome = poll_fn(|context| {
        // Checked before each step: after a pause of the process the lease may be lost.
        let before = state();
        if let State::Lost(cause) = before {
            return Poll::Ready(Err(cause));
        }
        if let Poll::Ready(cause) = lost.as_mut().poll(context) {
            return Poll::Ready(Err(cause));
        }
        // Or only the store knows: its reply wakes this future.
        if before.kind() == StateKind::Jeopardy(Cause::Paused) {
            return Poll::Pending;
        }
        let Poll::Ready(value) = work.as_mut().poll(context) else {
            return Poll::Pending;
        };
        Poll::Ready(match state() {
            State::Lost(cause) => Err(cause),
            _ => Ok(value),
        })
    });
    outcome.await
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name())
            .field("lease", &self.lease_id())
            .field("token", &self.token())
            .field("state", &self.state())
            .finish()
    }
}

/// The states of a lease, one after the other. Made by [`Guard::states`], which has an example.
#[derive(Debug)]
pub struct States<'a> {
    hold: &'a Hold,
    last: Option<State>,
}

impl States<'_> {
    /// Waits for the next state: first the state as it is, then each change in kind or cause.
    /// `None` after [`State::Lost`], which is final.
    ///
    /// # Cancel safety
    ///
    /// Dropping it loses no state, but a state that came and went between two calls is not returned.
    pub async fn next(&mut self) -> Option<State> {
        if self.last.is_some_and(|last| last.is_lost()) {
            return None;
        }
        let state = self.hold.state_after(self.last).await;
        self.last = Some(state);
        Some(state)
    }
}
