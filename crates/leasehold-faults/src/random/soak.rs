//! The soak: a world of each store at the same time, for as long as the campaign lasts. Its servers and most of its holder
//! processes live to the end, and then use no more than at the beginning.
//!
//! It has parts, after which the processes rest: then the history of the part is checked and removed, and what is used is
//! measured.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold_testkit::{Etcd, Zookeeper, memory};
use tempfile::TempDir;

use super::bucket::Bucket;
use super::cluster::Cluster;
use super::plan::{HolderPlan, Plan};
use super::postgres::Postgres;
use super::servers::Servers;
use super::{Draw, Store, World, check, prepare, run_world};
use crate::history::Fault;
use crate::holder_process::HolderProcess;
use crate::scenario::{Outcome, Run, SOAK, Scenario};

/// A run is a part, of about a minute.
pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario("soak-single", |run| soak::<Servers>(run, Plan::draw, 0)),
    // The masters of this world keep what they have acknowledged.
    scenario("soak-masters", |run| {
        soak::<Servers>(run, Plan::draw_masters, 1)
    }),
    scenario("soak-file", |run| soak::<TempDir>(run, draw_file, 0)),
    scenario("soak-postgres", soak_of::<Postgres>),
    scenario("soak-etcd", soak_of::<Cluster<Etcd>>),
    scenario("soak-zookeeper", soak_of::<Cluster<Zookeeper>>),
    scenario("soak-bucket", soak_of::<Bucket>),
];

const fn scenario(name: &'static str, run: fn(&Run) -> Outcome) -> Scenario {
    let description = "a world as long as the campaign, beside those of the other stores";
    Scenario::new(SOAK, 15, name, (1, 0), run, description)
}

/// The length of the plan of a part. With the rest and the check it takes about a minute.
const PART: Duration = Duration::from_secs(50);

/// The processes of a world that campaign in an election, beside three holders.
const CANDIDATES: usize = 2;

/// The longest time between two turns of a task: all worlds together leave time to their servers.
const IDLE_MS: u64 = 500;

/// One of so many faults of a plan is injected.
const THINNED: u8 = 4;

/// With fewer parts a soak only warms up, and growth does not count.
const PARTS_JUDGED: usize = 30;

/// What is measured, and by how much it may grow beyond a tenth: the allocators of servers, and what happens to be under
/// way, differ from part to part.
const METRICS: [(&str, f64); 10] = [
    ("clients, MB", 8.0),
    ("largest client, MB", 2.0),
    ("descriptors of clients", 10.0),
    ("most descriptors of a client", 5.0),
    ("servers, MB", 16.0),
    ("largest server, MB", 8.0),
    ("descriptors of servers", 20.0),
    ("most descriptors of a server", 10.0),
    ("data, MB", 8.0),
    ("keys, rows, objects", 20.0),
];

/// The directories of logs that etcd and PostgreSQL recycle when they have reached a size of their own. ZooKeeper purges its
/// own by the hour, with snapshots that have the descriptions of clients.
const LOGS: [&str; 3] = ["wal", "pg_wal", "version-2"];

const MIB: f64 = (1 << 20) as f64;

/// A value for each metric.
type Sample = Vec<f64>;

/// A file has no faults of servers or connections.
fn draw_file(seed: u64, part: u64, world: u64, duration_ms: u64) -> Plan {
    Plan {
        sequences: Vec::new(),
        ..Plan::draw(seed, part, world, duration_ms)
    }
}

fn soak_of<S: Store>(run: &Run) -> Outcome {
    soak::<S>(run, Plan::draw_of::<S>, 0)
}

fn soak<S: Store>(run: &Run, draw: Draw, number: u64) -> Outcome {
    let end = Instant::now() + Duration::from_secs(60 * run.form.minutes);
    let mut world = prepare::<S>(plan(run, draw, number, 0));
    let (mut processes, mut samples) = (Vec::new(), Vec::new());
    let mut outcome = Outcome::default();
    loop {
        world.rests = Instant::now() + 2 * PART < end;
        processes = run_world(&mut world, processes);
        let report = check(run, &world, &format!("-{}", world.part));
        let summary = report.summary();
        outcome.report.merge(report);
        outcome.runs += 1;
        if !world.rests {
            break;
        }
        let sample = measure(&world, &processes);
        let campaign = used_by(&[std::process::id().cast_signed()])[0];
        eprintln!(
            "{}, part {}: {summary}; used {sample:.1?}; the campaign {campaign:.1} MB",
            run.name, outcome.runs
        );
        samples.push(sample);
        let living = processes.iter().flatten();
        world.recording.clear(living.map(|process| &*process.name));
        world.part += 1;
        world.plan = plan(run, draw, number, world.part);
    }
    let grown = growths(run.name, &samples);
    match samples.len() {
        PARTS_JUDGED.. => grown.into_iter().for_each(|row| outcome.miss(row)),
        parts => outcome.note(format!("{parts} parts are too few to see growth")),
    }
    outcome
}

