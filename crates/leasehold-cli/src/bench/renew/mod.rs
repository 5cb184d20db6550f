//! `renew`: what it costs a process and its server to hold very many locks, and whether another
//! lock becomes slower meanwhile.
//!
//! ```text
//! pairs    take   watch the renewals   turns: renewals, bare ones, pairs   release   pairs
//! |-1/4-|  |---|  |--------1---------| |----------------1----------------| |-----|   |-1/4-|
//! ```
//!
//! Nothing else is done while the renewals are watched, so all that the process and the server use
//! is for them. What is compared takes turns, or stands before and after what it is compared with.

mod look;
mod pairs;
mod picture;
mod release;
mod report;
mod take;
#[cfg(test)]
mod tests;
mod turns;

use std::time::Duration;

use self::look::{Look, Spent};
use self::pairs::Pairs;
pub(super) use self::picture::draw;
use self::release::Released;
pub(super) use self::report::Report;
use self::turns::Turns;
use super::meters;
use super::place::{Desk, Place};
use super::process;
use super::progress::Progress;
use super::runtime;
use super::times::Times;
use crate::exit::Failure;

/// Which part of the time pairs are looked at, before the locks are taken and after they are
/// released.
const PAIRS: u32 = 4;

/// Which part of that the first ones are left out for: they only warm up.
const WARM_UP: u32 = 5;

/// What there is to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renew {
    pub(super) leases: u32,
    pub(super) ttl: Duration,
    /// How many take the locks at once.
    pub(super) tasks: u16,
    pub(super) threads: u16,
    /// For how long the renewals are watched.
    pub(super) span: Duration,
}

/// What was found.
#[derive(Debug)]
struct Findings {
    /// How long it took to take the locks.
    taking: Duration,
    /// The bytes of the process: before, with all locks taken, and after they were renewed.
    resident: [Option<u64>; 3],
    watched: Watched,
    turns: Turns,
    /// Pairs while no locks are held.
    alone: Pairs,
    trouble: Trouble,
    released: Released,
}

/// A time in which nothing but renewals was done.
#[derive(Debug)]
struct Watched {
    spent: Spent,
    lag: Times,
}

/// What became of the leases from the first to be taken to the first to be released.
#[derive(Clone, Copy, Debug)]
struct Trouble {
    jeopardy: u64,
    lost: u64,
    /// How many were not lost in the end.
    held: usize,
}

impl Renew {
    /// Takes the locks, holds them and releases them.
    pub(super) fn measure(&self, place: &Place) -> Result<Report, Failure> {
        runtime(self.threads)?.block_on(async {
            meters::listen();
            let desk = place.open().await?;
            let store = desk.store();
            let findings = self.findings(place, desk).await?;
            Ok(Report::new(self, store, &findings))
        })
    }

    async fn findings(&self, place: &Place, desk: Desk) -> Result<Findings, Failure> {
        let mut alone = Pairs::new()?;
        let progress = Progress::over(self.span / PAIRS);
        let warm_up = self.span / PAIRS / WARM_UP;
        Pairs::new()?.repeat(&desk, warm_up).await?;
        alone.repeat(&desk, self.span / PAIRS - warm_up).await?;
        drop(progress);

        let before = process::resident();
        let marks = [meters::JEOPARDY.so_far(), meters::LOST.so_far()];
        let (guards, taking) = take::all(self, &desk).await?;
        let taken = process::resident();

        let progress = Progress::over(self.span * 2);
        let watched = self.watch(&desk).await?;
        let renewed = process::resident();
        let turns = turns::take(&desk, &guards, self.ttl, self.span).await?;
        drop(progress);
        let trouble = Trouble {
            jeopardy: meters::JEOPARDY.so_far() - marks[0],
            lost: meters::LOST.so_far() - marks[1],
            held: guards
                .iter()
                .filter(|guard| !guard.state().is_lost())
                .count(),
        };

        let (released, desk) = release::all(place, desk, guards).await?;
        alone.repeat(&desk, self.span / PAIRS).await?;
        Ok(Findings {
            taking,
            resident: [before, taken, renewed],
            watched,
            turns,
            alone,
            trouble,
            released,
        })
    }

    async fn watch(&self, desk: &Desk) -> Result<Watched, Failure> {
        // Those of the time before.
        meters::RENEWAL_LAG.take()?;
        let before = Look::now(desk).await?;
        tokio::time::sleep(self.span).await;
        let spent = before.until(&Look::now(desk).await?);
        let lag = meters::RENEWAL_LAG.take()?;
        Ok(Watched { spent, lag })
    }
}
