//! Changes to the file.

use std::time::Duration;

use leasehold_core::{
    Annotation, AnnotationKind, Arrival, ClientId, Instant, LatchStatus, Loss, Notice, Op, Outcome,
    StoreTime, mutex,
};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::error::Fault;
use super::notify::Outbox;
use super::{annotations, latches, observers, records, revocations};
use crate::store::api::{ClientInfo, Key, Reply, Request, latch_refused, used_as_latch};
use crate::store::observers::visible;
use crate::{Error, Result};

/// The channel for the result of a command.
pub(super) type Sender<T> = oneshot::Sender<Result<T>>;

/// A change, and when it was sent.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) since: Instant,
    pub(super) change: Change,
}

/// A change, and the channel for its result.
#[derive(Debug)]
pub(super) enum Change {
    Apply {
        batch: Vec<Request>,
        reply: Sender<Vec<Reply>>,
    },
    RegisterClient {
        client: ClientId,
        info: ClientInfo,
        ttl: Duration,
        reply: Sender<()>,
    },
    Annotate {
        key: Key,
        kind: AnnotationKind,
        annotation: Annotation,
        keep: Duration,
        reply: Sender<Result<(), Loss>>,
    },
    RemoveAnnotation {
        key: Key,
        kind: AnnotationKind,
        reply: Sender<bool>,
    },
    Arrive {
        key: Key,
        arrival: Arrival,
        reply: Sender<LatchStatus>,
    },
    ResetLatch {
        key: Key,
        reply: Sender<bool>,
    },
    /// Registers a client that observes a name.
    RegisterObserver {
        key: Key,
        client: ClientId,
        reply: Sender<()>,
    },
}

/// The result of a change, valid once it is committed.
#[derive(Debug)]
pub(super) enum Changed {
    Applied(Vec<Reply>),
    Registered,
    Annotated(Result<Result<(), Loss>>),
    Removed(bool),
    Arrived(Result<LatchStatus>),
    Reset(Result<bool>),
}

impl Write {
    /// The number of its operations.
    pub(super) fn ops(&self) -> usize {
        match &self.change {
            Change::Apply { batch, .. } => batch.len(),
            _ => 1,
        }
    }

    /// Makes the change. The result and the notifications in the outbox are valid once it is committed.
    pub(super) fn perform(
        &self,
        db: &Connection,
        now: StoreTime,
        outbox: &mut Outbox<'_>,
    ) -> Result<Changed, Fault> {
        match &self.change {
            Change::Apply { batch, .. } => {
                let replies = batch.iter().map(|request| {
                    let applied = readable(apply(db, request, now, outbox), &request.key)?;
                    Ok(applied.unwrap_or_else(Reply::Rejected))
                });
                replies.collect::<Result<_, Fault>>().map(Changed::Applied)
            }
            Change::RegisterClient {
                client, info, ttl, ..
            } => {
                records::register_client(db, *client, info, *ttl, now)?;
                Ok(Changed::Registered)
            }
            Change::Annotate {
                key,
                kind,
                annotation,
                keep,
                ..
            } => {
                let annotated = match latches::is_kept(db, key, now)? {
                    true => Err(used_as_latch()),
                    false => {
                        let stored = annotations::annotate(db, key, kind, annotation, *keep, now);
                        readable(stored, key)?
                    }
                };
                if let Ok(Ok(())) = annotated {
                    observers::notify(db, key, now, outbox)?;
                }
                Ok(Changed::Annotated(annotated))
            }
            Change::RemoveAnnotation { key, kind, .. } => {
                let removed = annotations::remove(db, key, kind, now)?;
                if removed {
                    observers::notify(db, key, now, outbox)?;
                }
                Ok(Changed::Removed(removed))
            }
            Change::Arrive { key, arrival, .. } => {
                let arrived = readable(latches::arrive(db, key, arrival, now), key)?;
                if let Ok((_, true)) = arrived {
                    observers::notify(db, key, now, outbox)?;
                }
                Ok(Changed::Arrived(arrived.and_then(|(status, _)| status)))
            }
            Change::ResetLatch { key, .. } => {
                let reset = readable(latches::reset(db, key, now), key)?;
                if let Ok(Ok(true)) = reset {
                    observers::notify(db, key, now, outbox)?;
                }
                Ok(Changed::Reset(
                    reset.and_then(|reset| reset.map_err(latch_refused)),
                ))
            }
            Change::RegisterObserver { key, client, .. } => {
                observers::register(db, key, *client, now, outbox)?;
                Ok(Changed::Registered)
            }
        }
    }

