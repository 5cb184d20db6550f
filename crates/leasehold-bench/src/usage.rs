//! The resources and the work of this process and its server.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use crate::clock::Moment;
use crate::metrics_recorder::{RENEWAL_BATCHES, RENEWALS, total};
use crate::server_stats::ServerStats;
use crate::target::Session;

/// The resources and the work between two moments, or until one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) duration: Duration,
    /// The processor time of this process.
    pub(crate) cpu: Duration,
    /// `None`: the store has no calls to count.
    pub(crate) calls: Option<u64>,
    /// `None`: there is no server, or it refuses.
    pub(crate) server: Option<ServerStats>,
    pub(crate) renewals: u64,
    pub(crate) batches: u64,
}

impl Usage {
    /// Measures this process since its start, and the server for all its clients.
    pub(crate) async fn now(session: &Session) -> Result<Self> {
        let server = session.baseline.server_stats().await?;
        Ok(Self {
            duration: Moment::now().since_boot(),
            cpu: cpu(),
            calls: session.calls(),
            server,
            renewals: total(RENEWALS),
            batches: total(RENEWAL_BATCHES),
        })
    }

    /// The part since an earlier moment.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let calls = self.calls.zip(earlier.calls);
        let server = self.server.zip(earlier.server);
        Self {
            duration: self.duration.saturating_sub(earlier.duration),
            cpu: self.cpu.saturating_sub(earlier.cpu),
            calls: calls.map(|(after, before)| after - before),
            server: server.map(|(after, before)| after.since(&before)),
            renewals: self.renewals - earlier.renewals,
            batches: self.batches - earlier.batches,
        }
    }
}

/// The processor time of this process since its start: user and system time of all threads.
fn cpu() -> Duration {
    let used = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime));
    // It is never negative on this clock.
    used.unwrap_or_default()
}

/// Resident memory in bytes. `None`: `/proc` is not readable.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kibibytes * 1_024)
}
