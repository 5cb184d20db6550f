//! When a job runs: once in each period, or once for a key.

use std::time::Duration;

use leasehold_core::job::{KEEP_DEFAULT, KEEP_MAX};
use leasehold_core::record::Unless;
use leasehold_core::{CompletionKey, JobSchedule, Period};

use super::Job;
use crate::store::Feature;
use crate::sync::mutex::Mutex;
use crate::{Error, ErrorKind, Result, config};

impl Job {
    pub(crate) fn every(mutex: Mutex, period: Duration) -> Result<Self> {
        check_store(&mutex)?;
        let Some(period) = Period::checked(period) else {
            let message =
                format!("the period of a job must be from 1 s to 365 days, not {period:?}");
            return Err(mutex.name_error(config::invalid(message)));
        };
        let unless = Unless::Period {
            schedule: JobSchedule {
                period,
                anchor: None,
            },
            asked: Duration::ZERO,
        };
        Ok(Self::new(mutex, unless))
    }

    pub(crate) fn once(mutex: Mutex, key: &str) -> Result<Self> {
        check_store(&mutex)?;
        match CompletionKey::parse(key) {
            Ok(key) => {
                let asked = Duration::ZERO;
                Ok(Self::new(mutex, Unless::Key { key, asked }))
            }
            Err(error) => {
                let message = format!("the key of a job is invalid: {error}");
                Err(mutex.name_error(Error::new(ErrorKind::InvalidName, message)))
            }
        }
    }

    const fn new(mutex: Mutex, unless: Unless) -> Self {
        let keep = match unless {
            Unless::Key { .. } => KEEP_MAX,
            Unless::Period { .. } => KEEP_DEFAULT,
        };
        Self {
            mutex,
            unless,
            keep,
            retry_after: None,
            program_path: None,
        }
    }
}

/// Not every store keeps records of completed runs.
fn check_store(mutex: &Mutex) -> Result<()> {
    let store = &mutex.driver.context.store;
    let checked = store.capabilities().kind.check(Feature::Completions, store);
    checked.map_err(|error| error.for_lock(&mutex.key.name))
}
