//! `uncontended` and `independent`: nobody wants the lock of another.

mod measure;
mod picture;
mod report;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::measure::Worker;
pub(super) use self::picture::draw;
pub(super) use self::report::Report;
use super::place::Place;
use super::{Scenario, runtime};
use crate::exit::Failure;

/// Tasks with a lock each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    pub(super) scenario: Scenario,
    pub(super) tasks: u16,
    pub(super) threads: u16,
    pub(super) span: Duration,
}

impl Alone {
    /// Lets them lock and release, in turn with bare calls.
    pub(super) fn measure(&self, place: &Place) -> Result<Report, Failure> {
        runtime(self.threads)?.block_on(async {
            let desk = place.open().await?;
            let mut ours = Vec::with_capacity(self.tasks.into());
            let mut bare = Vec::with_capacity(self.tasks.into());
            for task in 0..self.tasks {
                ours.push(Worker::Ours(desk.mutex(task)?));
                let mutex = desk.mutex(format_args!("bare/{task}"))?;
                bare.push(Worker::Bare(desk.yardstick.lane(&mutex)));
            }
            let tallies = measure::alternate(ours, bare, self.span, &desk.yardstick).await?;
            Ok(Report::new(self, desk.store(), &tallies))
        })
    }
}
