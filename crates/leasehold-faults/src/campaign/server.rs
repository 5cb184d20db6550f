//! The faults of one server, or of the connections of a holder to it, one after the other.

use std::thread;
use std::time::Duration;

use leasehold_testkit::{Proxy, RedisServer, Restart, Way};

use super::plan::{Lane, NAMES, Timed};
use super::world::World;
use crate::clock;
use crate::history::{Fault, Happened};

/// Runs the plan of a lane to its end.
///
/// # Errors
///
/// What the server would not do.
pub(super) fn run(world: &World, lane: &Lane) -> Result<(), String> {
    for timed in &lane.faults {
        world.sleep_until(timed.at_ms);
        let forgets = timed.fault.forgets_grants();
        if forgets && !world.servers.may_forget(lane.server) {
            continue;
        }
        let inner = match lane.holder {
            Some(holder) => {
                let slot = &world.servers.all()[lane.server];
                disconnect(&slot.links[holder], timed)?
            }
            None => inflict(world, lane.server, timed)?,
        };
        if forgets {
            world.servers.has_forgotten(lane.server);
        }
        let hits_one = matches!(
            timed.fault,
            Fault::DeleteRecord | Fault::WrongRecord | Fault::WrongQueue | Fault::WrongCounter
        );
        world.happened(Happened {
            fault: timed.fault,
            process: None,
            master: Some(lane.server),
            holder: lane.holder,
            name: hits_one.then(|| NAMES[timed.name].to_owned()),
            outer: (inner.0, clock::now()),
            inner,
        });
    }
    Ok(())
}

/// Inflicts a fault, and answers from when until when it lasted at most.
fn inflict(world: &World, nth: usize, timed: &Timed) -> Result<(u64, u64), String> {
    let span = Duration::from_millis(timed.span_ms);
    let record = format!("leasehold:{{default:{}}}", NAMES[timed.name]);
    let begin = clock::now();
    if timed.fault == Fault::ExchangeServer {
        world.servers.exchange(nth)?;
        return Ok((begin, clock::now()));
    }
    let server = &mut *world.servers.all()[nth].server();
    match timed.fault {
        Fault::RestartKept | Fault::RestartEmpty | Fault::RestartSnapshot => {
            server.kill9();
            thread::sleep(span);
            let memory = match timed.fault {
                // A server that was killed and has no AOF comes back with its last snapshot.
                Fault::RestartKept | Fault::RestartSnapshot => Restart::Kept,
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
        Fault::SaveSnapshot => drop(server.try_cli(&["SAVE"])?),
        Fault::AofOn => {
            let always = [
                "CONFIG",
                "SET",
                "appendonly",
                "yes",
                "appendfsync",
                "always",
            ];
            server.try_cli(&always)?;
        }
        Fault::AofOff => drop(server.try_cli(&["CONFIG", "SET", "appendonly", "no"])?),
        Fault::ExchangeServer
        | Fault::KillHolder
        | Fault::PauseHolder
        | Fault::PauseHolderLong
        | Fault::CutLink
        | Fault::DelayLink => {
            return Err(format!("{:?} is not a fault of a server", timed.fault));
        }
    }
    Ok((begin, clock::now()))
}

/// Disturbs the connections of a holder to a master. Returns from when until when.
fn disconnect(link: &Proxy, timed: &Timed) -> Result<(u64, u64), String> {
    let begin = clock::now();
    match timed.fault {
        Fault::CutLink => {
            link.refuse();
            link.cut();
        }
        Fault::DelayLink => link.hold(Way::Both),
        fault => return Err(format!("{fault:?} is not a fault of a connection")),
    }
    thread::sleep(Duration::from_millis(timed.span_ms));
    link.go_on();
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
