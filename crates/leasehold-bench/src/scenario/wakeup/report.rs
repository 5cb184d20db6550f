//! The figures of waking up.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Findings, TTL, TTLS, Waiting, Wakeup, Work};
use crate::Result;
use crate::format::{count, fine, number, per, ratio, round, time, times};
use crate::options::Scenario;
use crate::report::{Report, Row};

impl Wakeup {
    pub(super) fn report(&self, store: &str, findings: &Findings) -> Result<Report> {
        let (wake_ups, round_trips) = (&findings.wake_ups, &findings.round_trips);
        let (Some(wake_up), Some(round_trip)) = (wake_ups.spread(), round_trips.spread()) else {
            return Err(
                "no client was woken in that time; measure for longer with --seconds".into(),
            );
        };
        let ratio_of = |quantile| {
            ratio(
                wake_ups.quantile_us(quantile),
                round_trips.quantile_us(quantile),
            )
        };
        let workload = format!("{} in 2 processes", count(self.waiters + 1, "client"));
        let seconds = self.duration.as_secs_f64();
        let mut report = Report::new(Scenario::Wakeup, &workload, seconds, store);
        report.figures(json!({
            "waiters": self.waiters,
            "pause_us": round(findings.hold.as_secs_f64() * 1e6),
            "wake_up": wake_up,
            "round_trip": round_trip,
            "ping": findings.pings.spread(),
            "ratio": {"p50": ratio_of(0.5), "p99": ratio_of(0.99)},
        }));
        let spreads = [
            ("wake-up", wake_ups),
            ("bare call", round_trips),
            ("ping", &findings.pings),
        ];
        let rows = spreads
            .into_iter()
            .filter(|(_, latencies)| latencies.count() > 0);
        let rows = rows.map(|(name, latencies)| {
            let spread = latencies.spread_us();
            Row::new(name, spread[0], spread.map(time))
        });
        let columns = ["p50", "p99", "longest"];
        report.table(
            "from release to acquisition",
            &columns,
            &rows.collect::<Vec<_>>(),
        );
        report.remark(
            "a wake-up takes",
            format!("{} a bare call", times(ratio_of(0.5))),
        );
        report.remark("wake-ups measured", number(per(wake_ups.count(), 1)));
        self.add_work(&mut report, findings);
        self.add_waiting(&mut report, findings.waiting);
        Ok(report)
    }

    /// The work for each release, with one waiter and with many.
    fn add_work(&self, report: &mut Report, findings: &Findings) {
        let one = (1, &findings.one);
        let many = (self.waiters > 1).then_some((self.waiters, &findings.many));
        report.figure("one_waiter", findings.one.figures(1));
        report.figure(
            "many_waiters",
            many.map(|(waiters, work)| work.figures(waiters)),
        );
        let works = [Some(one), many].into_iter().flatten();
        let rows: Vec<_> = works
            .clone()
            .filter_map(|(waiters, work)| {
                let [cpu, script] = work.server_us()?;
                let cells = [time(cpu), time(script), number(per(work.releases, 1))];
                Some(Row::new(count(waiters, "waiter"), cpu, cells))
            })
            .collect();
        if !rows.is_empty() {
            let columns = ["in all", "in scripts", "releases"];
            report.table("server time for each release", &columns, &rows);
        }
        let cpu = |work: &Work| work.server_us().map(|[cpu, _]| cpu);
        let cpu_ratio = many.and_then(|(_, many)| cpu(many)).zip(cpu(&findings.one));
        let cpu_ratio = cpu_ratio.map(|(many, one)| ratio(many, one));
        report.figure("server_cpu_ratio", cpu_ratio);
        if let Some(ratio) = cpu_ratio {
            let text = format!("{} its time for one", times(ratio));
            report.remark("with many waiters a release takes the server", text);
        }
        for (waiters, work) in works {
            if let Some(calls) = work.calls_per_release() {
                let name = format!("store calls for each release, {}", count(waiters, "waiter"));
                report.remark(&name, format!("{calls:.2}"));
            }
        }
    }

    fn add_waiting(&self, report: &mut Report, waiting: Waiting) {
        let chances = u64::from(self.waiters) * u64::from(TTLS);
        let each = waiting
            .requests
            .map(|requests| round(per(requests, chances)));
        report.figure(
            "asleep",
            json!({
                "waiters": self.waiters,
                "ttl_ms": TTL.as_secs_f64() * 1e3,
                "ttls": TTLS,
                "requests": waiting.requests,
                "requests_per_waiter_and_ttl": each,
            }),
        );
        if let Some(each) = each {
            let name = "requests of a waiter in a ttl without a release";
            report.remark(name, format!("{each:.2}"));
        }
    }
}

impl Work {
    fn calls_per_release(&self) -> Option<f64> {
        self.calls.map(|calls| fine(per(calls, self.releases)))
    }

    /// The server's processor time for each release, and its time in scripts, in microseconds.
    fn server_us(&self) -> Option<[f64; 2]> {
        let each = |time: Duration| round(time.as_secs_f64() * 1e6 / per(self.releases.max(1), 1));
        self.server
            .map(|stats| [stats.cpu, stats.script_time].map(each))
    }

    fn figures(&self, waiters: u16) -> Value {
        json!({
            "waiters": waiters,
            "releases": self.releases,
            "commands_per_release": self.calls_per_release(),
            "server_cpu_us_per_release": self.server_us().map(|[cpu, _]| cpu),
            "script_us_per_release": self.server_us().map(|[_, script]| script),
        })
    }
}
