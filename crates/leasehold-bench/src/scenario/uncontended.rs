//! `uncontended`, `independent` and `watched`: each task has a lock of its own.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::LOCKS_IN_A_ROW;
use crate::baseline::BaselineLock;
use crate::format::{count, number, per, ratio, round, time, times};
use crate::latencies::{Latencies, lock};
use crate::options::Settings;
use crate::progress::Progress;
use crate::report::{Column, Report};
use crate::target::{Session, Target};
use crate::{Result, failed, runtime};

/// The number of slices of a run. The first of each side only warms up.
///
/// Many, so that both sides see the same machine; not too many, as each begins and ends with tasks
/// that do not all run.
const SLICES: u32 = 20;

/// One of the two sides that are compared.
struct Side {
    name: &'static str,
    locks: Vec<Lock>,
    pairs: u64,
    busy: Duration,
    calls: Option<u64>,
    latencies: Arc<Mutex<Latencies>>,
}

/// The lock of one task.
enum Lock {
    Ours(leasehold::Mutex),
    Baseline(BaselineLock),
}

/// Acquires and releases in slices, both sides in turn: ours, other, other, ours and so on.
pub(crate) fn measure(settings: &Settings, target: &Target) -> Result<Report> {
    runtime(settings.threads)?.block_on(async {
        let plain = target.open().await?;
        let session = match &settings.watchdog {
            Some(watchdog) => target.watched(&plain, watchdog).await?,
            None => plain.clone(),
        };
        let names = match &settings.watchdog {
            Some(_) => ["watched", "not watched"],
            None => ["leasehold", "bare calls"],
        };
        let [mut ours, mut other] = names.map(Side::new);
        for task in 0..settings.tasks {
            ours.locks.push(Lock::Ours(session.mutex(task)?));
            let name = format!("bare/{task}");
            other.locks.push(match &settings.watchdog {
                Some(_) => Lock::Ours(plain.mutex(name)?),
                None => Lock::Baseline(plain.baseline_lock(name)?),
            });
        }
        let _progress = Progress::start("measuring");
        for slice in 0..SLICES {
            let side = match slice % 4 {
                0 | 3 => &mut ours,
                _ => &mut other,
            };
            side.run(settings.duration / SLICES, &session).await?;
            if slice < 2 {
                let locks = std::mem::take(&mut side.locks);
                *side = Side::new(side.name);
                side.locks = locks;
            }
        }
        Ok(report(settings, &session.store(), &ours, &other))
    })
}

fn report(settings: &Settings, store: &str, ours: &Side, other: &Side) -> Report {
    let tasks = count(settings.tasks, "task");
    let workload = format!("{tasks} on {}", count(settings.threads, "thread"));
    let seconds = settings.duration.as_secs_f64();
    let mut report = Report::new(settings.scenario, &workload, seconds, store);
    report.add_all(ours.figures());
    report.add_all(json!({
        "tasks": settings.tasks,
        "threads": settings.threads,
        "raw": other.figures(),
        "ratio": {
            "throughput": ratio(ours.per_second(), other.per_second()),
            "p50": ratio(ours.quantile_us(0.5), other.quantile_us(0.5)),
        },
    }));
    let (we, they) = (ours.name, other.name);
    let sides = [(we, ""), (they, "raw")];
    let rate: Column<'_> = ("", "acquisitions_per_second", number);
    report.table("acquisitions a second", &sides, &[rate]);
    let columns = [("p50", "p50_us"), ("p95", "p95_us"), ("p99", "p99_us")];
    let columns = columns.map(|(heading, path)| -> Column<'_> { (heading, path, time) });
    report.table("one lock and release", &sides, &columns);
    report.line(
        &format!("acquisitions, {we} / {they}"),
        "ratio.throughput",
        times,
    );
    report.line(&format!("one takes, {we} / {they}"), "ratio.p50", times);
    for (name, path) in sides {
        let calls = format!("store calls for each acquisition, {name}");
        let path = format!("{path}.commands_per_acquisition");
        report.line(&calls, path.trim_matches('.'), |calls| {
            format!("{calls:.2}")
        });
    }
    report
}

impl Side {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            locks: Vec::new(),
            pairs: 0,
            busy: Duration::ZERO,
            calls: None,
            latencies: Arc::new(Mutex::new(Latencies::new())),
        }
    }

    /// Lets all tasks run for a duration.
    async fn run(&mut self, duration: Duration, session: &Session) -> Result<()> {
        let calls = session.calls();
        let start = Instant::now();
        let end = start + duration;
        let locks = self.locks.drain(..);
        let tasks: Vec<_> = locks
            .map(|lock| tokio::spawn(lock.repeat(end, Arc::clone(&self.latencies))))
            .collect();
        for task in tasks {
            let (lock, pairs) = task.await.map_err(failed("a task of the bench"))??;
            self.locks.push(lock);
            self.pairs += pairs;
        }
        self.busy += start.elapsed();
        if let (Some(before), Some(after)) = (calls, session.calls()) {
            *self.calls.get_or_insert(0) += after - before;
        }
        Ok(())
    }

    fn per_second(&self) -> f64 {
        round(per(self.pairs, 1) / self.busy.as_secs_f64().max(1e-9))
    }

    fn quantile_us(&self, quantile: f64) -> f64 {
        lock(&self.latencies).quantile_us(quantile)
    }

    fn calls_per_acquisition(&self) -> Option<f64> {
        self.calls.map(|calls| round(per(calls, self.pairs)))
    }

    fn figures(&self) -> Value {
        json!({
            "acquisitions_per_second": self.per_second(),
            "p50_us": self.quantile_us(0.5),
            "p95_us": self.quantile_us(0.95),
            "p99_us": self.quantile_us(0.99),
            "commands_per_acquisition": self.calls_per_acquisition(),
        })
    }
}

