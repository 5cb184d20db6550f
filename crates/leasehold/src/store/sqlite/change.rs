//! Changes to the file.

use std::time::Duration;

use leasehold_core::{ClientId, Instant, Op, StoreTime, mutex};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::fault::Fault;
use super::records;
use crate::store::{About, Reply, Request};
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
    Announce {
        client: ClientId,
        about: About,
        ttl: Duration,
        reply: oneshot::Sender<Result<()>>,
    },
}

impl Write {
    /// How many operations it is.
    pub(super) fn ops(&self) -> usize {
        match &self.change {
            Change::Apply { batch, .. } => batch.len(),
            Change::Announce { .. } => 1,
        }
    }

    /// Makes the change and answers each of its requests. Only once it is committed are they true.
    pub(super) fn perform(&self, db: &Connection, now: StoreTime) -> Result<Vec<Reply>, Fault> {
        match &self.change {
            Change::Apply { batch, .. } => batch
                .iter()
                .map(|request| match apply(db, request, now) {
                    Err(fault @ Fault::Unreadable(_)) => Ok(Reply::Rejected(
                        Error::from(fault).for_lock(&request.key.name),
                    )),
                    answer => answer,
                })
                .collect(),
            Change::Announce {
                client, about, ttl, ..
            } => {
                records::announce(db, *client, about, *ttl, now)?;
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
            Change::Announce { reply, .. } => {
                let _ = reply.send(Ok(()));
            }
        }
    }

    /// Tells that it failed.
    pub(super) fn fail(self, error: &Error, undetermined: bool) {
        match self.change {
            Change::Apply { batch, reply } => {
                let failed = if undetermined {
                    Reply::Unknown(error.clone())
                } else {
                    Reply::Rejected(error.clone())
                };
                let _ = reply.send(vec![failed; batch.len()]);
            }
            Change::Announce { reply, .. } => {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}

/// Applies one request inside a transaction.
pub(super) fn apply(db: &Connection, request: &Request, now: StoreTime) -> Result<Reply, Fault> {
    let before = match records::load(db, &request.key) {
        // An operator who frees a lock by force mends a damaged record: the clock keeps the tokens
        // growing.
        Err(Fault::Unreadable(_)) if request.op == Op::Revoke => None,
        record => Some(record?),
    };
    let mut record = before.clone().unwrap_or_default();
    let mut op = request.op;
    // No queue yet.
    if let Op::Acquire { wait, .. } = &mut op {
        *wait = false;
    }
    let outcome = mutex::apply(&mut record, &op, now, |_| false);
    if before.as_ref() != Some(&record) {
        records::save(db, &request.key, &record)?;
    }
    Ok(Reply::Applied { outcome, now })
}
