//! A ZooKeeper ensemble, and its faults.

use std::iter;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use leasehold_testkit::{Proxy, ZookeeperServer};

use super::plan::{LONG_TTLS_MS, PROXIED_FAULTS, Plan, any_of};
use super::server_faults::disturb;
use super::{Sequence, Store, Timed};
use crate::history::Fault;

const SERVERS: usize = 3;

const FAULTS: [Fault; 3] = [Fault::KillMember, Fault::StopMember, Fault::RestartMembers];

pub(super) struct Zookeeper {
    ensemble: Mutex<ZookeeperServer>,
    ports: Vec<u16>,
    /// For each holder, a proxy before one of the servers.
    links: Vec<Proxy>,
}

/// The plan of a world with such an ensemble.
pub(super) fn draw(seed: u64, round: u64, world: u64, duration_ms: u64) -> Plan {
    let (at, links) = ([seed, round, world], PROXIED_FAULTS);
    let server_fault = |rng: &mut Rng| any_of(rng, &FAULTS);
    Plan::draw_one(at, duration_ms, LONG_TTLS_MS, links, server_fault)
}

impl Store for Zookeeper {
    // Its tokens have the time of no clock.
    const HAS_TIMES: bool = false;
    const SHORT: Duration = Duration::from_secs(12);

    fn start(plan: &Plan) -> Self {
        let ensemble = ZookeeperServer::with(SERVERS, "");
        let ports: Vec<_> = (0..SERVERS).map(|nth| ensemble.port(nth)).collect();
        let link = |holder| Proxy::before_port(ports[holder % SERVERS]);
        Self {
            links: (0..plan.holders.len()).map(link).collect(),
            ensemble: Mutex::new(ensemble),
            ports,
        }
    }

    fn url(&self, holder: usize) -> String {
        let others = (1..SERVERS).map(|next| self.ports[(holder + next) % SERVERS]);
        let ports = iter::once(self.links[holder].port()).chain(others);
        let hosts: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        format!("zookeeper://{}", hosts.join(","))
    }

    fn inject(&self, sequence: &Sequence, timed: &Timed) {
        if let Some(holder) = sequence.holder {
            return disturb(&self.links[holder], timed);
        }
        let length = Duration::from_millis(timed.length_ms);
        let ensemble = &mut *self.ensemble.lock().unwrap();
        // The leader, or a server that is drawn with the schedule.
        let drawn = timed.length_ms as usize % SERVERS;
        let server = match timed.name {
            0 => ensemble.leader().unwrap_or(drawn),
            _ => drawn,
        };
        match timed.fault {
            Fault::KillMember => {
                ensemble.kill9(server);
                thread::sleep(length);
                ensemble.restart(server);
            }
            Fault::StopMember => {
                ensemble.pause(server);
                thread::sleep(length);
                ensemble.resume(server);
            }
            _ => ensemble.restart_all(length),
        }
    }
}
