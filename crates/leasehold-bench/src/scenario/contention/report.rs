//! The figures of contention.

use serde_json::{Value, json};

use super::Contention;
use super::tasks::Share;
use crate::format::{count, fine, number, per, percent, ratio, round, time, times};
use crate::report::{Report, Row};

impl Contention {
    pub(super) fn report(&self, store: &str, shares: &[Share]) -> Report {
        let seconds = self.duration.as_secs_f64();
        let mut report = Report::new(self.scenario, &self.workload(), seconds, store);
        report.figures(json!({
            "names": self.names,
            "processes": self.processes,
            "tasks": self.tasks,
            "threads": self.threads,
        }));
        let total = Share::total(shares);
        report.figures(total.figures(seconds));
        let by_process = shares.iter().map(|share| {
            let mut figures = share.figures(seconds);
            figures["share"] = share.part_of(&total).into();
            figures
        });
        report.figure("by_process", by_process.collect::<Vec<_>>());
        self.add_tables(&mut report, &total, shares);
        if let Some(calls) = total.calls_per_acquisition() {
            report.remark("store calls for each acquisition", format!("{calls:.3}"));
        }
        let handoffs = total.handoffs_per_acquisition();
        report.remark("hand-offs for each acquisition", format!("{handoffs:.3}"));
        self.add_section(&mut report, &total);
        add_fairness(&mut report, &total, shares, seconds);
        add_exclusion(&mut report, &total);
        report
    }

    fn workload(&self) -> String {
        let names = match self.names {
            1 => "one name".to_owned(),
            names => count(names, "name"),
        };
        format!(
            "{names}, {} of {} on {}{}",
            count(self.processes, "process"),
            count(self.tasks, "task"),
            count(self.threads, "thread"),
            if self.processes == 1 { "" } else { " each" },
        )
    }

    /// Acquisitions and waits: all, then each process if there are several.
    fn add_tables(&self, report: &mut Report, total: &Share, shares: &[Share]) {
        let seconds = self.duration.as_secs_f64();
        let several = self.processes > 1;
        let mut rows = vec![("all".to_owned(), total)];
        if several {
            let numbered = shares.iter().zip(1..);
            rows.extend(numbered.map(|(share, number)| (format!("process {number}"), share)));
        }
        let rates = rows.iter().map(|(name, share)| {
            let rate = share.per_second(seconds);
            let mut cells = vec![number(rate)];
            if several {
                cells.push(percent(share.part_of(total)));
            }
            Row::new(name, rate, cells)
        });
        let columns: &[&str] = if several { &["", "share"] } else { &[] };
        report.table("acquisitions a second", columns, &rates.collect::<Vec<_>>());
        let rates = ["busiest", "median", "idlest"]
            .into_iter()
            .zip(task_rates(total, seconds));
        let rates = rates.map(|(name, rate)| Row::new(name, rate, [number(rate)]));
        report.table("those of one task", &[], &rates.collect::<Vec<_>>());
        let waits = rows.iter().map(|(name, share)| {
            let waits = share.waits.spread_us();
            Row::new(name, waits[0], waits.map(time))
        });
        let columns = ["p50", "p99", "longest"];
        report.table("the wait for a lock", &columns, &waits.collect::<Vec<_>>());
    }

    fn add_section(&self, report: &mut Report, total: &Share) {
        if self.section.is_zero() {
            report.figure("section", Value::Null);
            return;
        }
        let counts = &total.counts;
        let asked_us = round(self.section.as_secs_f64() * 1e6);
        let mean_us = round(per(counts.section_ns, counts.sections) / 1e3);
        let in_use = fine(per(counts.in_section_ns, 1) / (self.duration.as_secs_f64() * 1e9));
        let figures = json!({"asked_us": asked_us, "mean_us": mean_us, "in_use": in_use});
        report.figure("section", figures);
        let mean = format!("{} (set to {})", time(mean_us), time(asked_us));
        report.remark("a critical section took", mean);
        report.remark("the lock was in use", percent(in_use));
    }
}

