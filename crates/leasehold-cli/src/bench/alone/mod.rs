//! `uncontended`, `independent` and `watched`: nobody wants the lock of another.

mod measure;
mod picture;
mod report;
#[cfg(test)]
mod tests;

use std::time::Duration;

use leasehold::watchdog::Watchdog;

use self::measure::Worker;
pub(super) use self::picture::draw;
pub(super) use self::report::Report;
use super::place::Place;
use super::{Scenario, runtime};
use crate::exit::Failure;

/// Tasks with a lock each.
#[derive(Clone, Debug)]
pub(super) struct Alone {
    pub(super) scenario: Scenario,
    pub(super) tasks: u16,
    pub(super) threads: u16,
    pub(super) span: Duration,
    /// Who looks after the locks, if that is compared with nobody.
    pub(super) watchdog: Option<Watchdog>,
}

impl Alone {
    /// Lets them lock and release, in turn with bare calls, or with the same that nobody looks after.
    pub(super) fn measure(&self, place: &Place) -> Result<Report, Failure> {
        runtime(self.threads)?.block_on(async {
            let unwatched = place.open().await?;
            let desk = match &self.watchdog {
                Some(watchdog) => place.watched(&unwatched, watchdog).await?,
                None => unwatched.clone(),
            };
            let mut ours = Vec::with_capacity(self.tasks.into());
            let mut bare = Vec::with_capacity(self.tasks.into());
            for task in 0..self.tasks {
                ours.push(Worker::Ours(desk.mutex(task)?));
                let mutex = unwatched.mutex(format_args!("bare/{task}"))?;
                bare.push(match &self.watchdog {
                    Some(_) => Worker::Ours(mutex),
                    None => Worker::Bare(desk.yardstick.lane(&mutex)),
                });
            }
            let tallies = measure::alternate(ours, bare, self.span, &desk.yardstick).await?;
            Ok(Report::new(self, desk.store(), &tallies))
        })
    }
}
