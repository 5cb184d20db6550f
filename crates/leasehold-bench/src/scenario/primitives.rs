//! `primitives`: permits and reads in turn with the mutex of the same run, their renewal, and many readers in a queue.

use std::time::Duration;

use leasehold::LeaseOptions;
use serde_json::{Value, json};

use super::pairs::{Lock, Pairs};
use super::queue;
use crate::format::{per, ratio, round};
use crate::metrics_recorder;
use crate::options::Settings;
use crate::report::Findings;
use crate::target::{Session, Target};
use crate::usage::Usage;
use crate::{Failure, Result, print_step};

/// The number of rounds, in which each row has a slice. The first one only warms up.
///
/// Few, so that a slice is long beside the 20 ms for which readers share a lease.
const ROUNDS: u32 = 6;

/// The permits of a semaphore that one task uses.
const PERMITS: u32 = 5;

/// The readers of one lock, and the leases of each kind that are renewed.
const MANY: u32 = 64;

/// The other holders beside which a permit is acquired.
const OTHERS: [(&str, u32); 2] = [
    ("permit_beside_1_holder", 1),
    ("permit_beside_1000_holders", 1_000),
];

/// The tasks with a name each, whose requests travel together: about 64 in each call, as a Redis server has four stripes.
const BATCHED: u32 = 256;

