//! Changes to the file.

use std::time::Duration;

use leasehold_core::{ClientId, Instant, Notice, Op, Outcome, Record, StoreTime, mutex};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::error::Fault;
use super::notify::Outbox;
use super::records;
use crate::store::api::{ClientInfo, Key, Reply, Request};
use crate::{Error, Result};

/// A change, and since when it waits.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) since: Instant,
    pub(super) change: Change,
}

/// What to change, and whom to tell.
#[derive(Debug)]
pub(super) enum Change {
    Apply {
        batch: Vec<Request>,
        reply: oneshot::Sender<Vec<Reply>>,
    },
    RegisterClient {
        client: ClientId,
        info: ClientInfo,
        ttl: Duration,
        reply: oneshot::Sender<Result<()>>,
    },
}

impl Write {
    /// How many operations it is.
    pub(super) fn ops(&self) -> usize {
        match &self.change {
            Change::Apply { batch, .. } => batch.len(),
            Change::RegisterClient { .. } => 1,
        }
    }

    /// Makes the change and answers each of its requests. Only once it is committed are they true,
    /// and what is outbox by then.
    pub(super) fn perform(
        &self,
        db: &Connection,
        now: StoreTime,
        outbox: &mut Outbox<'_>,
    ) -> Result<Vec<Reply>, Fault> {
        match &self.change {
            Change::Apply { batch, .. } => batch
                .iter()
                .map(|request| match answer(db, request, now, outbox) {
                    Err(fault @ Fault::Unreadable(_)) => Ok(Reply::Rejected(
                        Error::from(fault).for_lock(&request.key.name),
                    )),
                    answer => answer,
                })
                .collect(),
            Change::RegisterClient {
                client, info, ttl, ..
            } => {
                records::register_client(db, *client, info, *ttl, now)?;
                Ok(Vec::new())
            }
        }
    }

    /// Tells what [`Write::perform`] answered. If the future that asked was dropped, nobody
    /// listens any more; that is its right.
    pub(super) fn finish(self, replies: Vec<Reply>) {
        match self.change {
            Change::Apply { reply, .. } => {
                let _ = reply.send(replies);
            }
            Change::RegisterClient { reply, .. } => {
                let _ = reply.send(Ok(()));
            }
        }
    }

    /// Tells that it failed. `lost`: what is told of leases, if the store has lost them by it.
    pub(super) fn fail(self, error: &Error, lost: Option<&Error>, undetermined: bool) {
        match self.change {
            Change::Apply { batch, reply } => {
                let failed = |request: &Request| match (lost, request.op) {
                    (Some(lost), Op::Enter { .. } | Op::Renew { .. } | Op::Release { .. }) => {
                        Reply::Rejected(lost.clone())
                    }
                    _ if undetermined => Reply::Unknown(error.clone()),
                    _ => Reply::Rejected(error.clone()),
                };
                let _ = reply.send(batch.iter().map(failed).collect());
            }
            Change::RegisterClient { reply, .. } => {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}

/// Applies one request and notes what is outbox for others.
fn answer(
    db: &Connection,
    request: &Request,
    now: StoreTime,
    outbox: &mut Outbox<'_>,
) -> Result<Reply, Fault> {
    let (key, mut op) = (&request.key, request.op);
    if let Op::Acquire { wait, .. } = &mut op {
        // A client that cannot be notified must not delay those behind it in the queue.
        *wait &= !outbox.is_unreachable();
    }
    let outcome = apply(db, key, &op, now, |notice| outbox.add(key, notice))?;
    if let Outcome::Refused { place: Some(_), .. } = outcome {
        outbox.add_waiter();
    }
    Ok(Reply::Applied { outcome, now })
}

/// Applies one operation inside a transaction, by the rule.
pub(super) fn apply(
    db: &Connection,
    key: &Key,
    op: &Op,
    now: StoreTime,
    tell: impl FnMut(&Notice) -> bool,
) -> Result<Outcome, Fault> {
    let before = match records::load(db, key) {
        // An operator who frees a lock by force fixes a damaged record: the clock keeps the tokens
        // growing.
        Err(Fault::Unreadable(_)) if *op == Op::Revoke => None,
        loaded => Some(loaded?),
    };
    let mut record = match &before {
        Some(before) => before.record.clone(),
        None => Record::default(),
    };
    let outcome = mutex::apply(&mut record, op, now, tell);
    if before.as_ref().map(|before| &before.record) != Some(&record) {
        records::save(db, key, before.as_ref(), &record)?;
    }
    Ok(outcome)
}
