//! An etcd cluster, and its faults.

use std::iter;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use leasehold_testkit::{EtcdCluster, Proxy, eventually};
use serde_json::Value;

use super::plan::{LONG_TTLS_MS, PROXIED_FAULTS, Plan, any_of};
use super::server_faults::disturb;
use super::{Sequence, Store, Timed};
use crate::history::Fault;

const MEMBERS: usize = 3;

const FAULTS: [Fault; 5] = [
    Fault::KillMember,
    Fault::StopMember,
    Fault::RestartMembers,
    Fault::CompactRevisions,
    Fault::RevokeSession,
];

/// How long the members may take to obey a command: they may be without a leader.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct Etcd {
    cluster: Mutex<EtcdCluster>,
    hosts: Vec<String>,
    /// For each holder, a proxy before the member that it uses first.
    links: Vec<Proxy>,
}

/// The plan of a world with such a cluster.
pub(super) fn draw(seed: u64, round: u64, world: u64, duration_ms: u64) -> Plan {
    let (at, links) = ([seed, round, world], PROXIED_FAULTS);
    let server_fault = |rng: &mut Rng| any_of(rng, &FAULTS);
    Plan::draw_one(at, duration_ms, LONG_TTLS_MS, links, server_fault)
}

impl Store for Etcd {
    // Its tokens have the time of no clock.
    const HAS_TIMES: bool = false;
    const SHORT: Duration = Duration::from_secs(12);

    fn start(plan: &Plan) -> Self {
        // A leader is replaced within a ttl.
        let options = EtcdCluster::options()
            .argument("--heartbeat-interval=50")
            .argument("--election-timeout=500");
        let cluster = options.start(MEMBERS);
        let link = |holder| Proxy::before_port(cluster.port(holder % MEMBERS));
        Self {
            links: (0..plan.holders.len()).map(link).collect(),
            hosts: (0..MEMBERS).map(|nth| cluster.host(nth)).collect(),
            cluster: Mutex::new(cluster),
        }
    }

    fn url(&self, holder: usize) -> String {
        let first = format!("127.0.0.1:{}", self.links[holder].port());
        let others = (1..MEMBERS).map(|next| self.hosts[(holder + next) % MEMBERS].clone());
        let hosts: Vec<_> = iter::once(first).chain(others).collect();
        format!("etcd://{}", hosts.join(","))
    }

    fn inject(&self, sequence: &Sequence, timed: &Timed) {
        if let Some(holder) = sequence.holder {
            return disturb(&self.links[holder], timed);
        }
        let length = Duration::from_millis(timed.length_ms);
        let cluster = &mut *self.cluster.lock().unwrap();
        // The leader, or a member that is drawn with the schedule.
        let member = |cluster: &EtcdCluster| match timed.name {
            0 => cluster.leader(),
            _ => timed.length_ms as usize % MEMBERS,
        };
        match timed.fault {
            Fault::KillMember => {
                let member = member(cluster);
                cluster.kill9(member);
                thread::sleep(length);
                cluster.restart(member);
            }
            Fault::StopMember => {
                let member = member(cluster);
                cluster.pause(member);
                thread::sleep(length);
                cluster.resume(member);
            }
            Fault::RestartMembers => cluster.restart_all(length),
            Fault::CompactRevisions => eventually(TIMEOUT, || compact(cluster).is_some()),
            _ => eventually(TIMEOUT, || {
                revoke_session(cluster, timed.length_ms as usize).is_some()
            }),
        }
    }
}

/// Removes all revisions but the last. `None`: the cluster refused it.
fn compact(cluster: &EtcdCluster) -> Option<()> {
    let read = cluster.try_ctl(&["get", "leasehold/", "--write-out=json"]);
    let read: Value = serde_json::from_str(&read.ok()?).ok()?;
    let revision = read["header"]["revision"].to_string();
    let compacted = cluster.try_ctl(&["compaction", &revision]);
    compacted.ok().map(drop)
}

/// Ends the session of one of the clients. `None`: it has ended, or the cluster refused it.
fn revoke_session(cluster: &EtcdCluster, drawn: usize) -> Option<()> {
    let list = ["get", "leasehold/client/", "--prefix", "--print-value-only"];
    let routes = cluster.try_ctl(&list).ok()?;
    // Each is that of a process, and the lease of its session.
    let leases = routes.lines().filter_map(|route| route.split_once(' '));
    let leases: Vec<_> = leases.collect();
    let (_, lease) = leases.get(drawn % leases.len().max(1))?;
    let lease: i64 = lease.parse().ok()?;
    let revoked = cluster.try_ctl(&["lease", "revoke", &format!("{lease:x}")]);
    revoked.ok().map(drop)
}
