//! The figures of wakeups.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Findings, TTL, TTLS, Work};
use crate::Result;
use crate::format::{fine, per, ratio, round};
use crate::latencies::Latencies;
use crate::options::Settings;
use crate::report::Report;

pub(super) fn report(settings: &Settings, store: &str, findings: &Findings) -> Result<Report> {
    let (wakeups, round_trips) = (&findings.wakeups, &findings.round_trips);
    if wakeups.count() == 0 || round_trips.count() == 0 {
        return Err("no client was woken in that time; measure for longer with --seconds".into());
    }
    let proclaimed = settings.election.then_some(&findings.proclaimed);
    let (one, many) = (&findings.one, &findings.many);
    let many = (settings.waiters > 1).then_some(many);
    let cpu = |work: &Work| work.server_us(|stats| stats.cpu);
    let cpu_ratio = many.and_then(cpu).zip(cpu(one));
    let ratio_at = |quantile| {
        ratio(
            wakeups.quantile_us(quantile),
            round_trips.quantile_us(quantile),
        )
    };
    let chances = u64::from(settings.waiters) * u64::from(TTLS);
    let requests = findings.requests;
    let seconds = settings.duration.as_secs_f64();
    let mut report = Report::new(settings.scenario, seconds, store);
    report.add_all(json!({
        "waiters": settings.waiters,
        "election": settings.election,
        "hold_us": round(findings.hold.as_secs_f64() * 1e6),
        "wakeup": wakeups.spread(),
        "proclaimed": proclaimed.and_then(Latencies::spread),
        "round_trip": round_trips.spread(),
        "ping": findings.pings.spread(),
        "ratio": {"p50": ratio_at(0.5), "p99": ratio_at(0.99)},
        "one_waiter": one.figures(1),
        "many_waiters": many.map(|work| work.figures(settings.waiters)),
        "server_cpu_ratio": cpu_ratio.map(|(many, one)| ratio(many, one)),
        "while_waiting": {
            "waiters": settings.waiters,
            "ttl_ms": TTL.as_secs_f64() * 1e3,
            "ttls": TTLS,
            "requests": requests,
            "requests_per_waiter_and_ttl":
                requests.map(|requests| round(per(requests, chances))),
        },
    }));
    Ok(report)
}

impl Work {
    /// A time of the server for each release, in microseconds.
    fn server_us(&self, time: fn(&super::ServerStats) -> Duration) -> Option<f64> {
        let stats = self.server.as_ref()?;
        Some(round(
            time(stats).as_secs_f64() * 1e6 / per(self.releases.max(1), 1),
        ))
    }

    fn figures(&self, waiters: u16) -> Value {
        json!({
            "waiters": waiters,
            "releases": self.releases,
            "commands_per_release": self.calls.map(|calls| fine(per(calls, self.releases))),
            "server_cpu_us_per_release": self.server_us(|stats| stats.cpu),
            "script_us_per_release": self.server_us(|stats| stats.script_time),
        })
    }
}