impl Share {
    fn per_second(&self, seconds: f64) -> f64 {
        round(per(self.counts.acquisitions, 1) / seconds)
    }

    fn part_of(&self, total: &Self) -> f64 {
        fine(per(self.counts.acquisitions, total.counts.acquisitions))
    }

    fn calls_per_acquisition(&self) -> Option<f64> {
        self.calls
            .map(|calls| fine(per(calls, self.counts.acquisitions)))
    }

    fn handoffs_per_acquisition(&self) -> f64 {
        fine(per(self.handoffs, self.counts.acquisitions))
    }

    fn figures(&self, seconds: f64) -> Value {
        let [p50_us, p99_us, max_us] = self.waits.spread_us();
        json!({
            "acquisitions": self.counts.acquisitions,
            "acquisitions_per_second": self.per_second(seconds),
            "wait": {"p50_us": p50_us, "p99_us": p99_us, "max_us": max_us},
            "commands_per_acquisition": self.calls_per_acquisition(),
            "handoffs": self.handoffs,
            "handoffs_per_acquisition": self.handoffs_per_acquisition(),
        })
    }
}

/// Acquisitions a second of the busiest task of all processes, of the median one and of the idlest.
fn task_rates(total: &Share, seconds: f64) -> [f64; 3] {
    let mut counts = total.by_task.clone();
    counts.sort_unstable();
    [counts.len().saturating_sub(1), counts.len() / 2, 0].map(|at| {
        let count = counts.get(at).copied();
        round(per(count.unwrap_or(0), 1) / seconds)
    })
}

fn add_fairness(report: &mut Report, total: &Share, shares: &[Share], seconds: f64) {
    let waits = &total.waits;
    let wait_p99_per_p50 = ratio(waits.quantile_us(0.99), waits.quantile_us(0.5));
    let parts = shares.iter().map(|share| share.part_of(total));
    let by_process: Vec<_> = shares
        .iter()
        .map(|share| share.counts.acquisitions)
        .collect();
    let [busiest, median, idlest] = task_rates(total, seconds);
    let (process_departure, task_departure) = (departure(&by_process), departure(&total.by_task));
    report.figure(
        "fairness",
        json!({
            "wait_p99_per_p50": wait_p99_per_p50,
            "process_share_min": parts.clone().fold(1.0, f64::min),
            "process_share_max": parts.fold(0.0, f64::max),
            "process_departure": process_departure,
            "task_per_second_min": idlest,
            "task_per_second_median": median,
            "task_per_second_max": busiest,
            "task_departure": task_departure,
        }),
    );
    let spread = format!("{} the median", times(wait_p99_per_p50));
    report.remark("the p99 of the waits is", spread);
    if shares.len() > 1 {
        let departure = percent(process_departure);
        report.remark("a process departs from an equal share by", departure);
    }
    report.remark(
        "a task departs from an equal share by",
        percent(task_departure),
    );
}

/// The largest distance of a count from an equal share, as a part of an equal share.
fn departure(counts: &[u64]) -> f64 {
    let equal = per(counts.iter().sum(), counts.len() as u64);
    let distances = counts.iter().map(|count| (per(*count, 1) - equal).abs());
    fine(distances.fold(0.0, f64::max) / equal.max(f64::MIN_POSITIVE))
}

fn add_exclusion(report: &mut Report, total: &Share) {
    let (observations, checked) = (&total.observations, total.counts.checked);
    let (overlaps, token_faults) = (observations.overlaps, observations.token_faults);
    let held = observations.exclusive();
    report.figure(
        "exclusion",
        json!({
            "held": held,
            "acquisitions": checked,
            "overlaps": overlaps,
            "token_faults": token_faults,
        }),
    );
    let outcome = if held { "held" } else { "BROKEN" };
    let checked = number(per(checked, 1));
    let text = format!("{outcome}, {checked} acquisitions checked");
    report.remark("mutual exclusion and the order of tokens", text);
    if !held {
        report.fail(format!(
            "mutual exclusion was broken: {overlaps} holders at once, {token_faults} tokens out of order"
        ));
    }
}
