//! The kinds of faults, and their effects.

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;

labelled! {
    /// A kind of fault.
    #[derive(Serialize, Deserialize)]
    Fault {
        KillHolder: "holder killed",
        PauseHolder: "holder stopped within its ttl",
        PauseHolderLong: "holder stopped beyond its ttl",
        RestartKept: "server killed, data kept",
        RestartEmpty: "server killed, data lost",
        StopServer: "server stopped",
        KillClients: "`CLIENT KILL`",
        PauseClients: "`CLIENT PAUSE`",
        FlushScripts: "`SCRIPT FLUSH`",
        FlushAll: "`FLUSHALL`",
        DeleteRecord: "record deleted",
        ClockForward: "server clock set forward",
        ClockBack: "server clock set back",
        WrongRecord: "record of another type",
        WrongQueue: "queue of another type",
        WrongCounter: "counter of another type",
        SaveSnapshot: "snapshot saved",
        RestartSnapshot: "server killed, old snapshot restored",
        AofOn: "AOF switched on",
        AofOff: "AOF switched off",
        ReplaceServer: "server replaced",
        CutLink: "connections refused",
        DelayLink: "connections delayed",
        BreakLink: "connections broken within a message",
        SwallowLink: "connections silent",
        LoseReplies: "replies lost",
        HoldRequests: "requests run late",
        OrderFailover: "failover ordered",
        KillMaster: "master killed, failover",
        StopMaster: "master stopped, failover",
        ExecHolder: "holder executed anew",
        KillNodes: "all nodes killed",
        CrashDatabase: "PostgreSQL process killed",
        TerminateBackends: "connections terminated",
        PauseListener: "listening connection stopped",
        LockRow: "row locked by another transaction",
        HoldTransaction: "transaction left open",
        KillMember: "member killed",
        StopMember: "member stopped",
        RestartMembers: "all members killed",
        CompactRevisions: "revisions compacted",
        RevokeSession: "session revoked",
        CloseSession: "session closed",
        PromoteStandby: "standby promoted",
        SlowServer: "server too busy to reply",
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
