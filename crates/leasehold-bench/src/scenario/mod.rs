//! The scenarios that can be measured.

mod candidate;
mod contention;
mod observe;
mod pairs;
mod primitives;
mod queue;
mod renew;
mod uncontended;
mod wakeup;

use crate::options::{Scenario, Settings};
use crate::report::Report;
use crate::target::Target;
use crate::worker::Orders;
use crate::workers::Job;
use crate::{Result, runtime};

/// After so many locks a task yields to the others: a store in memory never makes it wait.
const LOCKS_IN_A_ROW: u64 = 128;

/// Measures what the settings say.
pub(crate) fn measure(settings: &Settings, target: &Target) -> Result<Report> {
    let threads = match settings.processes {
        1 => settings.threads,
        // It only waits for the others.
        _ => 1,
    };
    runtime(threads)?.block_on(async {
        // Fails once and here if the store cannot be used.
        let session = target.open().await?;
        let store = session.store();
        let findings = match settings.scenario {
            Scenario::Uncontended | Scenario::Independent | Scenario::Watched => {
                uncontended::measure(settings, target, session).await
            }
            Scenario::Contended | Scenario::Many => {
                contention::measure(settings, target, session).await
            }
            Scenario::Wakeup => wakeup::measure(settings, target, session).await,
            Scenario::Observe => observe::measure(settings, target, session).await,
            Scenario::Primitives => primitives::measure(settings, target, session).await,
            Scenario::Renew => renew::measure(settings, target, session).await,
        };
        Ok(Report::new(settings, &store, findings?))
    })
}

/// Takes part as a worker.
pub(crate) async fn serve(job: &Job, orders: &mut Orders) -> Result<()> {
    match job.settings.scenario {
        Scenario::Wakeup => wakeup::serve(job, orders).await,
        Scenario::Observe => observe::serve(job, orders).await,
        _ => contention::serve(job, orders).await,
    }
}

/// Checks a release. After a transient error, the library repeats it in the background, and the next acquisition waits
/// for it.
fn check_release(result: leasehold::Result<()>) -> Result<()> {
    match result {
        Err(error) if !error.is_transient() => Err(error.into()),
        _ => Ok(()),
    }
}

/// The part of one of several processes, of so many clients. If they are not divisible, the first have one more.
fn part_of(number: u16, clients: u16, processes: u16) -> u16 {
    clients / processes + u16::from(number < clients % processes)
}

#[test]
fn clients_are_divided_between_processes() {
    for (clients, processes, parts) in [
        (1, 2, &[1, 0][..]),
        (101, 2, &[51, 50]),
        (10, 3, &[4, 3, 3]),
        (3, 3, &[1, 1, 1]),
    ] {
        let part = |number| part_of(number, clients, processes);
        assert_eq!((0..processes).map(part).collect::<Vec<_>>(), parts);
    }
}

/// Findings that are known, for tests of the figures.
#[cfg(test)]
mod known {
    use std::time::Duration;

    use crate::latencies::Latencies;
    use crate::server_stats::ServerStats;

    pub(super) fn latencies(micros: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        for micros in micros {
            latencies.record(Duration::from_micros(micros));
        }
        latencies
    }

    pub(super) fn stats(cpu_us: u64, script_calls: u64, script_us: u64) -> Option<ServerStats> {
        Some(ServerStats {
            cpu: Duration::from_micros(cpu_us),
            script_calls,
            script_time: Duration::from_micros(script_us),
            ..ServerStats::default()
        })
    }
}
