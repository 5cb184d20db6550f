//! The kinds of faults, and their effects.

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;

labelled! {
    /// A kind of fault.
    #[derive(Serialize, Deserialize)]
    Fault {
        KillHolder: "`kill -9` of a holder",
        PauseHolder: "`SIGSTOP` of a holder, at most its ttl",
        PauseHolderLong: "`SIGSTOP` of a holder, longer than its ttl",
        RestartKept: "`kill -9` of the server, restart with its data",
        RestartEmpty: "`kill -9` of the server, restart without its data",
        StopServer: "`SIGSTOP` of the server",
        KillClients: "`CLIENT KILL` of all connections",
        PauseClients: "`CLIENT PAUSE`",
        FlushScripts: "`SCRIPT FLUSH`",
        FlushAll: "`FLUSHALL`",
        DeleteRecord: "`DEL` of a record",
        ClockForward: "server's clock set forward",
        ClockBack: "server's clock set back",
        WrongRecord: "another type under a record",
        WrongQueue: "another type under a queue",
        WrongCounter: "another type under a counter",
        SaveSnapshot: "`SAVE` of a master",
        RestartSnapshot: "`kill -9` of a master, restart with an old snapshot",
        AofOn: "AOF of a master switched on by `CONFIG SET`",
        AofOff: "AOF of a master switched off by `CONFIG SET`",
        ReplaceServer: "another server takes over the address of a master",
        CutLink: "a holder's connections to a server reset and refused",
        DelayLink: "all traffic between a holder and a server delayed",
        BreakLink: "a holder's connections reset in the middle of a message",
        SwallowLink: "traffic between a holder and the server lost, one way or both, without a reset",
        LoseReplies: "replies to a holder's scripts lost, then silence or a reset",
        HoldRequests: "a holder's scripts held back until it has given them up",
        OrderFailover: "failover by an order to the sentinels",
        KillMaster: "`kill -9` of a master with replicas, failover",
        StopMaster: "`SIGSTOP` of a master with replicas, resumed after the failover",
        ExecHolder: "another program executed in the process of a holder",
        KillNodes: "`kill -9` of all nodes of the watchdog",
        CrashDatabase: "`kill -9` of a process of a PostgreSQL server, crash recovery",
        TerminateBackends: "`pg_terminate_backend` of half of the connections",
        PauseListener: "`SIGSTOP` of a connection that listens",
        LockRow: "a foreign transaction that locks the row of a lock",
        HoldTransaction: "a transaction that stays open after `leasehold.held`",
        KillMember: "`kill -9` of a member of etcd or ZooKeeper, restart with its data",
        StopMember: "`SIGSTOP` of a member of etcd or ZooKeeper",
        RestartMembers: "`kill -9` of all members of etcd or ZooKeeper, restart with their data",
        CompactRevisions: "compaction of the revisions in etcd",
        RevokeSession: "the lease of a session in etcd revoked",
        CloseSession: "a session in ZooKeeper closed by another client",
        PromoteStandby: "promotion of a PostgreSQL standby, its primary ended before or after it",
        SlowServer: "a server without a reply, because the machine was busy",
    }
}

impl Fault {
    /// Whether a replica takes the place of its master.
    pub(crate) fn is_failover(self) -> bool {
        matches!(
            self,
            Self::OrderFailover | Self::KillMaster | Self::StopMaster | Self::PromoteStandby
        )
    }

    /// Whether the store loses all that it has, or the last of it.
    fn forgets_all(self) -> bool {
        self.is_failover()
            || matches!(
                self,
                Self::RestartEmpty | Self::RestartSnapshot | Self::ReplaceServer | Self::FlushAll
            )
    }

    /// Whether the store loses a grant that it acknowledged, or ends it early.
    pub(crate) fn forgets_grants(self) -> bool {
        let forgets_one = [Self::DeleteRecord, Self::ClockForward, Self::WrongRecord];
        self.forgets_all() || forgets_one.contains(&self)
    }

    /// Whether the store loses the last token.
    pub(crate) fn forgets_counters(self) -> bool {
        self.forgets_all() || self == Self::WrongCounter
    }

    /// Whether a reply may be late or lost, so that a request is repeated.
    pub(crate) fn disturbs(self) -> bool {
        !matches!(
            self,
            Self::KillHolder | Self::FlushScripts | Self::DeleteRecord
        )
    }

    /// Whether it ends a process, or the program in it.
    pub(crate) fn ends_holder(self) -> bool {
        matches!(self, Self::KillHolder | Self::ExecHolder)
    }

    /// Whether it stops a process.
    pub(crate) fn pauses_holder(self) -> bool {
        matches!(self, Self::PauseHolder | Self::PauseHolderLong)
    }
}

/// A fault that was injected.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FaultEvent {
    pub(crate) fault: Fault,
    /// The process, if it hit a holder.
    pub(crate) process: Option<String>,
    /// The master, if there are many, and the number of the holder whose connections it hit.
    pub(crate) master: Option<usize>,
    pub(crate) holder: Option<usize>,
    /// The name whose keys it hit, unless it hit all.
    pub(crate) name: Option<String>,
    /// It lasted at most from `outer.0` to `outer.1`, and at least over `inner`.
    pub(crate) outer: (Nanos, Nanos),
    pub(crate) inner: (Nanos, Nanos),
}

impl FaultEvent {
    /// A fault of a process, or of all nodes.
    pub(crate) fn new(
        fault: Fault,
        process: Option<&str>,
        outer: (Nanos, Nanos),
        inner: (Nanos, Nanos),
    ) -> Self {
        Self {
            fault,
            process: process.map(str::to_owned),
            master: None,
            holder: None,
            name: None,
            outer,
            inner,
        }
    }

    pub(crate) fn hits(&self, name: &str) -> bool {
        self.name.as_deref().is_none_or(|hit| hit == name)
    }

    /// Whether it overlaps a time.
    pub(crate) fn overlaps(&self, from: Nanos, until: Nanos) -> bool {
        self.outer.0 <= until && self.outer.1 >= from
    }
}
