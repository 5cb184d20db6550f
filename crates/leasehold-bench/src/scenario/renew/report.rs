//! The figures of renewals.

use std::time::Duration;

use leasehold::Guard;
use serde_json::{Value, json};

use super::slices::{Slices, Work};
use super::{Findings, Pairs, Renew};
use crate::format::{count, fine, number, per, ratio, round, time, times};
use crate::options::Scenario;
use crate::report::{Report, Row};

impl Renew {
    pub(super) fn report(&self, store: &str, findings: &Findings) -> Report {
        let leases = count(self.leases, "lease");
        let workload = format!("{leases} with a ttl of {} s", self.ttl.as_secs_f64());
        let seconds = round(findings.observed.duration.as_secs_f64());
        let mut report = Report::new(Scenario::Renew, &workload, seconds, store);
        report.figures(json!({
            "leases": self.leases,
            "ttl_ms": self.ttl.as_secs_f64() * 1e3,
            "tasks": self.tasks,
            "threads": self.threads,
        }));
        self.add_held(&mut report, findings);
        add_renewal(&mut report, &findings.slices);
        add_pairs(&mut report, &findings.alone, &findings.slices.pairs);
        self.add_memory(&mut report, findings.resident);
        self.add_outcome(&mut report, findings);
        report
    }

    /// What was used and done while there was nothing to do but renewals.
    fn add_held(&self, report: &mut Report, findings: &Findings) {
        let (used, lag) = (&findings.observed, &findings.lag);
        let seconds = used.duration.as_secs_f64().max(1e-9);
        let core = |cpu: Duration| fine(cpu.as_secs_f64() / seconds);
        let process_cpu = core(used.cpu);
        let server_cpu = used.server.map(|stats| core(stats.cpu));
        let each = per(used.renewals, self.leases.into());
        let renewed_every_s = (each > 0.0).then(|| round(seconds / each));
        let per_10_s = |calls| round(per(calls, 1) / seconds * 10.0);
        let calls_per_10_s = used.calls.map(per_10_s);
        // By the library's own count, else every call is one.
        let batches = Some(used.batches).filter(|batches| *batches > 0);
        let batches = batches.or(used.calls).filter(|batches| *batches > 0);
        let renewals_per_batch = batches.map(|batches| round(per(used.renewals, batches)));
        report.figure(
            "held",
            json!({
                "process_cpu": process_cpu,
                "server_cpu": server_cpu,
                "renewals": used.renewals,
                "renewed_every_s": renewed_every_s,
                "calls": used.calls,
                "calls_per_10_s": calls_per_10_s,
                "renewals_per_batch": renewals_per_batch,
                "lag": lag.spread(),
            }),
        );
        let cores = [
            Some(("process", process_cpu)),
            server_cpu.map(|cpu| ("server", cpu)),
        ];
        let rows = cores.into_iter().flatten();
        let rows = rows.map(|(name, cpu)| Row::new(name, cpu, [format!("{:.2} %", cpu * 100.0)]));
        let heading = "processor time for renewals, of one core";
        report.table(heading, &[], &rows.collect::<Vec<_>>());
        if lag.count() > 0 {
            let columns = ["p50", "p99", "longest"];
            let row = Row::new("batches", 1.0, lag.spread_us().map(time));
            report.table("renewals sent after they were due", &columns, &[row]);
        }
        let mut text = number(per(used.renewals, 1));
        if let Some(every) = renewed_every_s {
            text += &format!(", each lease every {every:.2} s");
        }
        report.remark("renewals", text);
        if let Some(calls) = calls_per_10_s {
            report.remark("store calls in 10 s", number(calls));
        }
        if let Some(renewals) = renewals_per_batch {
            report.remark("renewals in a batch", format!("{renewals:.1}"));
        }
    }

    fn add_memory(&self, report: &mut Report, resident: [Option<u64>; 3]) {
        let [Some(before), Some(taken), Some(renewed)] = resident else {
            report.figure("memory", Value::Null);
            return;
        };
        let guard = size_of::<Guard>();
        #[allow(clippy::cast_precision_loss)]
        let beyond = |after: u64| {
            let each = per(after.saturating_sub(before), self.leases.into());
            round((each - guard as f64).max(0.0))
        };
        report.figure(
            "memory",
            json!({
                "before": before,
                "taken": taken,
                "renewed": renewed,
                "guard": guard,
                "beyond_guard": beyond(renewed),
                "beyond_guard_taken": beyond(taken),
            }),
        );
        let text = format!(
            "{} bytes, and its guard of {guard}",
            number(beyond(renewed))
        );
        report.remark("memory of a lease in this process", text);
    }

