//! `contended` and `many`: tasks in one or more processes that want each other's locks.

mod names;
mod picture;
mod report;
#[cfg(test)]
mod tests;
pub(super) mod work;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(super) use self::picture::draw;
pub(super) use self::report::Report;
use self::work::{Share, Worker};
use super::clock::Window;
use super::crew::{self, Crew, Job};
use super::place::Place;
use super::progress::Progress;
use super::{Scenario, runtime};
use crate::exit::Failure;

/// The part of a run before it that only warms up.
const WARM_UP: u32 = 10;

/// The shortest warm-up: processes must have begun and met.
const WARM_UP_MIN: Duration = Duration::from_millis(300);

/// Who wants what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crowd {
    pub(super) scenario: Scenario,
    pub(super) names: u32,
    pub(super) processes: u16,
    /// In each process.
    pub(super) tasks: u16,
    pub(super) threads: u16,
    pub(super) section: Duration,
    pub(super) span: Duration,
}

/// What one process of the crowd does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Part {
    /// Its place among the processes.
    number: u16,
    names: u32,
    tasks: u16,
    section: Duration,
}

impl Crowd {
    /// Lets them all lock and release for the span.
    pub(super) fn measure(&self, place: &Place) -> Result<Report, Failure> {
        let (store, shares) = if self.processes == 1 {
            runtime(self.threads)?.block_on(self.here(place))?
        } else {
            // It only waits for the others.
            runtime(1)?.block_on(self.elsewhere(place))?
        };
        Report::new(self, store, &shares)
    }

    async fn here(&self, place: &Place) -> Result<(String, Vec<Share>), Failure> {
        let worker = Worker::open(place, &self.part(0)).await?;
        let store = worker.store();
        let (window, progress) = self.begin();
        let share = worker.run(window).await?;
        drop(progress);
        Ok((store, vec![share]))
    }

    async fn elsewhere(&self, place: &Place) -> Result<(String, Vec<Share>), Failure> {
        let jobs: Vec<_> = (0..self.processes)
            .map(|number| Job {
                place: place.clone(),
                threads: self.threads,
                part: crew::Part::Crowd(self.part(number)),
            })
            .collect();
        // Also tells what is wrong with the store, once and here.
        let store = place.open().await?.store();
        let mut crew = Crew::start(&jobs).await?;
        let (window, progress) = self.begin();
        let shares = crew.ask(&window).await?;
        drop(progress);
        crew.dismiss().await?;
        Ok((store, shares))
    }

    fn begin(&self) -> (Window, Progress) {
        let warm_up = (self.span / WARM_UP).max(WARM_UP_MIN);
        let window = Window::soon(warm_up, self.span);
        (window, Progress::over(warm_up + self.span))
    }

    fn part(&self, number: u16) -> Part {
        Part {
            number,
            names: self.names,
            tasks: self.tasks,
            section: self.section,
        }
    }
}
