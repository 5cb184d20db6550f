//! What is compared while the locks are held, in short slices: whatever else the machine does hits
//! all of them.

use std::time::{Duration, Instant};

use leasehold::Guard;
use leasehold::store::yardstick::Load;

use super::look::{Look, Spent};
use super::pairs::Pairs;
use crate::bench::place::Desk;
use crate::exit::Failure;

/// How many slices there are. In three rounds of three, each kind stands at each place once.
const SLICES: u32 = 99;

/// How many bare renewals are under way at once.
const DEEP: usize = 100;

/// What came of the slices of each kind.
#[derive(Debug)]
pub(super) struct Turns {
    /// Nothing but the renewals that are due.
    pub(super) ours: Work,
    /// The same leases renewed by bare calls as fast as can be, beside those that are due.
    pub(super) bare: Work,
    /// Another lock and its release, beside the renewals that are due.
    pub(super) pairs: Pairs,
}

/// What a server did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    /// The renewals that were due.
    pub(super) renewals: u64,
    /// The bare ones.
    pub(super) bare: u64,
    /// `None`: there is no server, or it does not tell.
    pub(super) server: Option<Load>,
}

/// Takes turns for `span` in all.
pub(super) async fn take(
    desk: &Desk,
    guards: &[Guard],
    ttl: Duration,
    span: Duration,
) -> Result<Turns, Failure> {
    let mut turns = Turns {
        ours: Work::default(),
        bare: Work::default(),
        pairs: Pairs::new()?,
    };
    if desk.yardstick.load().await?.is_none() {
        // There is nothing to compare but the pairs.
        turns.pairs.repeat(desk, span).await?;
        return Ok(turns);
    }
    let unit = span / SLICES;
    let mut leases = guards.iter().cycle();
    for slice in 0..SLICES {
        if (slice + slice / 3) % 3 == 2 {
            turns.pairs.repeat(desk, unit).await?;
            continue;
        }
        let before = Look::now(desk).await?;
        if (slice + slice / 3) % 3 == 0 {
            tokio::time::sleep(unit).await;
            turns.ours.add(0, &before.until(&Look::now(desk).await?));
        } else {
            let bare = renew_each(desk, &mut leases, ttl, unit).await?;
            turns.bare.add(bare, &before.until(&Look::now(desk).await?));
        }
    }
    Ok(turns)
}

/// Renews one lease after the other by bare calls, and tells how many.
async fn renew_each(
    desk: &Desk,
    guards: &mut impl Iterator<Item = &Guard>,
    ttl: Duration,
    span: Duration,
) -> Result<u64, Failure> {
    let end = Instant::now() + span;
    let mut renewed = 0;
    while Instant::now() < end {
        let mut leases = Vec::with_capacity(DEEP);
        for guard in guards.take(DEEP) {
            leases.push((desk.client.mutex(guard.name())?, guard.lease_id()));
        }
        // One that was lost is no renewal, but work for the server all the same.
        desk.yardstick.renew_each(&leases, ttl).await?;
        renewed += leases.len() as u64;
    }
    Ok(renewed)
}

impl Work {
    fn add(&mut self, bare: u64, spent: &Spent) {
        self.renewals += spent.renewals;
        self.bare += bare;
        if let Some(load) = spent.server {
            self.server = Some(self.server.unwrap_or_default() + load);
        }
    }
}