    /// Sends the result of [`Write::perform`]. A future that waits for it may have been dropped.
    pub(super) fn finish(self, changed: Changed) {
        match (self.change, changed) {
            (Change::Apply { reply, .. }, Changed::Applied(replies)) => {
                let _ = reply.send(Ok(replies));
            }
            (Change::Annotate { reply, .. }, Changed::Annotated(annotated)) => {
                let _ = reply.send(annotated);
            }
            (Change::RemoveAnnotation { reply, .. }, Changed::Removed(removed)) => {
                let _ = reply.send(Ok(removed));
            }
            (Change::Arrive { reply, .. }, Changed::Arrived(arrived)) => {
                let _ = reply.send(arrived);
            }
            (Change::ResetLatch { reply, .. }, Changed::Reset(reset)) => {
                let _ = reply.send(reset);
            }
            (
                Change::RegisterClient { reply, .. } | Change::RegisterObserver { reply, .. },
                Changed::Registered,
            ) => {
                let _ = reply.send(Ok(()));
            }
            // No change has the result of another one.
            _ => {}
        }
    }

    /// Sends the failure. `lost` is the reply to operations of holders, if the store has lost their leases.
    pub(super) fn fail(self, error: &Error, lost: Option<&Error>, undetermined: bool) {
        let failed = |request: &Request| match (lost, request.op) {
            (Some(lost), Op::Renew { .. } | Op::Release { .. }) => Reply::Rejected(lost.clone()),
            _ if undetermined => Reply::Unknown(error.clone()),
            _ => Reply::Rejected(error.clone()),
        };
        match self.change {
            Change::Apply { batch, reply } => {
                let _ = reply.send(Ok(batch.iter().map(failed).collect()));
            }
            Change::Annotate { reply, .. } => {
                let _ = reply.send(Err(lost.unwrap_or(error).clone()));
            }
            Change::RemoveAnnotation { reply, .. } | Change::ResetLatch { reply, .. } => {
                let _ = reply.send(Err(error.clone()));
            }
            Change::Arrive { reply, .. } => {
                let _ = reply.send(Err(error.clone()));
            }
            Change::RegisterClient { reply, .. } | Change::RegisterObserver { reply, .. } => {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}

/// A record that cannot be read is the error of its lock, and no fault of the transaction.
fn readable<T>(result: Result<T, Fault>, key: &Key) -> Result<Result<T>, Fault> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(fault @ Fault::Unreadable(_)) => Ok(Err(Error::from(fault).for_lock(&key.name))),
        Err(fault) => Err(fault),
    }
}

/// Applies one request by the rule, inside a transaction, and adds its notifications to the outbox.
fn apply(
    db: &Connection,
    request: &Request,
    now: StoreTime,
    outbox: &mut Outbox<'_>,
) -> Result<Reply, Fault> {
    let (key, mut op) = (&request.key, request.op);
    if latches::is_kept(db, key, now)? {
        return Ok(Reply::Rejected(used_as_latch().for_lock(&key.name)));
    }
    if let Op::Acquire { wait, .. } = &mut op {
        // A client that cannot be notified must not delay those behind it in the queue.
        *wait &= !outbox.is_unreachable();
    }
    let before = match records::load(db, key) {
        // A forced release repairs a damaged record: tokens keep growing by the clock.
        Err(Fault::Unreadable(_)) if op == Op::Revoke => None,
        loaded => Some(loaded?),
    };
    let loaded = before.as_ref().map(|before| &before.record);
    let mut record = loaded.cloned().unwrap_or_default();
    let notify = |notice: &Notice| outbox.add(key, notice);
    let outcome = mutex::apply(&mut record, &op, now, notify);
    if loaded != Some(&record) {
        records::save(db, key, before.as_ref(), &record)?;
    }
    if let Outcome::Revoked { lease: Some(lease) } = outcome {
        revocations::save(db, key, lease, now)?;
    }
    if loaded.map(|before| visible(before, now)) != Some(visible(&record, now)) {
        observers::notify(db, key, now, outbox)?;
    }
    let queued = matches!(
        outcome,
        Outcome::Refused {
            queue_position: Some(_),
            ..
        }
    );
    if queued {
        outbox.add_waiter();
    }
    let now = Some(now);
    Ok(Reply::Applied { outcome, now })
}
