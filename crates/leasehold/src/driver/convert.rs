//! Converts what a lease holds: an upgrade, a downgrade, or another number of permits.
//!
//! The protocol is [`leasehold_core::conversion`]. Here is its host.

use std::sync::Arc;

use leasehold_core::conversion::{ConvertAction, ConvertReply};
use leasehold_core::{Access, Cause, Claim, Conversion, LeaseId, Outcome, Token};
use tokio::sync::Notify;

use super::Driver;
use super::active_lease::Inner;
use super::hold::Hold;
use crate::store::{Reply, unexpected};
use crate::{Error, Result};

impl Hold {
    /// Converts what its lease holds; this hold is the only one on it. `false`: there is not enough free, and the
    /// caller does not wait: it holds what it has.
    ///
    /// If the future is dropped, the lease holds one or the other, and may still be converted.
    pub(crate) async fn convert(&mut self, claim: Claim, wait: bool) -> Result<bool> {
        let (driver, lease) = (Arc::clone(&self.driver), Arc::clone(&self.lease));
        if claim == Claim::Access(Access::Write) {
            driver.shares.end_window(&lease.key);
        }
        let clock = &*driver.context.clock;
        let mut converting = Converting::begin(&driver, lease.id, self.token);
        let mut machine = Conversion::new(lease.id, self.token, claim, wait, clock.now());
        loop {
            let (state, now) = (self.state(), clock.now());
            let ttl = lease.lock().lease.ttl(now);
            let op = match machine.poll(state, ttl, now) {
                ConvertAction::Send(op) => op,
                ConvertAction::Wait(until) => {
                    tokio::select! {
                        biased;
                        () = converting.notify.notified() => machine.wake(clock.now()),
                        () = clock.sleep_until(until) => {}
                        _ = self.state_after(Some(state)) => {}
                    }
                    continue;
                }
                ConvertAction::Lost(cause) => return Err(self.lost(cause)),
            };
            let sent = clock.now();
            let reply = driver.batcher.submit(lease.request(op)).await;
            let now = clock.now();
            let reply = match reply {
                Reply::Applied { outcome, .. } => match outcome {
                    Outcome::Granted { first, .. } => {
                        converting.first = first;
                        self.token = first;
                        let confirm = |inner: &mut Inner| inner.lease.confirmed(sent, ttl, now);
                        lease.change(now, confirm);
                        driver.renewer.revisit(&lease);
                        return Ok(true);
                    }
                    Outcome::Refused {
                        queue_position: None,
                        ..
                    } if !wait => return Ok(false),
                    // No notice would reach this client at this moment.
                    Outcome::Refused {
                        queue_position: None,
                        ..
                    } => ConvertReply::Failed,
                    Outcome::Refused { time_left, .. } => {
                        ConvertReply::Waits(time_left.unwrap_or_default())
                    }
                    outcome @ Outcome::Lost(_) => {
                        lease.lose(Cause::of(&outcome), now);
                        continue;
                    }
                    other => return Err(self.named(unexpected(&format!("{other:?}")))),
                },
                Reply::Rejected(error) | Reply::Unknown(error) if error.is_transient() => {
                    ConvertReply::Failed
                }
                Reply::Rejected(error) | Reply::Unknown(error) => return Err(self.named(error)),
            };
            machine.handle_reply(reply, ttl, now);
        }
    }

    fn named(&self, error: Error) -> Error {
        self.driver.context.name_error(error, &self.lease.key)
    }
}

/// A conversion, as long as notices are for it.
struct Converting {
    driver: Arc<Driver>,
    lease: LeaseId,
    /// The first of the tokens of the lease.
    first: Token,
    notify: Arc<Notify>,
}

impl Converting {
    fn begin(driver: &Arc<Driver>, lease: LeaseId, first: Token) -> Self {
        Self {
            driver: Arc::clone(driver),
            lease,
            first,
            notify: driver.shares.begin_conversion(lease),
        }
    }
}

impl Drop for Converting {
    fn drop(&mut self) {
        self.driver.shares.end_conversion(self.lease, self.first);
    }
}
