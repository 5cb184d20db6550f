//! Requests that are sent once: their callers repeat them.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{ArrivalId, LatchCount, LatchStatus, LeaseId, Op, Outcome, Removal, Whom};

use super::Driver;
use crate::store::{Key, Reply, Request, unexpected};
use crate::{Error, ErrorKind, Result};

impl Driver {
    /// Arrives at a latch.
    pub(crate) async fn arrive(
        &self,
        key: &Key,
        id: ArrivalId,
        count: LatchCount,
        keep: Duration,
    ) -> Result<LatchStatus> {
        self.check_open(key)?;
        match self.request(key, Op::Arrive { id, count, keep }).await? {
            Outcome::Arrived(status) => Ok(status),
            other => {
                let error = unexpected(&format!("{other:?}"));
                Err(self.context.name_error(error, key))
            }
        }
    }

    /// Sets the number of permits of a semaphore.
    pub(crate) async fn set_limit(
        &self,
        key: &Key,
        permits: NonZeroU32,
        keep: Duration,
    ) -> Result<()> {
        let op = Op::SetLimit {
            permits,
            if_version: None,
            keep,
        };
        match self.request(key, op).await? {
            Outcome::Stored => Ok(()),
            other => {
                let error = unexpected(&format!("{other:?}"));
                Err(self.context.name_error(error, key))
            }
        }
    }

    /// Removes a part of a record. Returns whether it existed.
    pub(crate) async fn remove(&self, key: &Key, removal: Removal) -> Result<bool> {
        let removed = self.request(key, Op::Remove(removal)).await?;
        Ok(removed == Outcome::Removed(true))
    }

    async fn request(&self, key: &Key, op: Op) -> Result<Outcome> {
        let outcome = self.context.store.request(key, op).await;
        outcome.map_err(|error| self.context.name_error(error, key))
    }

    /// Revokes all leases that hold a lock, behind the requests of this client for it. Returns them.
    pub(crate) async fn revoke(&self, key: &Key) -> Result<Vec<LeaseId>> {
        let request = Request::new(key.clone(), Op::Revoke(Whom::All));
        let error = match self.batcher.submit(request).await {
            Reply::Applied {
                outcome: Outcome::Revoked(leases),
                ..
            } => return Ok(leases),
            Reply::Applied { .. } => Error::new(ErrorKind::Store, "the lease was not revoked"),
            Reply::Rejected(error) | Reply::Unknown(error) => error,
        };
        Err(self.context.name_error(error, key))
    }
}
