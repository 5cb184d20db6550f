//! `observe`: the time from a release to the moment at which each of many observers is notified of the next holder, or from a
//! resignation to the next leader.
//!
//! The run itself has two candidates, each with a connection of its own, which pass the lock back and forth. The
//! observers are in other processes, those of a process share a client. Only with a store in memory all of them are in the
//! run's own process.

mod observers;
#[cfg(test)]
mod tests;

use std::time::Duration;

use leasehold_core::LeaseId;
use serde_json::{Value, json};

use self::observers::Observers;
pub(super) use self::observers::serve;
use super::candidate::{Acquired, Candidate};
use crate::clock::Moment;
use crate::format::{per, round};
use crate::latencies::Latencies;
use crate::options::Settings;
use crate::report;
use crate::server_stats::ServerStats;
use crate::target::{Session, Target};
use crate::usage::Usage;
use crate::workers::Workers;
use crate::{Result, print_step};

/// The lock, or the election.
const NAME: &str = "observed";

/// The time from one change to the next: the next candidate is waiting by then, and the observers have been notified of that.
const SETTLE: Duration = Duration::from_millis(50);

/// The number of changes that only warm up.
const WARM_UPS: u32 = 3;

/// The findings of a run.
#[derive(Debug, Default)]
struct Findings {
    /// From just before the release to the grant in the other client.
    granted: Latencies,
    /// From just before the release to the observers.
    notified: Latencies,
    /// From the grant to the observers.
    notified_since_grant: Latencies,
    changes: u64,
    /// The work of the server. `None`: there is no server, or it refuses.
    server: Option<ServerStats>,
}

/// The observers of a run.
enum ObserverGroup {
    Local(Observers),
    Workers(Workers),
}

/// Lets a lock or a leadership change hands, and waits each time until all observers have been notified.
pub(super) async fn measure(
    settings: &Settings,
    target: &Target,
    first: Session,
) -> Result<report::Findings> {
    let second = match target.is_private() {
        true => target.reopen(&first)?,
        false => target.open_beside(&first).await?,
    };
    let mut candidates = [
        Candidate::new(&first, settings, NAME)?,
        Candidate::new(&second, settings, NAME)?,
    ];
    let mut group = ObserverGroup::start(settings, target, &first).await?;
    print_step("measuring");
    let mut findings = Findings::default();
    let mut held = candidates[0].acquire().await?;
    for _ in 0..WARM_UPS {
        held = change(&mut candidates, held, &mut group, &mut findings).await?;
    }
    findings = Findings::default();
    let before = Usage::now(&first).await?;
    let end = Moment::now().after(settings.duration);
    while Moment::now() < end {
        held = change(&mut candidates, held, &mut group, &mut findings).await?;
    }
    findings.server = Usage::now(&first).await?.since(&before).server;
    held.release().await?;
    if let ObserverGroup::Workers(workers) = group {
        workers.finish().await?;
    }
    Ok((figures(settings, &findings), None))
}

fn figures(settings: &Settings, findings: &Findings) -> Value {
    let (changes, server) = (findings.changes, findings.server);
    let cpu_us = server.map(|server| server.cpu.as_secs_f64() * 1e6);
    json!({
        "observers": settings.observers,
        "processes": settings.processes,
        "election": settings.election,
        "changes": changes,
        "granted": findings.granted.spread(),
        "notified": findings.notified.spread(),
        "notified_since_grant": findings.notified_since_grant.spread(),
        "readings_per_change": server.map(|server| round(per(server.readings, changes))),
        "server_cpu_us_per_change": cpu_us.map(|us| round(us / per(changes.max(1), 1))),
    })
}

/// Lets the other candidate be granted the lock that is held.
async fn change(
    candidates: &mut [Candidate; 2],
    held: Acquired,
    group: &mut ObserverGroup,
    findings: &mut Findings,
) -> Result<Acquired> {
    candidates.reverse();
    let next = async {
        let held = candidates[0].acquire().await?;
        Ok::<_, crate::Failure>((held, Moment::now()))
    };
    let release = async {
        tokio::time::sleep(SETTLE).await;
        let released = Moment::now();
        held.release().await?;
        Ok(released)
    };
    let ((next, granted), released) = tokio::try_join!(next, release)?;
    next.proclaimed().await?;
    findings.changes += 1;
    findings
        .granted
        .record_nanos(granted.nanos_since(released), 1);
    for notified in group.notified(next.lease()).await? {
        findings
            .notified
            .record_nanos(notified.nanos_since(released), 1);
        let since_grant = notified.nanos_since(granted);
        findings.notified_since_grant.record_nanos(since_grant, 1);
    }
    Ok(next)
}

impl ObserverGroup {
    async fn start(settings: &Settings, target: &Target, session: &Session) -> Result<Self> {
        Ok(match target.is_private() {
            true => {
                let session = target.reopen(session)?;
                Self::Local(Observers::start(&session, settings, settings.observers).await?)
            }
            false => Self::Workers(Workers::start(target, settings, settings.processes).await?),
        })
    }

    /// Waits until all observers have been notified of this holder. Returns when.
    async fn notified(&mut self, lease: LeaseId) -> Result<Vec<Moment>> {
        match self {
            Self::Local(observers) => observers.notified(lease).await,
            Self::Workers(workers) => {
                let notified: Vec<Vec<Moment>> = workers.ask(&lease.to_string()).await?;
                Ok(notified.concat())
            }
        }
    }
}
