//! Locks that tasks share: readers, writers and the conversions between them, and permits.

use std::time::Duration;

use leasehold::{Error, Guard};

use super::super::hold::LiveHold;
use super::Cycle;
use crate::history::{HoldEvent, Share};

/// The read-write lock, and the semaphore with its permits.
pub(crate) const NAMES: [&str; 2] = ["catalog", "workers"];
const PERMITS: u32 = 3;

impl Cycle {
    /// Acquires a lock in one of the ways to share it, holds it and releases it.
    pub(super) async fn share(&mut self) -> Result<(), Error> {
        let [catalog, workers] = NAMES;
        let catalog = self.client.rw_lock(catalog)?;
        let timeout = Duration::from_millis(self.rng.u64(1..4 * self.shared.config.ttl_ms));
        match self.rng.u8(..8) {
            0..3 => {
                let hold = self.request_share(catalog.name(), Share::Read);
                if let Some(guard) = self.granted(hold, catalog.read_timeout(timeout)).await? {
                    self.work(hold, &guard, true).await;
                    self.shared.release(hold, guard.release()).await;
                }
            }
            3 => {
                let hold = self.request_share(catalog.name(), Share::Write);
                if let Some(guard) = self.granted(hold, catalog.write_timeout(timeout)).await? {
                    self.work(hold, &guard, true).await;
                    self.shared.release(hold, guard.release()).await;
                }
            }
            4 => self.upgrade(timeout).await?,
            _ => {
                let (weight, limit) = (self.rng.u32(1..PERMITS), PERMITS);
                let hold = self.request_share(workers, Share::Permits { weight, limit });
                let workers = self.client.semaphore(workers, PERMITS)?;
                let acquire = workers.acquire_many_timeout(weight, timeout);
                if let Some(permit) = self.granted(hold, acquire).await? {
                    // Several holders are right, so a resource cannot tell who is late.
                    self.work(hold, &permit, false).await;
                    self.shared.release(hold, permit.release()).await;
                }
            }
        }
        Ok(())
    }

    /// Reads, writes, and reads again under one lease. Each is a hold of its own in the history, which calls a conversion a
    /// release.
    async fn upgrade(&mut self, timeout: Duration) -> Result<(), Error> {
        let catalog = self.client.rw_lock(NAMES[0])?;
        let name = catalog.name();
        let hold = self.request_share(name, Share::Upgradable);
        let acquire = catalog.upgradable_read_timeout(timeout);
        let Some(guard) = self.granted(hold, acquire).await? else {
            return Ok(());
        };
        self.work(hold, &guard, true).await;
        self.shared.record(hold, HoldEvent::Releasing);
        let hold = self.request_share(name, Share::Write);
        let upgrade = async { guard.upgrade().await.map(Some) };
        let Some(guard) = self.granted(hold, upgrade).await? else {
            return Ok(());
        };
        self.work(hold, &guard, true).await;
        self.shared.record(hold, HoldEvent::Releasing);
        let hold = self.request_share(name, Share::Read);
        let downgrade = async { guard.downgrade().await.map(Some) };
        let Some(guard) = self.granted(hold, downgrade).await? else {
            return Ok(());
        };
        self.work(hold, &guard, true).await;
        self.shared.release(hold, guard.release()).await;
        Ok(())
    }

    fn request_share(&self, name: &str, share: Share) -> u64 {
        let hold = self.shared.request(name, false, None);
        self.shared.record(hold, HoldEvent::Shares(share));
        hold
    }

    /// Makes critical steps until the guard is to be released or converted.
    pub(super) async fn work(&mut self, number: u64, guard: &Guard, fenced: bool) {
        let (shared, stop, duration) =
            (self.shared.clone(), self.stop.clone(), self.duration() / 2);
        let mut hold = LiveHold::begin(&shared, &stop, number, guard, shared.config.ttl_ms);
        hold.fenced = fenced;
        hold.work(&mut self.fence, &mut self.rng, duration).await;
    }
}
