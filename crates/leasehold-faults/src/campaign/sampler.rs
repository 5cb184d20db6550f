//! What the records say, looked at from outside.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult};

use super::plan::{CLOCK_STEP_MAX_MS, NAMES};
use super::servers::Slot;
use super::world::World;
use crate::clock;
use crate::history::Note;

/// The pause between two looks, and how long to wait for an answer: of one of many masters only for a
/// moment, for the others may say enough.
const PAUSE: Duration = Duration::from_millis(25);
const PATIENCE: Duration = Duration::from_secs(3);
const MASTERS_PATIENCE: Duration = Duration::from_millis(100);

/// How often a clock may have been set back while the last leases ran.
const STEPS_BACK_MAX: u64 = 2;

/// The holds of a record and what is left of it.
type Record = (BTreeMap<String, u32>, i64);

/// A connection to the server that has an address, made anew when another has it.
struct Observer<'a> {
    slot: &'a Slot,
    patience: Duration,
    connection: Option<(u16, Connection)>,
}

/// Looks at the records until it is told to stop.
pub(super) fn run(world: &World, stop: &AtomicBool) {
    let mut observers = observers(world);
    while !stop.load(Ordering::Relaxed) {
        for name in NAMES {
            look(world, &mut observers, name);
        }
        thread::sleep(PAUSE);
    }
}

/// Looks once more after all holders have ended, and again when every ttl has passed.
pub(super) fn look_for_leftovers(world: &World) -> Result<(), String> {
    let failed = |error: redis::RedisError| format!("the server at the end: {error}");
    let mut observers = observers(world);
    for observer in &mut observers {
        observer.patience = PATIENCE;
    }
    for name in NAMES {
        let records = observers.iter_mut().map(|observer| observer.record(name));
        let records: RedisResult<Vec<_>> = records.collect();
        let (holds, _) = agreed(world, records.map_err(failed)?);
        for lease in holds.into_keys() {
            let name = name.to_owned();
            world.note(&Note::AtTheEnd { name, lease });
        }
    }
    let back = if world.plan.clock {
        STEPS_BACK_MAX * CLOCK_STEP_MAX_MS
    } else {
        0
    };
    let end = Instant::now() + Duration::from_millis(world.plan.ttl_max_ms() + back + 100);
    for observer in &mut observers {
        observer.look_for_leftovers(world, end).map_err(failed)?;
    }
    Ok(())
}

fn observers(world: &World) -> Vec<Observer<'_>> {
    let slots = world.servers.all();
    let patience = match slots.len() {
        1 => PATIENCE,
        _ => MASTERS_PATIENCE,
    };
    let observer = |slot| Observer {
        slot,
        patience,
        connection: None,
    };
    slots.iter().map(observer).collect()
}

fn look(world: &World, observers: &mut [Observer<'_>], name: &str) {
    let from = clock::now();
    let records = observers.iter_mut().map(|observer| observer.record(name));
    let records: Vec<_> = records.filter_map(Result::ok).collect();
    if records.len() < world.servers.majority() {
        return;
    }
    let (holds, left_ms) = agreed(world, records);
    world.note(&Note::Sampled {
        name: name.to_owned(),
        from,
        holds: holds.into_iter().collect(),
        left_ms,
    });
}

/// What a majority of the servers says: of one, what it says.
fn agreed(world: &World, records: Vec<Record>) -> Record {
    let mut votes = BTreeMap::<_, usize>::new();
    let mut least = i64::MAX;
    for (holds, left_ms) in records {
        least = least.min(left_ms);
        for hold in holds {
            *votes.entry(hold).or_default() += 1;
        }
    }
    let majority = world.servers.majority();
    let held = votes.into_iter().filter(|(_, count)| *count >= majority);
    (held.map(|(hold, _)| hold).collect(), least)
}

impl Observer<'_> {
    /// The record of a name. Another type under its key is an error.
    fn record(&mut self, name: &str) -> RedisResult<Record> {
        let key = key_of(name);
        let mut both = redis::pipe();
        both.atomic().cmd("HGETALL").arg(&key).cmd("PTTL").arg(&key);
        self.ask(|connection| both.query(connection))
    }

    fn look_for_leftovers(&mut self, world: &World, end: Instant) -> RedisResult<()> {
        let mut any = redis::cmd("EXISTS");
        for name in NAMES {
            any.arg(key_of(name));
        }
        // Most are gone long before.
        while self.ask(|connection| any.query::<u32>(connection))? > 0 && Instant::now() < end {
            thread::sleep(PAUSE);
        }
        let keys = |connection: &mut Connection| redis::cmd("KEYS").arg("*").query(connection);
        let keys: Vec<String> = self.ask(keys)?;
        for key in keys {
            let left = |connection: &mut Connection| redis::cmd("PTTL").arg(&key).query(connection);
            let left_ms: i64 = self.ask(left)?;
            let is_record = NAMES.iter().any(|name| key == key_of(name));
            let is_admission = world.plan.servers > 1 && key == ADMISSION;
            if (left_ms == -1 && !is_admission) || (is_record && left_ms != -2) {
                world.note(&Note::LeftBehind { key, left_ms });
            }
        }
        Ok(())
    }

    fn ask<T>(&mut self, ask: impl Fn(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let port = self.slot.port();
        let kept = self.connection.take().filter(|(made, _)| *made == port);
        let (_, connection) = match kept {
            Some(kept) => self.connection.insert(kept),
            None => {
                let made = (port, self.slot.connect(self.patience)?);
                self.connection.insert(made)
            }
        };
        let answer = ask(connection);
        if answer.is_err() {
            self.connection = None;
        }
        answer
    }
}

/// The admission record of one of many masters, which has no ttl.
pub(super) const ADMISSION: &str = "leasehold:master";

fn key_of(name: &str) -> String {
    format!("leasehold:{{default:{name}}}")
}
