//! What a holder has in its hand.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use leasehold_core::{Cause, Instant, LeaseId, State, Token};
use tokio_util::sync::CancellationToken;

use crate::driver::lease::hold::{Hold, Loss};
use crate::{Error, ErrorKind, Result};

/// A lock that is held, until it is released, dropped or lost.
///
/// Dropping it releases the lock in the background; [`Guard::release`] waits for that and says
/// whether the lock was held to the end. A guard that is leaked keeps its lease renewed.
///
/// A lease can be lost while the guard lives. [`Guard::state`] tells what it is worth at this
/// instant, [`Guard::lost`] wakes up when it is over, and [`Guard::token`] lets the protected
/// resource refuse a holder that did not notice.
#[must_use = "a guard that is dropped at once releases the lock at once"]
pub struct Guard {
    hold: Hold,
    loss: OnceLock<Loss>,
}

impl Guard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self {
            hold,
            loss: OnceLock::new(),
        }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &str {
        self.hold.lease.key.name.as_str()
    }

    /// The fencing token: larger than that of every earlier grant under this name.
    ///
    /// Send it with every write to the protected resource and let the resource refuse a token
    /// smaller than the largest it has seen. Holds that one owner entered over one lease have the same
    /// token.
    #[must_use]
    pub fn token(&self) -> Token {
        self.hold.token
    }

    /// The id of the lease: one grant of the store, and never another. Tasks of this process that hand
    /// it from one to the next hold it one after the other, each with a larger [`Guard::token`].
    #[must_use]
    pub fn lease_id(&self) -> LeaseId {
        self.hold.lease.id
    }

    /// The local instant until which the store is sure to keep the lease, as known now. It moves on
    /// with every renewal.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.hold.deadline()
    }

    /// The time until [`Guard::deadline`].
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.hold.driver.context.clock.now().until(self.deadline())
    }

    /// What the lease is worth at this instant, by a clock that counts suspend.
    ///
    /// True without any answer from the store: a process that was stopped for longer than its lease
    /// reads [`State::Lost`] here before it does anything else.
    #[must_use]
    pub fn state(&self) -> State {
        self.hold.state()
    }

    /// The changes of [`Guard::state`], beginning with the state as it is.
    #[must_use]
    pub fn states(&self) -> States<'_> {
        States {
            hold: &self.hold,
            last: None,
        }
    }

    /// Waits until the lease is lost, and says why.
    ///
    /// For a renewed lease that is a third of its ttl *before* the store can pass the lock on, unless
    /// the store itself says that it has. Use the time to stop.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping it.
    pub async fn lost(&self) -> Cause {
        let mut states = self.states();
        loop {
            if let Some(State::Lost(cause)) = states.next().await {
                return cause;
            }
        }
    }

    /// A token that is cancelled when the lease is lost, for code that takes one.
    ///
    /// It is not cancelled by releasing or dropping the guard.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        let loss = self.loss.get_or_init(|| self.hold.watch_loss());
        loss.token.clone()
    }

    /// Makes sure that the lease lasts for at least `span` more; renews it at once if it does not.
    ///
    /// Call it before a step that must not be cut off. For a renewed lease `span` counts to the point
    /// where the lease would be given up, so at most two thirds of the ttl can be had.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if the lease is lost or cannot last that long, [`ErrorKind::Unreachable`]
    /// or the store's own error if it could not be renewed.
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the lease as it is, renewed or not.
    pub async fn ensure(&self, span: Duration) -> Result<()> {
        if self.lasts(span)? {
            return Ok(());
        }
        if self.hold.lease.fixed_end(self.hold.id).is_none() {
            self.hold.renew().await?;
            if self.lasts(span)? {
                return Ok(());
            }
        }
        let error = Error::new(
            ErrorKind::Lost,
            format!("the lease cannot last {span:?} more; take the lock with a longer ttl"),
        );
        Err(self
            .hold
            .driver
            .context
            .name_error(error, &self.hold.lease.key))
    }

    fn lasts(&self, span: Duration) -> Result<bool> {
        let now = self.hold.driver.context.clock.now();
        match self.hold.state() {
            State::Lost(cause) => Err(self.hold.lost(cause)),
            // After a pause only the store knows.
            State::Jeopardy {
                cause: Cause::Paused,
                ..
            } => Ok(false),
            State::Held { until } | State::Jeopardy { until, .. } => Ok(now.until(until) >= span),
        }
    }

    /// Releases the lock and waits until the store knows.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Lost`] if the lease was lost before: what was done under it was not protected to
    /// the end. Any other error says that the store could not be told; it is told in the background,
    /// and the lease ends by itself at its deadline.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it has ended, the release goes on in the background.
    pub async fn release(self) -> Result<()> {
        self.hold.release().await
    }

    pub(crate) fn lost_error(&self, cause: Cause) -> Error {
        self.hold.lost(cause)
    }
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

/// The states of a lease, one after the other. Made by [`Guard::states`].
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
    /// No state is lost by dropping it, but states that came and went unseen are not told.
    pub async fn next(&mut self) -> Option<State> {
        if self.last.is_some_and(|last| last.is_lost()) {
            return None;
        }
        let state = self.hold.state_after(self.last).await;
        self.last = Some(state);
        Some(state)
    }
}
