//! Jobs that the tasks of all processes run once for a key.

use std::time::Duration;

use leasehold::{Error, Ran};

use super::Cycle;
use crate::clock::{self, MILLI, Nanos};
use crate::history::HoldEvent;

pub(crate) const NAMES: [&str; 2] = ["report", "migrate"];

/// The interval of new keys, and how many of them are run at a time: each is asked for several times, on any store.
const KEY_INTERVAL: Nanos = 4_000 * MILLI;
const KEYS: u64 = 2;

/// How long the record of a run is kept: much longer than anybody asks for its key, and much shorter than a soak.
const KEEP: Duration = Duration::from_secs(120);

impl Cycle {
    /// Runs a job for a key of this time, unless it is complete. Some runs fail.
    pub(super) async fn run_job(&mut self) -> Result<(), Error> {
        let name = NAMES[self.rng.usize(..NAMES.len())];
        let key = (clock::now() / KEY_INTERVAL + self.rng.u64(..KEYS)).to_string();
        let timeout = Duration::from_millis(self.rng.u64(1..4 * self.shared.config.ttl_ms));
        let job = self.client.once(name, &key)?.keep(KEEP)?;
        let hold = self.shared.request(name, false, None);
        self.shared.record(hold, HoldEvent::Runs(key));
        let acquire = async {
            let ran = job.lock_timeout(timeout).await;
            ran.map(|ran| match ran {
                Ran::Now(run) => Some(run),
                Ran::Before(_) => {
                    self.shared.record(hold, HoldEvent::Completed);
                    None
                }
                Ran::Busy => None,
            })
        };
        let Some(run) = self.granted(hold, acquire).await? else {
            return Ok(());
        };
        self.work(hold, &run, true).await;
        let fails = self.rng.u8(..4) == 0;
        let release = async {
            if fails {
                return run.release().await;
            }
            run.complete().await?;
            self.shared.record(hold, HoldEvent::Completed);
            Ok(())
        };
        self.shared.release(hold, release).await;
        Ok(())
    }
}
