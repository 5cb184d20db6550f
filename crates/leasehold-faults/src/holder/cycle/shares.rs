//! Locks that tasks share: readers, writers and the conversions between them, and permits.

use std::time::Duration;

use leasehold::{Error, Guard};

use super::super::hold::{LeaseLength, LiveHold};
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
                    self.work_until_release(hold, &guard, true).await;
                    let released = guard.release().await;
                    self.released(hold, &released);
                }
            }
            3 => {
                let hold = self.request_share(catalog.name(), Share::Write);
                if let Some(guard) = self.granted(hold, catalog.write_timeout(timeout)).await? {
                    self.work_until_release(hold, &guard, true).await;
                    let released = guard.release().await;
                    self.released(hold, &released);
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
                    self.work_until_release(hold, &permit, false).await;
                    let released = permit.release().await;
                    self.released(hold, &released);
                }
            }
        }
        Ok(())
    }

    /// Reads, writes, and reads again under one lease. Each is a hold of its own in the history.
    async fn upgrade(&mut self, timeout: Duration) -> Result<(), Error> {
        let catalog = self.client.rw_lock(NAMES[0])?;
        let name = catalog.name();
        let hold = self.request_share(name, Share::Upgradable);
        let acquire = catalog.upgradable_read_timeout(timeout);
        let Some(guard) = self.granted(hold, acquire).await? else {
            return Ok(());
        };
        self.work_until_release(hold, &guard, true).await;
        let hold = self.request_share(name, Share::Write);
        let upgrade = async { guard.upgrade().await.map(Some) };
        let Some(guard) = self.granted(hold, upgrade).await? else {
            return Ok(());
        };
        self.work_until_release(hold, &guard, true).await;
        let hold = self.request_share(name, Share::Read);
        let downgrade = async { guard.downgrade().await.map(Some) };
        let Some(guard) = self.granted(hold, downgrade).await? else {
            return Ok(());
        };
        self.work_until_release(hold, &guard, true).await;
        let released = guard.release().await;
        self.released(hold, &released);
        Ok(())
    }

    fn request_share(&self, name: &str, share: Share) -> u64 {
        let hold = self.shared.request(name, false, None);
        self.shared.record(hold, HoldEvent::Shares(share));
        hold
    }

    /// Makes critical steps until the guard is to be released or converted, which the history calls a release.
    pub(super) async fn work_until_release(&mut self, number: u64, guard: &Guard, fenced: bool) {
        let (shared, stop, duration) =
            (self.shared.clone(), self.stop.clone(), self.duration() / 2);
        let ttl = Duration::from_millis(shared.config.ttl_ms);
        let options = LeaseLength { ttl, fixed: false };
        let mut hold = LiveHold::begin(&shared, &stop, number, guard, options);
        hold.fenced = fenced;
        hold.work(&mut self.fence, &mut self.rng, duration).await;
        self.shared.record(number, HoldEvent::Releasing);
    }

    pub(super) fn released(&self, hold: u64, released: &Result<(), Error>) {
        let outcome = super::super::outcome(released);
        self.shared.record(hold, HoldEvent::Released { outcome });
    }
}
