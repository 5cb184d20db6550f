//! What the file alone can do: the baseline for `leasehold bench`.

use leasehold_core::{Instant, LeaseId};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::boot::Machine;
use super::transaction::{self, Failed};
use super::{change, time};
use crate::Result;
use crate::store::{Key, yardstick};

/// An acquire and a release, each in a transaction of its own.
#[derive(Debug)]
pub(super) struct Bare {
    pub(super) key: Key,
    pub(super) lease: LeaseId,
    pub(super) reply: oneshot::Sender<Result<()>>,
}

impl Bare {
    /// Runs both.
    pub(super) fn run(
        &self,
        db: &Connection,
        machine: &Machine,
        until: Instant,
    ) -> Result<(), Failed> {
        for op in yardstick::pair(self.lease) {
            transaction::run(db, until, |db| {
                let now = time::tick(db, machine)?;
                change::apply(db, &self.key, &op, now, |_| false)
            })?;
        }
        Ok(())
    }
}
