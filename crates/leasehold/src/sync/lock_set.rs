//! Several locks at once: all or none.

use std::future::poll_fn;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_core::{Cause, Instant, State};

use super::mutex::{LockRequest, Mutex, refused_without_limit};
#[cfg(doc)]
use crate::ErrorKind;
use crate::driver::Driver;
use crate::driver::acquire::{Wait, several};
use crate::guard::run_unless_lost;
use crate::{Error, Guard, Result, config};

/// Several locks that are acquired at once. Made by [`Client::all`](crate::Client::all), which has an example.
///
/// An [`Owner`](crate::Owner) has no effect: a task that holds one of the locks and waits for the set waits for itself.
#[derive(Clone, Debug)]
pub struct LockSet {
    driver: Arc<Driver>,
    /// In the order of their names, each once.
    requests: Vec<LockRequest>,
}

impl LockSet {
    pub(crate) fn new(driver: &Arc<Driver>, requests: Vec<LockRequest>) -> Result<Self> {
        let mut requests = requests;
        requests.sort_by(|a, b| a.mutex.key.cmp(&b.mutex.key));
        let is_same = |a: &Mutex, b: &Mutex| a.key == b.key && a.options == b.options;
        requests.dedup_by(|a, b| is_same(&a.mutex, &b.mutex));
        if requests.is_empty() {
            return Err(config::invalid("a set of locks needs at least one"));
        }
        let is_foreign = |it: &&LockRequest| !Arc::ptr_eq(&it.mutex.driver, driver);
        if let Some(foreign) = requests.iter().find(is_foreign) {
            let message = "a set of locks has the locks of one client, and this one is of another";
            return Err(foreign.mutex.name_error(config::invalid(message)));
        }
        let mut pairs = requests.iter().zip(requests.iter().skip(1));
        if let Some((twice, _)) = pairs.find(|(a, b)| a.mutex.key == b.mutex.key) {
            let message = "a set of locks has a lock once; this one is to be held in two ways";
            return Err(twice.mutex.name_error(config::invalid(message)));
        }
        Ok(Self {
            driver: Arc::clone(driver),
            requests,
        })
    }

    /// Acquires all locks, and waits for them without a limit.
    ///
    /// If none of them is held elsewhere, this takes one round trip, or one for each server of a cluster. Otherwise it waits
    /// for them in the order of their names, holding those before. So sets never wait for each other in a circle.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock`]. No lock is held then.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the future holds nothing. What was granted is released in the background.
    pub async fn lock(&self) -> Result<GuardSet> {
        match self.acquire(Wait::Forever).await? {
            Some(guards) => Ok(guards),
            None => Err(refused_without_limit()),
        }
    }

    /// Acquires all locks if they are free. `None`: one of them is not, and none is held.
    ///
    /// # Errors
    ///
    /// As [`Mutex::try_lock`]. No lock is held then.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Option<GuardSet>> {
        self.acquire(Wait::No).await
    }

    /// Acquires all locks, and waits for them no longer than `timeout` in all. `None`: one of them was not free in that
    /// time, and none is held.
    ///
    /// # Errors
    ///
    /// As [`Mutex::lock_timeout`]. No lock is held then.
    ///
    /// # Cancel safety
    ///
    /// As [`lock`](Self::lock).
    pub async fn lock_timeout(&self, timeout: Duration) -> Result<Option<GuardSet>> {
        let first = self.requests.first();
        let wait = first.map_or(Wait::No, |first| first.mutex.wait_for(timeout));
        self.acquire(wait).await
    }

    async fn acquire(&self, wait: Wait) -> Result<Option<GuardSet>> {
        let requests = self.requests.iter().map(|request| request.request(wait));
        let requests: Vec<_> = requests.collect();
        let Some(holds) = several::acquire(&self.driver, &requests).await? else {
            return Ok(None);
        };
        let granted = || self.requests.iter().zip(&holds);
        #[cfg(feature = "watchdog")]
        for (request, hold) in granted() {
            request.mutex.watched(hold).await?;
        }
        for (request, hold) in granted() {
            request.mutex.begin_min_hold(hold);
        }
        let guards = holds.into_iter().map(Guard::new).collect();
        Ok(Some(GuardSet { guards }))
    }
}

/// Several locks that are held, in the order of their names, until they are released, dropped or lost.
///
/// It derefs to a slice of [`Guard`]s, each with the token of its lock. The loss of one lock is the loss of all: see
/// [`state`](Self::state). Dropping it releases all locks in the background.
#[derive(Debug)]
#[must_use = "bind it to `_guards`: `let _` drops it, which releases the locks"]
pub struct GuardSet {
    guards: Vec<Guard>,
}

impl GuardSet {
    /// What the leases are worth together at this instant: the worst of their states, until the first of them ends.
    #[must_use]
    pub fn state(&self) -> State {
        let states = self.guards.iter().map(Guard::state);
        let worst = states.min_by_key(|state| match state {
            State::Lost(_) => (0, Instant::default()),
            State::Jeopardy { until, .. } => (1, *until),
            State::Held { until } => (2, *until),
        });
        worst.unwrap_or(State::Lost(Cause::Released))
    }

    /// Waits until one of the leases is lost, and returns the cause.
    ///
    /// # Cancel safety
    ///
    /// Changes nothing.
    pub async fn lost(&self) -> Cause {
        let mut waiting: Vec<_> = self.guards.iter().map(|it| Box::pin(it.lost())).collect();
        poll_fn(|context| {
            let mut polled = waiting.iter_mut().map(|it| it.as_mut().poll(context));
            polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Polls a future under the locks, and drops it at its next `.await` when one of the leases is lost. See
    /// [`Guard::run`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if a lease was lost before the work had ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the work.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let outcome = run_unless_lost(|| self.state(), self.lost(), work).await;
        outcome.map_err(|cause| self.lost_error(cause))
    }

    /// Makes sure that each lease lasts for at least `duration` more. See [`Guard::ensure`].
    ///
    /// # Errors
    ///
    /// As [`Guard::ensure`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::ensure`].
    pub async fn ensure(&self, duration: Duration) -> Result<()> {
        let ensured = self.guards.iter().map(|guard| guard.ensure(duration));
        join(ensured).await.into_iter().collect()
    }

    /// Releases all locks together and waits for the replies.
    ///
    /// # Errors
    ///
    /// As [`Guard::release`], for the first of the locks that has one. The others are released.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it has ended, the releases go on in the background.
    pub async fn release(self) -> Result<()> {
        let released = self.guards.into_iter().map(Guard::release_with_others);
        join(released).await.into_iter().collect()
    }

    fn lost_error(&self, cause: Cause) -> Error {
        let is_lost = |guard: &&Guard| guard.state().is_lost();
        let lost = self.guards.iter().find(is_lost);
        match lost.or_else(|| self.guards.first()) {
            Some(guard) => guard.lost_error(cause),
            None => config::invalid("a set of locks needs at least one"),
        }
    }
}

impl Deref for GuardSet {
    type Target = [Guard];

    fn deref(&self) -> &[Guard] {
        &self.guards
    }
}

/// A future, and what it has returned.
type Joined<F> = (Pin<Box<F>>, Option<<F as Future>::Output>);

/// Polls futures side by side until all have ended.
async fn join<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut joined: Vec<Joined<F>> = futures.map(|future| (Box::pin(future), None)).collect();
    poll_fn(|context| {
        for (future, output) in &mut joined {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        match joined.iter().all(|(_, output)| output.is_some()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    joined
        .into_iter()
        .filter_map(|(_, output)| output)
        .collect()
}
