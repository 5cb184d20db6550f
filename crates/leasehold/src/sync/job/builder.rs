//! A job before its schedule is known.

use std::time::Duration;

use leasehold_core::job::{KEEP_DEFAULT, KEEP_MAX};
use leasehold_core::record::Unless;
use leasehold_core::{CompletionKey, JobSchedule, NameError, Period, Removal, Slot};

use super::Job;
use crate::store::Feature;
use crate::sync::mutex::Mutex;
use crate::{Error, ErrorKind, Result, config};

impl Mutex {
    /// A job that runs under this lock, with its settings. See [`Job`].
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unsupported`] over many masters, which keep no records of completed runs.
    pub fn job(&self) -> Result<JobBuilder> {
        JobBuilder::new(self.clone())
    }
}

/// The name of a job that has no schedule yet. Made by [`Client::job`](crate::Client::job), or by [`Mutex::job`] for a
/// lock with settings of its own.
#[derive(Clone, Debug)]
pub struct JobBuilder {
    mutex: Mutex,
}

impl JobBuilder {
    pub(crate) fn new(mutex: Mutex) -> Result<Self> {
        let store = &mutex.driver.context.store;
        let checked = store.capabilities().kind.check(Feature::Completions, store);
        checked.map_err(|error| error.for_lock(&mutex.key.name))?;
        Ok(Self { mutex })
    }

    /// The job that runs once in each period, from 1 s to 365 days.
    ///
    /// A period does not begin at a certain time: a run belongs to the slot whose time is nearest, unless [`Job::anchor`]
    /// sets these times. So the starts on different machines may differ by less than half a period, lateness and clocks
    /// included. The slots begin with the request of the first completed run; they are forgotten after two periods
    /// without a completed run. Two runs can be close: [`Mutex::min_hold`] keeps a distance.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`] for a period outside these bounds.
    pub fn every(&self, period: Duration) -> Result<Job> {
        let Some(period) = Period::checked(period) else {
            let message =
                format!("the period of a job must be from 1 s to 365 days, not {period:?}");
            return Err(self.mutex.name_error(config::invalid(message)));
        };
        let anchor = None;
        Ok(self.job(Unless::Period {
            schedule: JobSchedule { period, anchor },
            asked: Duration::ZERO,
        }))
    }

    /// The job that runs once for a key, such as a version: 1 to 256 bytes without control characters or outer spaces.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidName`] for an invalid key.
    pub fn once(&self, key: impl AsRef<str>) -> Result<Job> {
        let invalid = |error: NameError| {
            let message = format!("the key of a job is invalid: {error}");
            self.mutex
                .name_error(Error::new(ErrorKind::InvalidName, message))
        };
        let key = CompletionKey::parse(key.as_ref()).map_err(invalid)?;
        let asked = Duration::ZERO;
        Ok(self.job(Unless::Key { key, asked }))
    }

    /// Removes the record of the last run of the periodic job, so that it is run again. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// As the store replies.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not have removed the record.
    pub async fn reset(&self) -> Result<bool> {
        let removal = Removal::Note(Slot::Period);
        self.mutex.driver.remove(&self.mutex.key, removal).await
    }

    fn job(&self, unless: Unless) -> Job {
        let keep = match unless {
            Unless::Key { .. } => KEEP_MAX,
            Unless::Period { .. } => KEEP_DEFAULT,
        };
        Job {
            mutex: self.mutex.clone(),
            unless,
            keep,
            retry_after: None,
            program_path: None,
        }
    }
}
