//! What the file alone can do: the baseline for `leasehold bench`.

use std::num::NonZeroU32;
use std::time::Duration;

use leasehold_core::{Instant, LeaseId, Op, TokenCount, Ttl};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::machine::Machine;
use super::transaction::{self, Failed};
use super::{change, time};
use crate::Result;
use crate::store::{Key, Request};

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
        let (lease, ttl) = (self.lease, Ttl::remainder(Duration::from_secs(30)));
        let acquire = Op::Acquire {
            lease,
            count: NonZeroU32::MIN,
            ttl,
            tokens: TokenCount::MIN,
        };
        let release = Op::Release {
            lease,
            count: 0,
            ttl,
        };
        for op in [acquire, release] {
            let request = Request {
                key: self.key.clone(),
                op,
            };
            transaction::run(db, until, |db| {
                let now = time::tick(db, machine)?;
                change::apply(db, &request, now)
            })?;
        }
        Ok(())
    }
}
