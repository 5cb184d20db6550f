//! Diagnosis of real stores.

mod allowed;
mod clusters;
mod databases;
mod deployments;
mod files;
mod rights;
mod servers;

use leasehold::Client;
use leasehold::doctor::{Finding, Report, Severity};
use leasehold_testkit::{RedisServer, eventually, eventually_async};

use crate::store_client::PATIENCE;
use crate::waiters::SOON;

pub(crate) use self::rights::{PASSWORD, allow};

async fn diagnose(url: &str) -> Report {
    let builder = Client::builder().response_timeout(PATIENCE);
    builder.diagnose(url).await.unwrap()
}

/// Diagnoses servers until no replica seems to lag: on a busy machine the last message of one may be some seconds old.
async fn diagnose_in_step(url: &str) -> Report {
    let mut report = diagnose(url).await;
    eventually_async(SOON, async || {
        let mut findings = report.findings.iter();
        let lags = findings.any(|it| it.observed.contains("was last heard of"));
        if lags {
            report = diagnose(url).await;
        }
        !lags
    })
    .await;
    report
}

/// The most severe finding of a check.
#[track_caller]
fn found<'a>(report: &'a Report, check: &str) -> &'a Finding {
    let mut findings = report.findings.iter();
    let found = findings.find(|finding| finding.check == check);
    found.unwrap_or_else(|| panic!("no {check} in {report:#?}"))
}

/// All findings above `Ok`.
fn wrong(report: &Report) -> Vec<&Finding> {
    let findings = report.findings.iter();
    findings.filter(|f| f.severity > Severity::Ok).collect()
}

/// Checks that a check found something, with these words in what was observed and in the fix, and why it matters.
#[track_caller]
fn assert_found(report: &Report, check: &str, severity: Severity, observed: &str, fix: &str) {
    let is_it = |it: &Finding| {
        let is_of_check = (it.check, it.severity) == (check, severity);
        let has_fix = it.fix.as_deref().unwrap_or_default().contains(fix);
        let is_complete = it.consequence.is_some() && it.fix.is_some();
        let has_words = it.observed.contains(observed) && has_fix;
        is_of_check && has_words && (is_complete || severity == Severity::Ok)
    };
    assert!(report.findings.iter().any(is_it), "{report:#?}");
}

/// The only finding above `Ok`, which is of this check and has these words.
#[track_caller]
fn only<'a>(
    report: &'a Report,
    check: &str,
    severity: Severity,
    observed: &str,
    fix: &str,
) -> &'a Finding {
    assert_found(report, check, severity, observed, fix);
    let [finding] = wrong(report)[..] else {
        panic!("not {check} alone: {report:#?}");
    };
    assert!(!finding.observed.is_empty() && finding.fix.is_some());
    finding
}

/// Waits until so many replicas have acknowledged all writes of a master. One that is online
/// may still be loading.
pub(crate) fn in_step(master: &RedisServer, replicas: usize) {
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
