//! The figures of observers.

use serde_json::json;

use super::Findings;
use crate::format::{per, round};
use crate::options::Settings;
use crate::report::Report;

pub(super) fn report(settings: &Settings, store: &str, findings: &Findings) -> Report {
    let changes = findings.changes;
    let server = findings.used.and_then(|used| used.server);
    let cpu_us = server.map(|server| server.cpu.as_secs_f64() * 1e6);
    let mut report = Report::new(settings.scenario, settings.duration.as_secs_f64(), store);
    report.add_all(json!({
        "observers": settings.observers,
        "processes": settings.processes,
        "election": settings.election,
        "changes": changes,
        "granted": findings.granted.spread(),
        "notified": findings.notified.spread(),
        "notified_since_grant": findings.notified_since_grant.spread(),
        "readings_per_change": server.map(|server| round(per(server.readings, changes))),
        "server_cpu_us_per_change": cpu_us.map(|us| round(us / per(changes.max(1), 1))),
    }));
    report
}
