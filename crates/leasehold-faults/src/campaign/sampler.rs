//! What the records say, looked at from outside.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, RedisResult};

use super::plan::{CLOCK_STEP_MAX_MS, NAMES, TTL_MAX_MS};
use super::world::World;
use crate::clock;
use crate::history::Note;

/// The pause between two looks, and how long to wait for an answer.
const PAUSE: Duration = Duration::from_millis(25);
const PATIENCE: Duration = Duration::from_secs(3);

/// How often a clock may have been set back while the last leases ran.
const STEPS_BACK_MAX: u64 = 2;

/// Looks at the records until it is told to stop.
pub(super) fn run(world: &World, stop: &AtomicBool) {
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        let looked = match &mut connection {
            Some(connection) => look(world, connection),
            none => connect(world).map(|made| *none = Some(made)),
        };
        if looked.is_err() {
            connection = None;
        }
        thread::sleep(PAUSE);
    }
}

/// Looks once more after all holders have ended, and again when every ttl has passed.
pub(super) fn look_for_leftovers(world: &World) -> Result<(), String> {
    let failed = |error: redis::RedisError| format!("the server at the end: {error}");
    let mut connection = connect(world).map_err(failed)?;
    for name in NAMES {
        let (holds, _) = record(&mut connection, name).map_err(failed)?;
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
    let end = Instant::now() + Duration::from_millis(TTL_MAX_MS + back + 100);
    // Most are gone long before.
    while any_record(&mut connection).map_err(failed)? && Instant::now() < end {
        thread::sleep(PAUSE);
    }
    let keys: Vec<String> = redis::cmd("KEYS")
        .arg("*")
        .query(&mut connection)
        .map_err(failed)?;
    for key in keys {
        let left_ms: i64 = redis::cmd("PTTL")
            .arg(&key)
            .query(&mut connection)
            .map_err(failed)?;
        let is_record = NAMES.iter().any(|name| key == key_of(name));
        if left_ms == -1 || (is_record && left_ms != -2) {
            world.note(&Note::LeftBehind { key, left_ms });
        }
    }
    Ok(())
}

fn any_record(connection: &mut Connection) -> RedisResult<bool> {
    let mut any = redis::cmd("EXISTS");
    for name in NAMES {
        any.arg(key_of(name));
    }
    any.query::<u32>(connection).map(|count| count > 0)
}

fn look(world: &World, connection: &mut Connection) -> RedisResult<()> {
    for name in NAMES {
        let from = clock::now();
        let (holds, left_ms) = record(connection, name)?;
        world.note(&Note::Sampled {
            name: name.to_owned(),
            from,
            holds: holds.into_iter().collect(),
            left_ms,
        });
    }
    Ok(())
}

/// The holds of a record and what is left of it. Another type under the key is an error.
fn record(connection: &mut Connection, name: &str) -> RedisResult<(BTreeMap<String, u32>, i64)> {
    let key = key_of(name);
    let mut both = redis::pipe();
    both.atomic().cmd("HGETALL").arg(&key).cmd("PTTL").arg(&key);
    both.query(connection)
}

fn key_of(name: &str) -> String {
    format!("leasehold:{{default:{name}}}")
}

fn connect(world: &World) -> RedisResult<Connection> {
    let client = redis::Client::open(&*world.url)?;
    let connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    Ok(connection)
}
