//! The faults of a server, one after the other.

use std::thread;
use std::time::Duration;

use leasehold_testkit::{RedisServer, Restart};

use super::plan::{NAMES, Timed};
use super::world::World;
use crate::clock;
use crate::history::{Fault, Happened};

/// Runs the plan of a server to its end.
///
/// # Errors
///
/// What the server would not do.
pub(super) fn run(world: &World, server: &mut RedisServer) -> Result<(), String> {
    for timed in &world.plan.server {
        world.sleep_until(timed.at_ms);
        let inner = inflict(server, timed)?;
        let outer_from = inner.0;
        let hits_one = matches!(
            timed.fault,
            Fault::DeleteRecord | Fault::WrongRecord | Fault::WrongQueue | Fault::WrongCounter
        );
        world.happened(Happened {
            fault: timed.fault,
            process: None,
            name: hits_one.then(|| NAMES[timed.name].to_owned()),
            outer: (outer_from, clock::now()),
            inner,
        });
    }
    Ok(())
}

/// Inflicts a fault, and answers from when until when it lasted at most.
fn inflict(server: &mut RedisServer, timed: &Timed) -> Result<(u64, u64), String> {
    let span = Duration::from_millis(timed.span_ms);
    let record = format!("leasehold:{{default:{}}}", NAMES[timed.name]);
    let begin = clock::now();
    match timed.fault {
        Fault::RestartKept | Fault::RestartEmpty => {
            server.kill9();
            thread::sleep(span);
            let memory = match timed.fault {
                Fault::RestartKept => Restart::Kept,
                _ => Restart::Empty,
            };
            server.restart(memory);
        }
        Fault::StopServer => {
            server.stop();
            thread::sleep(span);
            server.cont();
        }
        Fault::KillClients => {
            for kind in ["normal", "pubsub"] {
                server.try_cli(&["CLIENT", "KILL", "TYPE", kind])?;
            }
        }
        Fault::PauseClients => {
            server.try_cli(&["CLIENT", "PAUSE", &timed.span_ms.to_string(), "ALL"])?;
            thread::sleep(span);
        }
        Fault::FlushScripts => drop(server.try_cli(&["SCRIPT", "FLUSH"])?),
        Fault::FlushAll => drop(server.try_cli(&["FLUSHALL"])?),
        Fault::DeleteRecord => drop(server.try_cli(&["DEL", &record])?),
        Fault::ClockForward => server.step_clock(timed.span_ms.cast_signed()),
        Fault::ClockBack => server.step_clock(-timed.span_ms.cast_signed()),
        Fault::WrongRecord => wrong_type(server, &record, span)?,
        Fault::WrongQueue => wrong_type(server, &format!("{record}:queue"), span)?,
        Fault::WrongCounter => wrong_type(server, &format!("{record}:token"), span)?,
        Fault::KillHolder | Fault::PauseHolder | Fault::PauseHolderLong => {
            return Err(format!("{:?} is no fault of a server", timed.fault));
        }
    }
    Ok((begin, clock::now()))
}

/// Puts a set under a key, which is none of the types that a lock has, and takes it away again.
fn wrong_type(server: &RedisServer, key: &str, span: Duration) -> Result<(), String> {
    // In one step: the holders are quick to put theirs back.
    let script = "redis.call('DEL', KEYS[1]) return redis.call('SADD', KEYS[1], 'x')";
    server.try_cli(&["EVAL", script, "1", key])?;
    thread::sleep(span);
    server.try_cli(&["DEL", key])?;
    Ok(())
}
