//! `renew`: what it costs a process and its server to hold very many locks, and whether another lock
//! becomes slower meanwhile.
//!
//! ```text
//! pairs    take   observe renewals   slices: renewals, baseline, pairs    release   pairs
//! |-1/4-|  |---|  |-------1--------| |----------------1----------------| |-----|   |-1/4-|
//! ```
//!
//! Nothing else is done while renewals are observed, so all that the process and the server use is for
//! them. What is compared takes turns, or stands before and after what it is compared with.

mod leases;
mod report;
mod slices;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::slices::Slices;
use super::pairs::{Lock, Pairs};
use crate::baseline::Database;
use crate::latencies::Latencies;
use crate::metrics_recorder::{self, JEOPARDY, LOST, total};
use crate::options::Settings;
use crate::server_stats::ServerStats;
use crate::target::{Session, Target};
use crate::usage::{Usage, resident};
use crate::{Result, print_step};

/// The part of the duration for pairs, before the locks are taken and after they are released.
const PAIRS: u32 = 4;

/// The part of that in which the first pairs only warm up.
const WARM_UP: u32 = 5;

/// The name of another lock.
const OTHER: &str = "other";

/// The findings of a run.
#[derive(Debug)]
struct Findings {
    taking: Duration,
    /// The bytes of the process: before, with all locks taken, and after they were renewed.
    resident: [Option<u64>; 3],
    observed: Usage,
    /// The bytes and dead rows of the tables in PostgreSQL: with all locks taken, in the middle and at the end of the
    /// observation, and before the release.
    tables: Vec<[i64; 2]>,
    lag: Latencies,
    slices: Slices,
    /// Pairs while no locks are held.
    pairs_without_renewals: Pairs,
    /// From the first lock to its release.
    jeopardy: u64,
    lost: u64,
    /// The leases that were not lost in the end.
    held: usize,
    releasing: Duration,
    /// The locks of this run that are held after their release.
    still_held: usize,
}

/// Takes the locks, holds them and releases them.
pub(super) async fn measure(
    settings: &Settings,
    target: &Target,
    session: Session,
) -> Result<crate::report::Findings> {
    metrics_recorder::install();
    let findings = findings(settings, target, session).await?;
    Ok(report::report(settings, &findings))
}

async fn findings(settings: &Settings, target: &Target, session: Session) -> Result<Findings> {
    let warm_up = settings.duration / PAIRS / WARM_UP;
    let mut pairs_without_renewals = Pairs::new(other_lock(&session)?);
    pairs_without_renewals.run(warm_up, &session).await?;
    pairs_without_renewals.reset();
    let duration = settings.duration / PAIRS - warm_up;
    pairs_without_renewals.run(duration, &session).await?;

    let before = resident();
    let totals = || [total(JEOPARDY), total(LOST)];
    let totals_before = totals();
    print_step("taking the locks");
    let (guards, taking) = leases::take_all(settings, &session).await?;
    let taken = resident();

    print_step("measuring");
    let database = session.baseline.database().await?;
    let mut tables = Vec::new();
    // The lags of the time before.
    metrics_recorder::take_renewal_lags();
    let observed = observe(settings, &session, database.as_ref(), &mut tables).await?;
    let lag = metrics_recorder::take_renewal_lags();
    let renewed = resident();
    let slices = slices::run(&session, &guards, settings.ttl, settings.duration).await?;
    measure_tables(database.as_ref(), &mut tables).await?;
    let [jeopardy, lost] = totals();
    let held = guards.iter().filter(|guard| !guard.state().is_lost());
    let held = held.count();

    print_step("releasing the locks");
    let (session, releasing) = leases::release_all(target, session, guards).await?;
    let still_held = session.held().await?;
    leases::remove_counters(&session, settings.leases).await?;
    pairs_without_renewals.locks = other_lock(&session)?;
    pairs_without_renewals
        .run(settings.duration / PAIRS, &session)
        .await?;
    Ok(Findings {
        taking,
        resident: [before, taken, renewed],
        observed,
        tables,
        lag,
        slices,
        pairs_without_renewals,
        jeopardy: jeopardy - totals_before[0],
        lost: lost - totals_before[1],
        held,
        releasing,
        still_held,
    })
}

/// What is used while there is nothing to do but renewals.
async fn observe(
    settings: &Settings,
    session: &Session,
    database: Option<&Database>,
    tables: &mut Vec<[i64; 2]>,
) -> Result<Usage> {
    let server = || database.and_then(Database::cpu);
    let (start, before) = (Usage::now(session).await?, server());
    for _ in 0..2 {
        measure_tables(database, tables).await?;
        tokio::time::sleep(settings.duration / 2).await;
    }
    let mut observed = Usage::now(session).await?.since(&start);
    if let Some((before, after)) = before.zip(server()) {
        observed.server = Some(ServerStats {
            cpu: after.saturating_sub(before),
            ..ServerStats::default()
        });
    }
    measure_tables(database, tables).await?;
    Ok(observed)
}

async fn measure_tables(database: Option<&Database>, tables: &mut Vec<[i64; 2]>) -> Result<()> {
    if let Some(database) = database {
        tables.push(database.tables().await?);
    }
    Ok(())
}

/// Pairs of another lock, which nobody else wants, by one task.
fn other_lock(session: &Session) -> Result<Vec<Lock>> {
    Ok(vec![Lock::Ours(session.mutex(OTHER)?)])
}
