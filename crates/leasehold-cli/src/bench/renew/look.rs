//! What process and server have used, at one moment and from one to another.

use std::time::{Duration, Instant};

use leasehold::store::yardstick::Load;

use crate::bench::place::Desk;
use crate::bench::{meters, process};
use crate::exit::Failure;

/// What was used and done until a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    at: Instant,
    cpu: Duration,
    calls: Option<u64>,
    server: Option<Load>,
    renewals: u64,
    batches: u64,
}

/// What was used and done between two moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) span: Duration,
    /// The processor time of this process.
    pub(super) cpu: Duration,
    /// Of this process. `None`: the store has nothing to count.
    pub(super) calls: Option<u64>,
    /// `None`: there is no server, or it does not tell.
    pub(super) server: Option<Load>,
    pub(super) renewals: u64,
    pub(super) batches: u64,
}

impl Look {
    pub(super) async fn now(desk: &Desk) -> Result<Self, Failure> {
        let server = desk.yardstick.load().await?;
        Ok(Self {
            at: Instant::now(),
            cpu: process::cpu(),
            calls: desk.yardstick.calls(),
            server,
            renewals: meters::RENEWALS.so_far(),
            batches: meters::RENEWAL_BATCHES.so_far(),
        })
    }

    pub(super) fn until(&self, later: &Self) -> Spent {
        let (calls, server) = (self.calls.zip(later.calls), self.server.zip(later.server));
        Spent {
            span: later.at - self.at,
            cpu: later.cpu.saturating_sub(self.cpu),
            calls: calls.map(|(before, after)| after - before),
            server: server.map(|(before, after)| after.since(&before)),
            renewals: later.renewals - self.renewals,
            batches: later.batches - self.batches,
        }
    }
}
