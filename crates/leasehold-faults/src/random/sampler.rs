//! Observation of the records from outside.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult};
use tokio_util::sync::CancellationToken;

use super::plan::{ELECTION, NAMES};
use super::servers::{Servers, Slot};
use super::{CLOCK_STEP_MAX_MS, World};
use crate::admission::{ADMISSION_KEY, connect};
use crate::clock;
use crate::history::{Note, Sample};
use crate::holder::{JOBS, SHARED_NAMES};

/// The interval of samples, and how long to wait for a reply: only for a moment for one of many masters, as the others
/// may be enough.
const INTERVAL: Duration = Duration::from_millis(25);
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);
const MASTERS_REPLY_TIMEOUT: Duration = Duration::from_millis(100);

/// How often a clock may have been set back while the last leases ran.
const STEPS_BACK_MAX: u64 = 2;

/// The holds of a record and its ttl.
type Record = (BTreeMap<String, u32>, i64);

/// A connection to the server that has an address, opened anew when another server has it.
struct Observer<'a> {
    slot: &'a Slot,
    timeout: Duration,
    connection: Option<(u16, Connection)>,
}

/// Samples the records until it is to stop.
pub(super) fn run(world: &World<Servers>, stop: &CancellationToken) {
    let timeout = match world.plan.servers {
        1 => REPLY_TIMEOUT,
        _ => MASTERS_REPLY_TIMEOUT,
    };
    let mut observers = observers(world, timeout);
    while !stop.is_cancelled() {
        for name in NAMES {
            sample(world, &mut observers, name);
        }
        thread::sleep(INTERVAL);
    }
}

/// Records what remains after all holders have ended, and when every ttl has passed.
pub(super) fn check_remaining(world: &World<Servers>) {
    let mut observers = observers(world, REPLY_TIMEOUT);
    for name in NAMES {
        let records = observers.iter_mut().map(|observer| observer.record(name));
        let (holds, _) = agreed(world, records.map(Result::unwrap));
        for lease in holds.into_keys() {
            let name = name.to_owned();
            world.note(&Note::HeldAtEnd { name, lease });
        }
    }
    let back = match world.plan.clock {
        true => STEPS_BACK_MAX * CLOCK_STEP_MAX_MS,
        false => 0,
    };
    let end = Instant::now() + Duration::from_millis(world.plan.ttl_max_ms() + back + 100);
    for observer in &mut observers {
        observer.check_remaining(world, end).unwrap();
    }
}

fn observers(world: &World<Servers>, timeout: Duration) -> Vec<Observer<'_>> {
    let observer = |slot| Observer {
        slot,
        timeout,
        connection: None,
    };
    world.store.all().iter().map(observer).collect()
}

fn sample(world: &World<Servers>, observers: &mut [Observer<'_>], name: &str) {
    let from = clock::now();
    let records = observers.iter_mut().map(|observer| observer.record(name));
    let records: Vec<_> = records.filter_map(Result::ok).collect();
    if records.len() < world.store.majority() {
        return;
    }
    let (holds, ttl_ms) = agreed(world, records);
    world.note(&Note::Sampled(Sample {
        name: name.to_owned(),
        from,
        holds: holds.into_iter().collect(),
        ttl_ms,
    }));
}

/// The holds that a majority of the servers has, and the smallest ttl.
fn agreed(world: &World<Servers>, records: impl IntoIterator<Item = Record>) -> Record {
    let mut votes = BTreeMap::<_, usize>::new();
    let mut least = i64::MAX;
    for (holds, ttl_ms) in records {
        least = least.min(ttl_ms);
        for hold in holds {
            *votes.entry(hold).or_default() += 1;
        }
    }
    let majority = world.store.majority();
    let held = votes.into_iter().filter(|(_, count)| *count >= majority);
    (held.map(|(hold, _)| hold).collect(), least)
}

impl Observer<'_> {
    /// The record of a name. Another type under its key is an error.
    fn record(&mut self, name: &str) -> RedisResult<Record> {
        let key = key_of(name);
        let mut both = redis::pipe();
        both.atomic().cmd("GET").arg(&key).cmd("PTTL").arg(&key);
        let (held, ttl_ms): (Option<String>, i64) =
            self.query(|connection| both.query(connection))?;
        let holds = held.map(|held| match held.split_once(' ') {
            Some((lease, count)) => (lease.to_owned(), count.parse().unwrap()),
            None => (held, 1),
        });
        Ok((holds.into_iter().collect(), ttl_ms))
    }

    fn check_remaining(&mut self, world: &World<Servers>, end: Instant) -> RedisResult<()> {
        let mut any = redis::cmd("EXISTS");
        let all = [&NAMES[..], &SHARED_NAMES, &JOBS, &[ELECTION]].concat();
        for name in &all {
            any.arg(key_of(name));
        }
        // Most have expired long before.
        while self.query(|connection| any.query::<u32>(connection))? > 0 && Instant::now() < end {
            thread::sleep(INTERVAL);
        }
        let keys = |connection: &mut Connection| redis::cmd("KEYS").arg("*").query(connection);
        let keys: Vec<String> = self.query(keys)?;
        for key in keys {
            let ttl = |connection: &mut Connection| redis::cmd("PTTL").arg(&key).query(connection);
            let ttl_ms: i64 = self.query(ttl)?;
            let is_record = all.iter().any(|name| key == key_of(name));
            let is_admission = world.plan.servers > 1 && key == ADMISSION_KEY;
            if (ttl_ms == -1 && !is_admission) || (is_record && ttl_ms != -2) {
                world.note(&Note::Violation(format!(
                    "P8 the key {key} is there when every ttl has passed, with a ttl of {ttl_ms} ms"
                )));
            }
        }
        Ok(())
    }

    fn query<T>(&mut self, query: impl Fn(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let port = self.slot.port();
        let kept = self.connection.take().filter(|(opened, _)| *opened == port);
        let (_, mut connection) = match kept {
            Some(kept) => kept,
            None => (port, connect(port, self.timeout)?),
        };
        let reply = query(&mut connection)?;
        self.connection = Some((port, connection));
        Ok(reply)
    }
}

fn key_of(name: &str) -> String {
    format!("leasehold:{{default:{name}}}")
}
