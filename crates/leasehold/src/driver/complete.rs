//! Completes a run: writes the note of a hold, with the release of its lease where that ends.

use std::sync::Arc;

use leasehold_core::note_writer::{NoteAction, NoteReply};
use leasehold_core::{Cause, NewNote, NoteWriter, Outcome, State};

use super::hold::{EndedHold, Hold, PostedRelease};
use super::primitives::report;
use super::release;
use crate::Result;
use crate::store::{Reply, Request};

impl Hold {
    /// Leaves the lease with a note, and waits until the store has confirmed both, or no longer can. The store repeats
    /// its reply to a repeated request, so that a lost one is harmless. Other holds keep the lease: then the note is
    /// written first.
    pub(crate) async fn complete(mut self, note: NewNote) -> Result<()> {
        if let State::Lost(cause) = self.state() {
            return Err(self.lost(cause));
        }
        let driver = Arc::clone(&self.driver);
        let call = driver.releases.call();
        let Some(EndedHold { before, release }) = self.leave_last(&note) else {
            drop(call);
            self.write_note(&note).await?;
            if let Err(error) = self.release().await {
                report(|| tracing::debug!(%error, "a hold could not be left after its note"));
            }
            return Ok(());
        };
        let Some(PostedRelease {
            release,
            expires,
            reply: Some(reply),
        }) = release
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

    /// Writes a note under the lease. The protocol is [`leasehold_core::note_writer`].
    pub(crate) async fn write_note(&self, note: &NewNote) -> Result<()> {
        let (driver, lease) = (&self.driver, &self.lease);
        let clock = &*driver.context.clock;
        let mut writer = NoteWriter::new(lease.id, note.clone(), clock.now());
        loop {
            let (state, now) = (self.state(), clock.now());
            let lease_state = lease.lock().lease.state(now);
            let op = match writer.poll((state, lease_state), self.expires(), now) {
                NoteAction::Send(op) => op,
                NoteAction::Wait(until) => {
                    tokio::select! {
                        () = clock.sleep_until(until) => {}
                        _ = self.state_after(Some(state)) => {}
                    }
                    continue;
                }
                NoteAction::Lost(cause) => return Err(self.lost(cause)),
            };
            let request = Request::new(lease.key.clone(), op);
            let reply = match driver.batcher.submit(request).await {
                Reply::Applied {
                    outcome: Outcome::Stored | Outcome::Outdated | Outcome::Released,
                    ..
                } => {
                    driver.notify_completed(&lease.key, &note.slot);
                    return Ok(());
                }
                Reply::Applied { outcome, .. } => {
                    lease.lose(Cause::of(&outcome), clock.now());
                    NoteReply::Lost
                }
                Reply::Rejected(error) if error.is_transient() => NoteReply::Rejected,
                Reply::Unknown(error) if error.is_transient() => NoteReply::Unknown,
                Reply::Rejected(error) | Reply::Unknown(error) => {
                    return Err(driver.context.name_error(error, &lease.key));
                }
            };
            writer.handle_reply(reply, clock.now());
        }
    }
}
