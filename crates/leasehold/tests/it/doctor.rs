//! Diagnosis of real stores.

mod allowed;
mod clusters;
mod databases;
mod deployments;
mod files;
mod rights;
mod servers;

use std::time::Duration;

use leasehold::Client;
use leasehold::doctor::{Finding, Report, Severity};
use leasehold_testkit::{RedisServer, eventually};

pub(crate) use self::rights::{PASSWORD, allow};

/// Longer than any state of these tests takes to come about.
const SOON: Duration = Duration::from_secs(20);

async fn diagnose(url: &str) -> Report {
    Client::builder().diagnose(url).await.unwrap()
}

/// The most severe finding of a check.
#[track_caller]
fn found<'a>(report: &'a Report, check: &str) -> &'a Finding {
    let mut findings = report.findings.iter();
    let found = findings.find(|finding| finding.check == check);
    found.unwrap_or_else(|| panic!("no {check} in {report:#?}"))
}

/// The only finding above `Ok`, which is of this check.
#[track_caller]
fn only<'a>(report: &'a Report, check: &str, severity: Severity) -> &'a Finding {
    let wrong = report.findings.iter().filter(|f| f.severity > Severity::Ok);
    let wrong: Vec<_> = wrong.collect();
    let [finding] = wrong[..] else {
        panic!("not {check} alone: {report:#?}");
    };
    assert_eq!((finding.check, finding.severity), (check, severity));
    assert!(!finding.observed.is_empty() && finding.fix.is_some());
    finding
}

/// Waits until so many replicas have acknowledged all writes of a master. One that is online
/// may still be loading.
fn in_step(master: &RedisServer, replicas: usize) {
    eventually(SOON, || {
        let info = master.cli(&["INFO", "replication"]);
        let written = info.lines();
        let written = written
            .filter_map(|line| line.strip_prefix("master_repl_offset:"))
            .next();
        let acknowledged = format!(
            "state=online,offset={},",
            written.unwrap_or_default().trim()
        );
        info.matches(&acknowledged).count() == replicas
    });
}

/// A server with which nothing is wrong.
fn healthy() -> leasehold_testkit::RedisOptions {
    let options = RedisServer::options().append_only();
    options.config("aof-load-truncated no")
}
