//! `contended` and `many`: tasks in one or more processes that want the same locks.

mod names;
mod report;
mod tasks;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::tasks::serve;
use self::tasks::{Share, Tasks};
use crate::clock::Window;
use crate::options::Scenario;
use crate::progress::Progress;
use crate::report::Report;
use crate::target::Target;
use crate::workers::{self, Workers};
use crate::{Result, runtime};

/// The part of a run's duration by which a warm-up precedes it.
const WARM_UP: u32 = 10;

/// The shortest warm-up: processes must have begun and met.
const WARM_UP_MIN: Duration = Duration::from_millis(300);

/// Tasks that want the same locks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contention {
    pub(crate) scenario: Scenario,
    pub(crate) names: u32,
    pub(crate) processes: u16,
    /// In each process.
    pub(crate) tasks: u16,
    pub(crate) threads: u16,
    pub(crate) section: Duration,
    pub(crate) duration: Duration,
}

/// The part of one process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Role {
    /// Its number among the processes.
    number: u16,
    names: u32,
    tasks: u16,
    section: Duration,
}

impl Contention {
    /// Lets all tasks lock and release for the duration.
    pub(crate) fn measure(&self, target: &Target) -> Result<Report> {
        let (store, shares) = if self.processes == 1 {
            runtime(self.threads)?.block_on(async {
                let tasks = Tasks::open(target, &self.role(0)).await?;
                let store = tasks.store();
                let _progress = Progress::start("measuring");
                Ok::<_, crate::Failure>((store, vec![tasks.run(self.window()).await?]))
            })?
        } else {
            // It only waits for the others.
            runtime(1)?.block_on(self.with_workers(target))?
        };
        Ok(self.report(&store, &shares))
    }

    async fn with_workers(&self, target: &Target) -> Result<(String, Vec<Share>)> {
        // Fails once and here if the store cannot be used.
        let store = target.open().await?.store();
        let roles = (0..self.processes).map(|number| workers::Role::Contention(self.role(number)));
        let mut workers = Workers::start(target, self.threads, roles).await?;
        let _progress = Progress::start("measuring");
        let shares = workers.ask(&self.window()).await?;
        workers.finish().await?;
        Ok((store, shares))
    }

    fn window(&self) -> Window {
        Window::after((self.duration / WARM_UP).max(WARM_UP_MIN), self.duration)
    }

    fn role(&self, number: u16) -> Role {
        Role {
            number,
            names: self.names,
            tasks: self.tasks,
            section: self.section,
        }
    }
}
