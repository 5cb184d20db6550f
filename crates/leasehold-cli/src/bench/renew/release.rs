//! Releases all locks, and looks what is left of them.

use std::time::{Duration, Instant};

use leasehold::Guard;

use crate::bench::place::{Desk, Place};
use crate::exit::Failure;

/// The time for all releases. A store that needs longer has more trouble than this.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How it went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Released {
    pub(super) took: Duration,
    /// How many locks of this run are held after it.
    pub(super) left: usize,
}

/// Releases all at once, and answers a new client for what comes then: the old one has ended.
pub(super) async fn all(
    place: &Place,
    desk: Desk,
    guards: Vec<Guard>,
) -> Result<(Released, Desk), Failure> {
    let start = Instant::now();
    desk.client.shutdown(TIMEOUT).await?;
    let took = start.elapsed();
    drop(guards);
    // What the guards had to say to the store.
    desk.client.shutdown(TIMEOUT).await?;
    let desk = place.again(&desk)?;
    let left = desk.held().await?;
    Ok((Released { took, left }, desk))
}