impl Lock {
    async fn pair(&mut self) -> Result<()> {
        match self {
            Self::Ours(mutex) => Ok(mutex.lock().await?.release().await?),
            Self::Baseline(lock) => lock.pair().await,
        }
    }

    async fn repeat(
        mut self,
        end: Instant,
        latencies: Arc<Mutex<Latencies>>,
    ) -> Result<(Self, u64)> {
        let mut pairs = 0;
        let mut start = Instant::now();
        while start < end {
            self.pair().await?;
            pairs += 1;
            let done = Instant::now();
            lock(&latencies).record(done - start);
            start = done;
            if pairs % LOCKS_IN_A_ROW == 0 {
                tokio::task::yield_now().await;
                start = Instant::now();
            }
        }
        Ok((self, pairs))
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Client;
    use leasehold_testkit::RedisServer;

    use super::*;
    use crate::options::Scenario;

    fn bench(url: &str, tasks: u16, threads: u16) -> Report {
        let settings = Settings {
            tasks,
            threads,
            duration: Duration::from_secs(1),
            ..Settings::of(Scenario::Independent)
        };
        measure(&settings, &Target::new(url, None, "leasehold", "default")).unwrap()
    }

    #[test]
    fn figures_are_what_was_counted() {
        let mut side = Side::new("leasehold");
        (side.pairs, side.calls) = (100, Some(150));
        side.busy = Duration::from_millis(500);
        for micros in 1..=100 {
            lock(&side.latencies).record(Duration::from_micros(micros));
        }
        let settings = Settings::of(Scenario::Uncontended);
        let report = report(&settings, "redis://host", &side, &Side::new("bare calls"));
        report.check(&[
            ("acquisitions_per_second", 200.0),
            ("commands_per_acquisition", 1.5),
            ("p50_us", 50.0),
            ("p95_us", 95.0),
            ("p99_us", 99.0),
            ("ratio.p50", 0.0),
        ]);
        report.check_unknown(&["raw.commands_per_acquisition"]);
        report.check_bars(&["leasehold"]);
    }

    #[test]
    fn memory_has_no_calls_and_many_threads_count_as_one() {
        let report = bench("memory:", 8, 2);
        report.check_unknown(&["commands_per_acquisition"]);
        assert!(report.number("raw.acquisitions_per_second") > Some(0.0));
        report.check_bars(&["leasehold", "bare calls"]);
    }

    #[test]
    fn a_run_leaves_no_lock_and_reports_no_password() {
        let server = RedisServer::options().requirepass("hunter2").start();
        let report = bench(&server.url(), 4, 1);
        assert!(
            report
                .at("store")
                .unwrap()
                .as_str()
                .unwrap()
                .starts_with("redis://")
        );
        assert!(!report.json().contains("hunter2") && !report.text().contains("hunter2"));
        let locks = runtime(1).unwrap().block_on(async {
            let client = Client::connect(&server.url()).await.unwrap();
            client.locks().await.unwrap()
        });
        assert!(locks.is_empty(), "{locks:?}");
    }
}
