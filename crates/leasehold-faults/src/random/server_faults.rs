//! The faults of one server, or of the connections of a holder to it, one after the other.

use std::thread;
use std::time::Duration;

use leasehold_testkit::{AfterLoss, Proxy, RedisServer, Restart, Way};

use super::plan::NAMES;
use super::{Sequence, Timed, World};
use crate::clock;
use crate::history::{Fault, FaultEvent, Note};

/// The word in each request that calls a script.
const SCRIPT_CALL: &str = "EVALSHA";

/// After how many bytes a connection is broken: within a few requests.
const BYTES_MAX: u64 = 900;

/// Injects the faults of a sequence.
pub(super) fn run(world: &World, sequence: &Sequence) {
    for timed in &sequence.faults {
        world.sleep_until(timed.at_ms);
        let forgets = timed.fault.forgets_grants();
        if forgets && !world.servers.may_forget(sequence.server) {
            continue;
        }
        let begin = clock::now();
        match sequence.holder {
            Some(holder) => {
                let slot = &world.servers.all()[sequence.server];
                disturb(&slot.links[holder], timed);
            }
            None => inject(world, sequence.server, timed),
        }
        let inner = (begin, clock::now());
        if forgets {
            world.servers.has_forgotten(sequence.server);
        }
        let hits_one = matches!(
            timed.fault,
            Fault::DeleteRecord | Fault::WrongRecord | Fault::WrongQueue | Fault::WrongCounter
        );
        world.note(&Note::Fault(FaultEvent {
            master: Some(sequence.server),
            holder: sequence.holder,
            name: hits_one.then(|| NAMES[timed.name].to_owned()),
            ..FaultEvent::new(timed.fault, None, (begin, clock::now()), inner)
        }));
    }
}

fn inject(world: &World, nth: usize, timed: &Timed) {
    let length = Duration::from_millis(timed.length_ms);
    let record = format!("leasehold:{{default:{}}}", NAMES[timed.name]);
    if timed.fault == Fault::ReplaceServer {
        return world.servers.replace(nth);
    }
    let server = &mut *world.servers.all()[nth].server();
    match timed.fault {
        Fault::RestartKept | Fault::RestartEmpty | Fault::RestartSnapshot => {
            server.kill9();
            thread::sleep(length);
            server.restart(match timed.fault {
                // A killed server without AOF restarts with its last snapshot.
                Fault::RestartKept | Fault::RestartSnapshot => Restart::Kept,
                _ => Restart::Empty,
            });
        }
        Fault::StopServer => {
            server.stop();
            thread::sleep(length);
            server.cont();
        }
        Fault::KillClients => {
            for kind in ["normal", "pubsub"] {
                server.cli(&["CLIENT", "KILL", "TYPE", kind]);
            }
        }
        Fault::PauseClients => {
            server.cli(&["CLIENT", "PAUSE", &timed.length_ms.to_string(), "ALL"]);
            thread::sleep(length);
        }
        Fault::FlushScripts => drop(server.cli(&["SCRIPT", "FLUSH"])),
        Fault::FlushAll => drop(server.cli(&["FLUSHALL"])),
        Fault::DeleteRecord => drop(server.cli(&["DEL", &record])),
        Fault::ClockForward => server.step_clock(timed.length_ms.cast_signed()),
        Fault::ClockBack => server.step_clock(-timed.length_ms.cast_signed()),
        Fault::WrongRecord => set_wrong_type(server, &record, length),
        Fault::WrongQueue => set_wrong_type(server, &format!("{record}:queue"), length),
        Fault::WrongCounter => set_wrong_type(server, &format!("{record}:token"), length),
        Fault::SaveSnapshot => drop(server.cli(&["SAVE"])),
        Fault::AofOn => {
            let settings = ["appendonly", "yes", "appendfsync", "always"];
            server.cli(&[&["CONFIG", "SET"][..], &settings].concat());
        }
        Fault::AofOff => drop(server.cli(&["CONFIG", "SET", "appendonly", "no"])),
        fault => panic!("{fault:?} is not a fault of a server"),
    }
}

/// Disturbs the connections of a holder to a server.
fn disturb(link: &Proxy, timed: &Timed) {
    // The length is drawn with the schedule, so these are the same again for a seed.
    let drawn = timed.length_ms;
    let way = [Way::Both, Way::ToServer, Way::ToClient][drawn as usize % 3];
    let after_loss = [AfterLoss::Silent, AfterLoss::Cut][drawn as usize % 2];
    match timed.fault {
        Fault::CutLink => {
            link.refuse();
            link.cut();
        }
        Fault::BreakLink => link.cut_after(way, drawn * 7 % BYTES_MAX),
        Fault::SwallowLink => link.swallow(way),
        Fault::LoseReplies => link.lose_replies(SCRIPT_CALL, usize::MAX, after_loss),
        Fault::HoldRequests => link.hold_requests(SCRIPT_CALL, usize::MAX),
        _ => link.hold(Way::Both),
    }
    thread::sleep(Duration::from_millis(timed.length_ms));
    link.go_on();
}

/// Stores a set under a key, which none of the keys of a lock is, for a duration.
fn set_wrong_type(server: &RedisServer, key: &str, length: Duration) {
    // In one step, as holders recreate their keys at once.
    let script = "redis.call('DEL', KEYS[1]) return redis.call('SADD', KEYS[1], 'x')";
    server.cli(&["EVAL", script, "1", key]);
    thread::sleep(length);
    server.cli(&["DEL", key]);
}