    /// What became of the leases.
    fn add_outcome(&self, report: &mut Report, findings: &Findings) {
        let (jeopardy, lost, left) = (findings.jeopardy, findings.lost, findings.left);
        report.figures(json!({
            "trouble": {"jeopardy": jeopardy, "lost": lost, "held": findings.held},
            "left": left,
        }));
        report.remark(
            "leases that were in jeopardy, lost",
            format!("{jeopardy}, {lost}"),
        );
        for (name, took) in [("taken", findings.taking), ("released", findings.releasing)] {
            let seconds = took.as_secs_f64();
            let per_second = round(f64::from(self.leases) / seconds.max(1e-9));
            let figures = json!({"seconds": round(seconds), "per_second": per_second});
            report.figure(name, figures);
            let text = format!("{seconds:.2} s, {} a second", number(per_second));
            report.remark(&format!("all {name} in"), text);
        }
        report.remark("locks still held then", left.to_string());
        let not_held = (self.leases as usize).saturating_sub(findings.held) as u64;
        if not_held > 0 || lost > 0 || left > 0 {
            report.fail(format!(
                "leases were not held to their end: {} lost, and {left} still there after their release",
                not_held.max(lost)
            ));
        }
    }
}

/// What a renewal costs the server.
fn add_renewal(report: &mut Report, slices: &Slices) {
    let Some([ours, bare]) = renewal_costs(slices) else {
        report.figure("renewal", Value::Null);
        return;
    };
    let renewals = [slices.ours.due, slices.bare.bare];
    let figures = |[server_cpu_us, script_us]: [f64; 2], renewals: u64| json!({"renewals": renewals, "server_cpu_us": server_cpu_us, "script_us": script_us});
    let (cpu, script) = (ratio(ours[0], bare[0]), ratio(ours[1], bare[1]));
    report.figure(
        "renewal",
        json!({
            "ours": figures(ours, renewals[0]),
            "bare": figures(bare, renewals[1]),
            "ratio": {"server_cpu": cpu, "script": script},
        }),
    );
    let row = |name, cost: [f64; 2], renewals| {
        let [cpu, script] = cost.map(time);
        Row::new(name, cost[0], [cpu, script, number(per(renewals, 1))])
    };
    let rows = [
        row("leasehold", ours, renewals[0]),
        row("bare calls", bare, renewals[1]),
    ];
    let columns = ["in all", "in scripts", "renewals"];
    report.table("server time for each renewal", &columns, &rows);
    report.remark(
        "a renewal takes the server",
        format!("{} a bare call's time", times(cpu)),
    );
    report.remark(
        "and in scripts",
        format!("{} a bare call's time", times(script)),
    );
}

/// The server's processor time for a renewal, ours and bare, and its time in scripts, in
/// microseconds.
///
/// While bare renewals are done, ours go on. Their cost is known from the slices without others.
fn renewal_costs(slices: &Slices) -> Option<[[f64; 2]; 2]> {
    let cost = |work: &Work, renewals: u64, others: [f64; 2]| {
        let stats = work.server.filter(|_| renewals > 0)?;
        let each = |all: Duration, others: f64| {
            let own = (all.as_secs_f64() * 1e6 - others).max(0.0);
            round(own / per(renewals, 1))
        };
        Some([
            each(stats.cpu, others[0]),
            each(stats.script_time, others[1]),
        ])
    };
    let ours = cost(&slices.ours, slices.ours.due, [0.0; 2])?;
    let others = ours.map(|us| us * per(slices.bare.due, 1));
    Some([ours, cost(&slices.bare, slices.bare.bare, others)?])
}

/// Another lock and its release, while no leases are held and beside their renewals.
fn add_pairs(report: &mut Report, alone: &Pairs, beside: &Pairs) {
    let sides = [("no leases", alone), ("beside them", beside)];
    let ratio_of = |figure: fn(&Pairs) -> f64| ratio(figure(beside), figure(alone));
    let (p50, throughput) = (ratio_of(Pairs::p50_us), ratio_of(Pairs::per_second));
    let p99 = ratio_of(|pairs| pairs.latencies.quantile_us(0.99));
    report.figure(
        "pairs",
        json!({
            "alone": alone.figures(),
            "beside": beside.figures(),
            "ratio": {"throughput": throughput, "p50": p50, "p99": p99},
        }),
    );
    let rows = sides.map(|(name, pairs)| {
        let [p50, p99, _] = pairs.latencies.spread_us();
        Row::new(
            name,
            p50,
            [time(p50), time(p99), number(pairs.per_second())],
        )
    });
    let columns = ["p50", "p99", "a second"];
    report.table("another lock and its release", &columns, &rows);
    let text = format!("{} its time alone", times(p50));
    report.remark("another lock and its release takes", text);
    report.remark(
        "and in a second there are",
        format!("{} as many", times(throughput)),
    );
}

impl Pairs {
    fn per_second(&self) -> f64 {
        round(per(self.latencies.count(), 1) / self.busy.as_secs_f64().max(1e-9))
    }

    fn p50_us(&self) -> f64 {
        self.latencies.quantile_us(0.5)
    }

    fn figures(&self) -> Value {
        let [p50_us, p99_us, _] = self.latencies.spread_us();
        json!({
            "count": self.latencies.count(),
            "per_second": self.per_second(),
            "p50_us": p50_us,
            "p99_us": p99_us,
        })
    }
}
