//! Changes to the file.

use std::borrow::Cow;

use leasehold_core::{Acquire, ClientId, Instant, Op, Outcome, StoreTime};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::error::Fault;
use super::notify::Outbox;
use super::{observers, rows};
use crate::clock::{BootClock, Clock as _};
use crate::store::api::{Key, Reply, Request};
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
    /// Registers a client that observes a name.
    RegisterObserver {
        key: Key,
        client: ClientId,
        reply: Sender<()>,
    },
}

/// The result of a change, valid once it is committed.
#[derive(Debug, Default)]
pub(super) struct Changed {
    /// The replies to the requests.
    replies: Vec<Reply>,
    /// The records with waiters left that might be granted.
    unfinished: Vec<Key>,
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
        let mut changed = Changed::default();
        match &self.change {
            Change::Apply { batch, .. } => {
                for request in batch {
                    changed.apply(db, request, now, outbox)?;
                }
            }
            Change::RegisterObserver { key, client, .. } => {
                observers::register(db, key, *client, now, outbox)?;
            }
        }
        Ok(changed)
    }

    /// Sends the result of [`Write::perform`]. A future that waits for it may have been dropped. Returns what is left to do
    /// in a transaction of its own, so that none is long.
    pub(super) fn finish(self, changed: Changed) -> Option<Self> {
        match self.change {
            Change::Apply { reply, .. } => {
                let _ = reply.send(Ok(changed.replies));
            }
            Change::RegisterObserver { reply, .. } => {
                let _ = reply.send(Ok(()));
            }
        }
        let serve = |key| Request::new(key, Op::Serve);
        let batch: Vec<_> = changed.unfinished.into_iter().map(serve).collect();
        let (reply, _) = oneshot::channel();
        (!batch.is_empty()).then(|| Self {
            since: BootClock.now(),
            change: Change::Apply { batch, reply },
        })
    }

    /// Sends the failure. `lost` is the reply to operations of holders, if the store has lost their leases.
    pub(super) fn fail(self, error: &Error, lost: Option<&Error>, undetermined: bool) {
        let failed = |request: &Request| match (lost, request.op.lease()) {
            (Some(lost), Some(_)) if !matches!(request.op, Op::Acquire(_)) => {
                Reply::Rejected(lost.clone())
            }
            _ if undetermined => Reply::Unknown(error.clone()),
            _ => Reply::Rejected(error.clone()),
        };
        match self.change {
            Change::Apply { batch, reply } => {
                let _ = reply.send(Ok(batch.iter().map(failed).collect()));
            }
            Change::RegisterObserver { reply, .. } => {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}

impl Changed {
    /// Applies one request by the rule, inside a transaction, and adds its notifications to the outbox. A record that
    /// cannot be read is the error of its request, and no fault of the transaction.
    fn apply(
        &mut self,
        db: &Connection,
        request: &Request,
        now: StoreTime,
        outbox: &mut Outbox<'_>,
    ) -> Result<(), Fault> {
        let key = &request.key;
        let op = match &request.op {
            // A client that cannot be notified must not delay those behind it in the queue.
            Op::Acquire(acquire) if acquire.wait && outbox.is_unreachable() => {
                let wait = false;
                let acquire = acquire.clone();
                Cow::Owned(Op::Acquire(Acquire { wait, ..acquire }))
            }
            op => Cow::Borrowed(op),
        };
        let applied = match rows::apply(db, key, &op, now, |client| outbox.reaches(client)) {
            Err(fault @ Fault::Damaged(..)) => {
                let error = Error::from(fault).for_lock(&key.name);
                self.replies.push(Reply::Rejected(error));
                return Ok(());
            }
            applied => applied?,
        };
        for notice in applied.notices {
            outbox.add(key, notice);
        }
        if applied.is_visible {
            observers::notify(db, key, now, outbox)?;
        }
        let queued = matches!(
            applied.outcome,
            Outcome::Refused {
                queue_position: Some(_),
                ..
            }
        );
        if queued {
            outbox.add_waiter();
        }
        self.unfinished
            .extend(applied.unfinished.then(|| key.clone()));
        self.replies.push(Reply::decided(key, applied.outcome, now));
        Ok(())
    }
}
