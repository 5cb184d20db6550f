//! Changes to the file.

use std::time::Duration;

use leasehold_core::{ClientId, Instant, Notice, Op, Outcome, StoreTime, mutex};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::error::Fault;
use super::notify::Outbox;
use super::records;
use crate::store::api::{ClientInfo, Reply, Request};
use crate::{Error, Result};

/// A change, when it was sent, and the channel for its result.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) since: Instant,
    pub(super) change: Change,
    pub(super) reply: oneshot::Sender<Result<Vec<Reply>>>,
}

#[derive(Debug)]
pub(super) enum Change {
    Apply(Vec<Request>),
    /// Has no replies.
    RegisterClient(ClientId, ClientInfo, Duration),
}

impl Write {
    /// The number of its operations.
    pub(super) fn ops(&self) -> usize {
        match &self.change {
            Change::Apply(batch) => batch.len(),
            Change::RegisterClient(..) => 1,
        }
    }

    /// Makes the change. The replies and the notifications in the outbox are valid once it is committed.
    pub(super) fn perform(
        &self,
        db: &Connection,
        now: StoreTime,
        outbox: &mut Outbox<'_>,
    ) -> Result<Vec<Reply>, Fault> {
        match &self.change {
            Change::Apply(batch) => batch
                .iter()
                .map(|request| match apply(db, request, now, outbox) {
                    Err(fault @ Fault::Unreadable(_)) => Ok(Reply::Rejected(
                        Error::from(fault).for_lock(&request.key.name),
                    )),
                    result => result,
                })
                .collect(),
            Change::RegisterClient(client, info, ttl) => {
                records::register_client(db, *client, info, *ttl, now)?;
                Ok(Vec::new())
            }
        }
    }

    /// Sends the result of [`Write::perform`].
    pub(super) fn finish(self, replies: Vec<Reply>) {
        // The future that waits for it may have been dropped.
        let _ = self.reply.send(Ok(replies));
    }

    /// Sends the failure. `lost` is the reply to operations of holders, if the store has lost their leases.
    pub(super) fn fail(self, error: &Error, lost: Option<&Error>, undetermined: bool) {
        let failed = |request: &Request| match (lost, request.op) {
            (
                Some(lost),
                Op::Enter { .. }
                | Op::Renew { .. }
                | Op::Release { .. }
                | Op::ReleaseAfter { .. },
            ) => Reply::Rejected(lost.clone()),
            _ if undetermined => Reply::Unknown(error.clone()),
            _ => Reply::Rejected(error.clone()),
        };
        let _ = self.reply.send(match &self.change {
            Change::Apply(batch) => Ok(batch.iter().map(failed).collect()),
            Change::RegisterClient(..) => Err(error.clone()),
        });
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
