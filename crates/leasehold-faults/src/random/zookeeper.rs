//! The faults of a ZooKeeper ensemble.

use leasehold_testkit::{Zookeeper, ZookeeperServer};

use super::Timed;
use super::cluster::FaultyProgram;
use crate::history::Fault;

impl FaultyProgram for Zookeeper {
    const SCHEME: &'static str = "zookeeper";
    const FAULTS: &'static [Fault] = &[
        Fault::KillMember,
        Fault::StopMember,
        Fault::RestartMembers,
        Fault::CloseSession,
    ];

    fn start_members(count: usize) -> ZookeeperServer {
        // Each start of a server removes the logs before its last snapshots, so a long world does not collect them.
        let purge = "autopurge.purgeInterval=1\nautopurge.snapRetainCount=3";
        ZookeeperServer::with(count, purge)
    }

    fn leader_of(ensemble: &ZookeeperServer) -> Option<usize> {
        ensemble.leader()
    }

    fn inject(ensemble: &ZookeeperServer, timed: &Timed) -> Option<()> {
        ensemble.close_session(timed.length_ms as usize)
    }

    fn entries(ensemble: &ZookeeperServer) -> Option<usize> {
        ensemble.nodes()
    }
}
