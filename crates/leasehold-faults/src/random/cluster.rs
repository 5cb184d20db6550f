//! Members of etcd or ZooKeeper that decide together, and their faults.

use std::iter;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use leasehold_testkit::{Members, Program, Proxy, addresses, eventually};

use super::plan::Plan;
use super::server_faults::disturb;
use super::{Sequence, Store, Timed, Usage};
use crate::history::Fault;

const MEMBERS: usize = 3;

/// How long the members may take to obey a command: they may be without a leader.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A program whose members have faults.
pub(super) trait FaultyProgram: Program + Send + 'static {
    const SCHEME: &'static str;
    const FAULTS: &'static [Fault];

    fn start_members(count: usize) -> Members<Self>;

    /// The number of the member that leads. `None`: there is no leader now.
    fn leader_of(members: &Members<Self>) -> Option<usize>;

    /// Injects a fault that only this program has. `None`: the members refused it.
    fn inject(members: &Members<Self>, timed: &Timed) -> Option<()>;

    /// The number of keys or nodes. `None`: the members refused it.
    fn entries(members: &Members<Self>) -> Option<usize>;
}

pub(super) struct Cluster<P> {
    members: Mutex<Members<P>>,
    ports: Vec<u16>,
    /// For each holder, a proxy before the member that it uses first.
    links: Vec<Proxy>,
}

impl<P: FaultyProgram> Store for Cluster<P> {
    // Its tokens have the time of no clock.
    const HAS_TIMES: bool = false;
    const SHORT: Duration = Duration::from_secs(12);
    const FAULTS: &'static [Fault] = P::FAULTS;

    fn start(plan: &Plan) -> Self {
        let members = P::start_members(MEMBERS);
        let ports: Vec<_> = (0..MEMBERS).map(|nth| members.port(nth)).collect();
        let link = |holder| Proxy::before_port(ports[holder % MEMBERS]);
        Self {
            links: (0..plan.holders.len()).map(link).collect(),
            members: Mutex::new(members),
            ports,
        }
    }

    fn url(&self, holder: usize) -> String {
        let others = (1..MEMBERS).map(|next| self.ports[(holder + next) % MEMBERS]);
        let ports = iter::once(self.links[holder].port()).chain(others);
        format!("{}://{}", P::SCHEME, addresses("127.0.0.1", ports))
    }

    fn inject(&self, sequence: &Sequence, timed: &Timed) {
        if let Some(holder) = sequence.holder {
            return disturb(&self.links[holder], timed);
        }
        let length = Duration::from_millis(timed.length_ms);
        let members = &mut *self.members.lock().unwrap();
        // The leader, or a member that is drawn with the schedule.
        let member = |members: &Members<P>| {
            let leader = (timed.name == 0).then(|| P::leader_of(members)).flatten();
            leader.unwrap_or(timed.length_ms as usize % MEMBERS)
        };
        match timed.fault {
            Fault::KillMember => {
                let member = member(members);
                members.kill9(member);
                thread::sleep(length);
                members.restart(member);
            }
            Fault::StopMember => {
                let member = member(members);
                members.pause(member);
                thread::sleep(length);
                members.resume(member);
            }
            Fault::RestartMembers => members.restart_all(length),
            _ => eventually(TIMEOUT, || P::inject(members, timed).is_some()),
        }
    }

    fn usage(&self) -> Usage {
        let members = &*self.members.lock().unwrap();
        Usage {
            pids: members.pids(),
            data: (0..MEMBERS).map(|nth| members.data(nth)).collect(),
            entries: P::entries(members),
        }
    }
}
