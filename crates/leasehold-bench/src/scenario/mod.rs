//! The scenarios that can be measured.

pub(crate) mod contention;
mod renew;
mod uncontended;
pub(crate) mod wakeup;

pub(crate) use self::contention::Contention;
pub(crate) use self::renew::Renew;
pub(crate) use self::uncontended::Uncontended;
pub(crate) use self::wakeup::Wakeup;

/// After so many locks a task yields to the others: a store in memory never makes it wait.
const LOCKS_IN_A_ROW: u64 = 128;

/// Findings that are known, for tests of the figures.
#[cfg(test)]
mod known {
    use std::time::Duration;

    use crate::latencies::Latencies;
    use crate::server_stats::ServerStats;

    pub(super) fn latencies(micros: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::new();
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
        })
    }
}
