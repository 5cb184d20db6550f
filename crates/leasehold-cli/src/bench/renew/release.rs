//! Releases all locks, and looks what is left of them.

use std::time::{Duration, Instant};

use leasehold::Guard;

use super::take;
use crate::bench::place::{Desk, Place};
use crate::exit::Failure;

/// The time for all releases. A store that needs longer has more trouble than this.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How many names are forgotten at once: the server does nothing else meanwhile.
const NAMES: usize = 256;

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
    let names = u32::try_from(guards.len()).unwrap_or(u32::MAX);
    drop(guards);
    // What the guards had to say to the store.
    desk.client.shutdown(TIMEOUT).await?;
    let desk = place.again(&desk)?;
    let left = desk.held().await?;
    forget(&desk, names).await?;
    Ok((Released { took, left }, desk))
}

/// Very many counters are nothing to leave behind for a day.
async fn forget(desk: &Desk, names: u32) -> Result<(), Failure> {
    let mut mutexes = Vec::with_capacity(NAMES);
    for name in 0..names {
        mutexes.push(take::mutex(desk, name)?);
        if mutexes.len() == NAMES || name + 1 == names {
            desk.yardstick.forget(&mutexes).await?;
            mutexes.clear();
        }
    }
    Ok(())
}
