//! What is compared while the locks are held, in short slices: whatever else the machine does hits
//! all of them.

use std::time::{Duration, Instant};

use leasehold::Guard;

use super::{Pairs, other_lock};
use crate::Result;
use crate::server_stats::ServerStats;
use crate::target::Session;
use crate::usage::Usage;

/// The number of slices. In three rounds of three, each kind stands at each place once.
const SLICES: u32 = 99;

/// The number of baseline renewals in flight at once.
const IN_FLIGHT: usize = 100;

/// The results of the slices of each kind.
#[derive(Debug)]
pub(super) struct Slices {
    /// Nothing but the renewals that are due.
    pub(super) ours: Work,
    /// The same leases renewed by baseline calls as fast as possible, in addition to those that are due.
    pub(super) baseline: Work,
    /// Another lock and its release, in addition to the renewals that are due.
    pub(super) pairs: Pairs,
}

/// The work of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// The renewals that were due.
    pub(super) due: u64,
    /// The renewals by baseline calls.
    pub(super) by_baseline: u64,
    /// `None`: there is no server, or it refuses.
    pub(super) server: Option<ServerStats>,
}

/// Takes slices of each kind in turn, for a duration in all.
pub(super) async fn run(
    session: &Session,
    guards: &[Guard],
    ttl: Duration,
    duration: Duration,
) -> Result<Slices> {
    let mut slices = Slices {
        ours: Work::default(),
        baseline: Work::default(),
        pairs: Pairs::new(other_lock(session)?),
    };
    if session.baseline.server_stats().await?.is_none() {
        // There is nothing to compare but the pairs.
        slices.pairs.run(duration, session).await?;
        return Ok(slices);
    }
    let length = duration / SLICES;
    let mut guards = guards.iter().cycle();
    for slice in 0..SLICES {
        let kind = (slice + slice / 3) % 3;
        if kind == 2 {
            slices.pairs.run(length, session).await?;
            continue;
        }
        let before = Usage::now(session).await?;
        if kind == 0 {
            tokio::time::sleep(length).await;
            let used = Usage::now(session).await?.since(&before);
            slices.ours.add(0, &used);
        } else {
            let renewals = renew_each(session, &mut guards, ttl, length).await?;
            let used = Usage::now(session).await?.since(&before);
            slices.baseline.add(renewals, &used);
        }
    }
    Ok(slices)
}

/// Renews one lease after the other by baseline calls. Returns the number of calls.
async fn renew_each(
    session: &Session,
    guards: &mut impl Iterator<Item = &Guard>,
    ttl: Duration,
    duration: Duration,
) -> Result<u64> {
    let end = Instant::now() + duration;
    let mut renewals = 0;
    while Instant::now() < end {
        let mut leases = Vec::with_capacity(IN_FLIGHT);
        for guard in guards.take(IN_FLIGHT) {
            leases.push((session.key_of(guard.name())?, guard.lease_id()));
        }
        renewals += session.baseline.renew_each(&leases, ttl).await?;
    }
    Ok(renewals)
}

impl Work {
    fn add(&mut self, by_baseline: u64, used: &Usage) {
        self.due += used.renewals;
        self.by_baseline += by_baseline;
        if let Some(stats) = used.server {
            self.server = Some(self.server.unwrap_or_default() + stats);
        }
    }
}
