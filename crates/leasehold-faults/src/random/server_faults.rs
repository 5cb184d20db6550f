//! The faults of servers of Redis, and of the connections between a holder and any server.

use std::thread;
use std::time::Duration;

use leasehold_testkit::{AfterLoss, Proxy, RedisServer, Restart, Way};
use tokio_util::sync::CancellationToken;

use super::plan::{NAMES, Plan};
use super::servers::Servers;
use super::{Sequence, Store, Timed, Usage, World, sampler};
use crate::history::Fault;

/// The word in each request that calls a script.
const SCRIPT_CALL: &str = "EVALSHA";

/// After how many bytes a connection is broken: within a few requests.
const BYTES_MAX: u64 = 900;

impl Store for Servers {
    const HAS_TIMES: bool = true;

    fn start(plan: &Plan) -> Self {
        Self::of(plan)
    }

    fn url(&self, holder: usize) -> String {
        self.url_of(holder)
    }

    fn may_inject(&self, sequence: &Sequence, timed: &Timed) -> bool {
        !timed.fault.forgets_grants() || self.may_forget(sequence.server)
    }

    fn inject(&self, sequence: &Sequence, timed: &Timed) {
        match sequence.holder {
            Some(holder) => disturb(&self.all()[sequence.server].links[holder], timed),
            None => inject(self, sequence.server, timed),
        }
        if timed.fault.forgets_grants() {
            self.has_forgotten(sequence.server);
        }
    }

    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for slot in self.all() {
            let server = slot.server();
            usage.pids.push(server.pid());
            usage.data.push(server.directory().to_owned());
            let keys = server.cli(&["DBSIZE"]).parse::<usize>();
            usage.entries = Some(usage.entries.unwrap_or_default() + keys.unwrap());
        }
        usage
    }

    fn sample(world: &World<Self>, stop: &CancellationToken) {
        sampler::run(world, stop);
    }

    fn check_remaining(world: &World<Self>) {
        sampler::check_remaining(world);
    }
}

fn inject(servers: &Servers, nth: usize, timed: &Timed) {
    let length = Duration::from_millis(timed.length_ms);
    let record = format!("leasehold:{{default:{}}}", NAMES[timed.name]);
    if timed.fault == Fault::ReplaceServer {
        return servers.replace(nth);
    }
    let server = &mut *servers.all()[nth].server();
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

/// Disturbs the connections of a holder to a server for some time.
pub(super) fn disturb(link: &Proxy, timed: &Timed) {
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
    // In one step, as holders recreate their keys immediately.
    let script = "redis.call('DEL', KEYS[1]) return redis.call('SADD', KEYS[1], 'x')";
    server.cli(&["EVAL", script, "1", key]);
    thread::sleep(length);
    server.cli(&["DEL", key]);
}
