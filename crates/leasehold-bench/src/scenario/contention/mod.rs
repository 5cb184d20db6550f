//! `contended` and `many`: tasks in one or more processes that want the same locks.

mod names;
mod report;
mod tasks;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub(super) use self::tasks::serve;
use self::tasks::{Share, Tasks};
use crate::clock::Window;
use crate::options::Settings;
use crate::report::Report;
use crate::target::Target;
use crate::workers::Workers;
use crate::{Result, print_step, runtime};

/// The part of a run's duration by which a warm-up precedes it.
const WARM_UP: u32 = 10;

/// The shortest warm-up: processes must have begun and met.
const WARM_UP_MIN: Duration = Duration::from_millis(300);

/// Lets all tasks lock and release for the duration.
pub(crate) fn measure(settings: &Settings, target: &Target) -> Result<Report> {
    let (store, shares) = if settings.processes == 1 {
        runtime(settings.threads)?.block_on(async {
            let tasks = Tasks::open(target, settings, 0).await?;
            let store = tasks.store();
            print_step("measuring");
            Ok::<_, crate::Failure>((store, vec![tasks.run(window(settings)).await?]))
        })?
    } else {
        // It only waits for the others.
        runtime(1)?.block_on(with_workers(settings, target))?
    };
    Ok(report::report(settings, &store, &shares))
}

async fn with_workers(settings: &Settings, target: &Target) -> Result<(String, Vec<Share>)> {
    // Fails once and here if the store cannot be used.
    let store = target.open().await?.store();
    let mut workers = Workers::start(target, settings, settings.processes).await?;
    print_step("measuring");
    let shares = workers.ask(&window(settings)).await?;
    workers.finish().await?;
    Ok((store, shares))
}

fn window(settings: &Settings) -> Window {
    Window::after(
        (settings.duration / WARM_UP).max(WARM_UP_MIN),
        settings.duration,
    )
}