/// The name of a row, and the locks of its tasks.
type Row = (&'static str, Vec<Lock>);

/// The ttl of leases whose renewal is measured. Each is renewed three times in it.
const TTL: Duration = Duration::from_secs(6);

/// Measures the rows in slices, each in turn, and then renewals.
pub(super) async fn measure(
    settings: &Settings,
    target: &Target,
    session: Session,
) -> Result<Findings> {
    metrics_recorder::install();
    let mut rows = kinds(&session, ["mutex", "permit", "read"], 1)?;
    let others = target.reopen(&session)?;
    let mut held = Vec::new();
    for (name, count) in OTHERS {
        let semaphore = others.semaphore(name, count + 1)?;
        for _ in 0..count {
            held.push(semaphore.acquire().await?);
        }
        let semaphore = session.semaphore(name, count + 1)?;
        rows.push((name, vec![Lock::Permit(semaphore)]));
    }
    let lock = session.rw_lock("readers")?;
    let readers = (0..MANY).map(|_| Lock::Read(lock.clone()));
    rows.push(("local_readers", readers.collect()));
    rows.extend(kinds(&session, ["mutexes", "permits", "reads"], BATCHED)?);
    let rows = rows.into_iter();
    let mut rows: Vec<_> = rows
        .map(|(name, locks)| (name, Pairs::new(locks)))
        .collect();
    print_step("measuring");
    let slice = settings.duration / (ROUNDS * rows.len() as u32);
    for round in 0..ROUNDS {
        for (_, pairs) in &mut rows {
            pairs.run(slice, &session).await?;
            if round == 0 {
                pairs.reset();
            }
        }
    }
    for permit in held {
        permit.release().await?;
    }
    print_step("measuring renewals");
    let [mutexes, permits] = renewals(&session, (settings.duration / 2).max(TTL)).await?;
    print_step("measuring readers behind a writer");
    let mut queues = Vec::new();
    for readers in [settings.waiters.div_ceil(10), settings.waiters] {
        queues.push(queue::measure(target, &session, readers).await?);
    }
    let mut report = report(&rows, &mutexes, &permits);
    report["behind_a_writer"] = queues.into();
    Ok((report, None))
}

/// Rows of mutexes, permits and reads, each with so many tasks, and a name for each of these.
fn kinds(session: &Session, names: [&'static str; 3], tasks: u32) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = names.map(|name| (name, Vec::new())).into();
    for task in 0..tasks {
        let [mutex, permit, read] = names.map(|name| format!("{name}/{task}"));
        rows[0].1.push(Lock::Ours(session.mutex(mutex)?));
        let semaphore = session.semaphore(permit, PERMITS)?;
        rows[1].1.push(Lock::Permit(semaphore));
        rows[2].1.push(Lock::Read(session.rw_lock(read)?));
    }
    Ok(rows)
}

/// Holds many mutexes, and then as many permits of one semaphore.
async fn renewals(session: &Session, duration: Duration) -> Result<[Usage; 2]> {
    let options = || LeaseOptions::new().ttl(TTL);
    let observe = async || {
        let before = Usage::now(session).await?;
        tokio::time::sleep(duration).await;
        Ok::<_, Failure>(Usage::now(session).await?.since(&before))
    };
    let mut guards = Vec::new();
    for name in 0..MANY {
        let mutex = session.mutex(format!("renewed/{name}"))?;
        guards.push(mutex.with(options())?.lock().await?);
    }
    let mutexes = observe().await?;
    for guard in guards {
        guard.release().await?;
    }
    let semaphore = session.semaphore("renewed", MANY)?.with(options())?;
    let mut permits = Vec::new();
    for _ in 0..MANY {
        permits.push(semaphore.acquire().await?);
    }
    let of_permits = observe().await?;
    for permit in permits {
        permit.release().await?;
    }
    Ok([mutexes, of_permits])
}

/// The processor time of the server for a renewal. `None`: there is no server, or it refuses.
fn server_us(used: &Usage) -> Option<f64> {
    let stats = used.server.filter(|_| used.renewals > 0)?;
    Some(stats.cpu.as_secs_f64() * 1e6 / per(used.renewals, 1))
}

fn calls(used: &Usage) -> Option<f64> {
    Some(per(used.calls?, used.renewals))
}

/// Each row has its ratios to the last one of mutexes before it, or to itself.
fn report(rows: &[(&str, Pairs)], mutexes: &Usage, permits: &Usage) -> Value {
    let mut report = json!({});
    let mut mutex = &rows[0].1;
    for (name, pairs) in rows {
        if name.starts_with("mutex") {
            mutex = pairs;
        }
        let mut figures = pairs.figures();
        let seconds = pairs.busy.as_secs_f64().max(1e-9);
        let requests = pairs.calls.map(|calls| round(per(calls, 1) / seconds));
        figures["requests_per_second"] = requests.into();
        figures["ratio"] = json!({
            "throughput": ratio(pairs.per_second(), mutex.per_second()),
            "p50": ratio(pairs.quantile_us(0.5), mutex.quantile_us(0.5)),
            "server_cpu": pairs.server_us().zip(mutex.server_us()).map(|(us, of_mutex)| ratio(us, of_mutex)),
        });
        report[*name] = figures;
    }
    let figures = |used: &Usage| {
        json!({
            "renewals": used.renewals,
            "calls_each": calls(used).map(round),
            "server_cpu_us_each": server_us(used).map(round),
        })
    };
    let ratio_of = |figure: fn(&Usage) -> Option<f64>| {
        let both = figure(permits).zip(figure(mutexes));
        both.map(|(permits, mutexes)| ratio(permits, mutexes))
    };
    report["renewal"] = json!({
        "mutexes": figures(mutexes),
        "permits": figures(permits),
        "ratio": {"calls": ratio_of(calls), "server_cpu": ratio_of(server_us)},
    });
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latencies::lock;
    use crate::report::{UNKNOWN, check};
    use crate::scenario::known::{latencies, stats};

    #[test]
    fn figures_are_ratios_to_the_mutex() {
        let pairs = |seconds: u64, micros: u64, calls: Option<u64>| {
            let mut pairs = Pairs::new(Vec::new());
            (pairs.busy, pairs.calls) = (Duration::from_secs(seconds), calls);
            pairs.server = Some(Duration::from_micros(micros * 10));
            *lock(&pairs.latencies) = latencies([micros; 100]);
            pairs
        };
        let rows = [
            ("mutex", pairs(1, 100, Some(200))),
            ("permit", pairs(2, 150, None)),
            ("mutexes", pairs(1, 20, None)),
            ("permits", pairs(1, 24, None)),
        ];
        let used = |calls: Option<u64>, cpu_us: u64| Usage {
            duration: TTL,
            cpu: TTL,
            calls,
            server: stats(cpu_us, 1, 1),
            renewals: 100,
            batches: 10,
        };
        let report = report(&rows, &used(Some(10), 400), &used(None, 600));
        check(
            &report,
            &[
                ("mutex.requests_per_second", 200.0),
                ("permit.requests_per_second", UNKNOWN),
                ("permit.ratio.throughput", 0.5),
                ("permit.ratio.p50", 1.5),
                ("permit.server_cpu_us_per_acquisition", 15.0),
                ("permits.ratio.server_cpu", 1.2),
                ("renewal.mutexes.calls_each", 0.1),
                ("renewal.permits.server_cpu_us_each", 6.0),
                ("renewal.ratio.calls", UNKNOWN),
                ("renewal.ratio.server_cpu", 1.5),
            ],
        );
    }
}
