//! Completes a run: writes the note of a hold, with the release of its lease where that ends.

use leasehold_core::{Cause, NewNote, Op, Outcome, State, contention};

use super::hold::{Hold, PostedRelease};
use super::primitives::report;
use super::release;
use crate::Result;
use crate::store::{Reply, Request};

impl Hold {
    /// Leaves the lease with a note, and waits until the store has confirmed both, or cannot any more. The store repeats
    /// its reply to a repeated request, so that a lost one is harmless. Other holds keep the lease: then the note is
    /// written first.
    pub(crate) async fn complete(mut self, note: NewNote) -> Result<()> {
        if let State::Lost(cause) = self.state() {
            return Err(self.lost(cause));
        }
        let expires = self.expires();
        let Some((before, posted)) = self.leave(Some(&note), true) else {
            self.write_note(&note).await?;
            if let Err(error) = self.release().await {
                report(|| tracing::debug!(%error, "a hold could not be left after its note"));
            }
            return Ok(());
        };
        let Some(PostedRelease {
            release,
            reply: Some(reply),
        }) = posted
        else {
            return Err(self.lost(Cause::Released));
        };
        if let State::Lost(cause) = before {
            self.finish_release(release, reply, expires);
            return Err(self.lost(cause));
        }
        let late = self.late_release(&release);
        let reply = release::confirmed(&self.driver, release, reply, expires, late).await;
        // No renewal of this lease is sent after this returns.
        self.lease.no_renewal().await;
        match reply.outcome() {
            Ok(Outcome::Released) => Ok(()),
            Ok(outcome) => Err(self.lost(Cause::of(outcome))),
            // It was repeated until the lease had expired.
            Err(error) if error.is_transient() => Err(self.lost(Cause::Unreachable)),
            Err(error) => {
                let error = error.clone();
                Err(self.driver.context.name_error(error, &self.lease.key))
            }
        }
    }

    /// Writes a note under the lease. Attempts are repeated while this hold lasts. After a loss, a release shows whether
    /// one without a reply was applied: it has the same reply as the release that writes the note.
    pub(crate) async fn write_note(&self, note: &NewNote) -> Result<()> {
        let (driver, lease) = (&self.driver, &self.lease);
        let clock = &*driver.context.clock;
        let begun = clock.now();
        let (mut is_unknown, mut lost) = (false, None);
        loop {
            let state = self.state();
            if let (State::Lost(cause), None) = (state, lost) {
                // If other holds keep the lease, it must not be released.
                is_unknown &= lease.lock().lease.state(clock.now()).is_lost();
                lost = Some((cause, self.expires()));
            }
            let (id, attempt) = (lease.id, note.clone());
            let op = match lost {
                None => Op::WriteNote {
                    lease: id,
                    note: attempt,
                },
                Some((_, expires)) if is_unknown && clock.now() < expires => Op::Release {
                    lease: id,
                    rest: None,
                    note: Some(attempt),
                },
                Some((cause, _)) => return Err(self.lost(cause)),
            };
            let request = Request::new(lease.key.clone(), op);
            match driver.batcher.submit(request).await {
                Reply::Applied {
                    outcome: Outcome::Stored | Outcome::Outdated | Outcome::Released,
                    ..
                } => {
                    driver.notify_completed(&lease.key, &note.slot);
                    return Ok(());
                }
                Reply::Applied { outcome, .. } => {
                    if let Some((cause, _)) = lost {
                        return Err(self.lost(cause));
                    }
                    lease.lose(Cause::of(&outcome), clock.now());
                    continue;
                }
                Reply::Rejected(error) if error.is_transient() => {}
                Reply::Unknown(error) if error.is_transient() => is_unknown = true,
                Reply::Rejected(error) | Reply::Unknown(error) => {
                    return Err(driver.context.name_error(error, &lease.key));
                }
            }
            let now = clock.now();
            let next = now.after(contention::retry_after(now.since(begun)));
            tokio::select! {
                () = clock.sleep_until(next) => {}
                _ = self.state_after(Some(state)) => {}
            }
        }
    }
}