/// The plan of a part: that of a random world with fewer faults and turns, and with candidates. One holder and one
/// candidate are killed, the others only stopped.
fn plan(run: &Run, draw: Draw, number: u64, part: u64) -> Plan {
    let mut plan = draw(run.seed, part, number, PART.as_millis() as u64);
    let first_candidate = plan.holders.len();
    let candidates = plan.holders[..CANDIDATES].to_vec();
    let candidates = candidates.into_iter().map(|holder| HolderPlan {
        campaigns: true,
        handoff: false,
        ..holder
    });
    plan.holders.extend(candidates);
    let mut rng = Rng::with_seed(run.seed ^ part);
    for (number, holder) in plan.holders.iter_mut().enumerate() {
        let is_killed = [0, first_candidate].contains(&number);
        holder.idle_ms = IDLE_MS;
        holder.faults.retain(|timed| {
            rng.u8(..THINNED) == 0 && (is_killed || timed.fault != Fault::KillHolder)
        });
    }
    for sequence in &mut plan.sequences {
        // A server is never notified that a connection that was swallowed has ended.
        sequence
            .faults
            .retain(|timed| rng.u8(..THINNED) == 0 && timed.fault != Fault::SwallowLink);
    }
    plan
}

fn measure<S: Store>(world: &World<S>, processes: &[Option<HolderProcess>]) -> Sample {
    let usage = world.store.usage();
    let clients = processes.iter().flatten();
    let clients = clients.map(|process| process.helper.pid().as_raw_nonzero().get());
    let clients = used_by(&clients.collect::<Vec<_>>());
    let data: u64 = usage.data.iter().map(|directory| size(directory)).sum();
    let entries = usage.entries.map_or(f64::NAN, |entries| entries as f64);
    let stored = [data as f64 / MIB, entries];
    [&clients[..], &used_by(&usage.pids), &stored].concat()
}

/// The memory of processes in MB, their sum and the largest, and the same of their descriptors.
fn used_by(pids: &[i32]) -> [f64; 4] {
    let mut used = [0.0; 4];
    for pid in pids {
        // Without memory that is shared, which all connections of PostgreSQL would count.
        let figures = ["RssAnon", "RssFile"].into_iter();
        let memory: u64 = figures.filter_map(|figure| memory(pid, figure)).sum();
        let memory = memory as f64 / MIB;
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
        let descriptors = descriptors.map_or(0, Iterator::count) as f64;
        let [memory_sum, largest, descriptors_sum, most] = used;
        used = [
            memory_sum + memory,
            memory.max(largest),
            descriptors_sum + descriptors,
            descriptors.max(most),
        ];
    }
    used
}

/// How much of the disk the files in a directory have, without those logs.
fn size(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let entries = entries.filter(|entry| LOGS.iter().all(|log| entry.file_name() != *log));
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    sizes.sum()
}

/// Prints a table of the lowest values in the first eighth of the samples, after a warm-up, and in the last: what is above
/// them was under way, or not yet removed. Returns its rows with a metric that grew.
fn growths(name: &str, samples: &[Sample]) -> Vec<String> {
    let (warm_up, count) = (samples.len() / 12, samples.len().div_ceil(8));
    let (mut table, mut grown) = (String::new(), Vec::new());
    for (nth, (metric, constant)) in METRICS.iter().enumerate() {
        let lowest = |samples: &[Sample]| {
            let values = samples.iter().map(|sample| sample[nth]);
            values.min_by(f64::total_cmp).unwrap_or_default()
        };
        let first = lowest(&samples[warm_up..warm_up + count]);
        let last = lowest(&samples[samples.len() - count..]);
        let is_flat = last <= first * 1.1 + constant;
        let (ratio, trend) = (last / first, if is_flat { "flat" } else { "grew" });
        let row = format!("| {name} | {metric} | {first:.1} | {last:.1} | {ratio:.2} | {trend} |");
        let _ = writeln!(table, "{row}");
        if !is_flat {
            grown.push(row);
        }
    }
    print!("{table}");
    grown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_by_more_than_a_tenth_and_a_constant_is_found() {
        for (growth, grown) in [(0.05, 0), (1.0, METRICS.len()), (-0.5, 0)] {
            let values = (0..120_u8).map(|part| 100.0 + growth * f64::from(part));
            let samples: Vec<_> = values.map(|value| vec![value; METRICS.len()]).collect();
            assert_eq!(growths("soak", &samples).len(), grown, "{growth}");
        }
    }
}
