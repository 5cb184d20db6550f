//! The faults, and what each takes away.

use serde::{Deserialize, Serialize};

use crate::clock::Nanos;

/// A kind of fault. Declared in the order of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Fault {
    KillHolder,
    PauseHolder,
    PauseHolderLong,
    RestartKept,
    RestartEmpty,
    StopServer,
    KillClients,
    PauseClients,
    FlushScripts,
    FlushAll,
    DeleteRecord,
    ClockForward,
    ClockBack,
    WrongRecord,
    WrongQueue,
    WrongCounter,
    SaveSnapshot,
    RestartSnapshot,
    AofOn,
    AofOff,
    ExchangeServer,
    CutLink,
    DelayLink,
}

impl Fault {
    pub(crate) const ALL: [Self; 23] = [
        Self::KillHolder,
        Self::PauseHolder,
        Self::PauseHolderLong,
        Self::RestartKept,
        Self::RestartEmpty,
        Self::StopServer,
        Self::KillClients,
        Self::PauseClients,
        Self::FlushScripts,
        Self::FlushAll,
        Self::DeleteRecord,
        Self::ClockForward,
        Self::ClockBack,
        Self::WrongRecord,
        Self::WrongQueue,
        Self::WrongCounter,
        Self::SaveSnapshot,
        Self::RestartSnapshot,
        Self::AofOn,
        Self::AofOff,
        Self::ExchangeServer,
        Self::CutLink,
        Self::DelayLink,
    ];

    /// What a reader of the report sees.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::KillHolder => "`kill -9` of a holder",
            Self::PauseHolder => "`SIGSTOP` of a holder, at most its ttl",
            Self::PauseHolderLong => "`SIGSTOP` of a holder, longer than its ttl",
            Self::RestartKept => "`kill -9` of the server, restart with its data",
            Self::RestartEmpty => "`kill -9` of the server, restart without its data",
            Self::StopServer => "`SIGSTOP` of the server",
            Self::KillClients => "`CLIENT KILL` of all connections",
            Self::PauseClients => "`CLIENT PAUSE`",
            Self::FlushScripts => "`SCRIPT FLUSH`",
            Self::FlushAll => "`FLUSHALL`",
            Self::DeleteRecord => "`DEL` of a record",
            Self::ClockForward => "server's clock set forward",
            Self::ClockBack => "server's clock set back",
            Self::WrongRecord => "another type under a record",
            Self::WrongQueue => "another type under a queue",
            Self::WrongCounter => "another type under a counter",
            Self::SaveSnapshot => "`SAVE` of a master",
            Self::RestartSnapshot => "`kill -9` of a master, restart with an old snapshot",
            Self::AofOn => "AOF of a master switched on by `CONFIG SET`",
            Self::AofOff => "AOF of a master switched off by `CONFIG SET`",
            Self::ExchangeServer => "another server takes over the address of a master",
            Self::CutLink => "a holder's connections to a master reset and refused",
            Self::DelayLink => "all between a holder and a master delayed",
        }
    }

    /// Whether the store loses a grant that it acknowledged, or ends it early.
    pub(crate) fn forgets_grants(self) -> bool {
        matches!(
            self,
            Self::RestartEmpty
                | Self::RestartSnapshot
                | Self::ExchangeServer
                | Self::FlushAll
                | Self::DeleteRecord
                | Self::ClockForward
                | Self::WrongRecord
        )
    }

    /// Whether the store loses the last token.
    pub(crate) fn forgets_counters(self) -> bool {
        matches!(
            self,
            Self::RestartEmpty
                | Self::RestartSnapshot
                | Self::ExchangeServer
                | Self::FlushAll
                | Self::WrongCounter
        )
    }

    /// Whether an answer may be late or never come, so that a question is asked again.
    pub(crate) fn disturbs(self) -> bool {
        !matches!(
            self,
            Self::KillHolder | Self::FlushScripts | Self::DeleteRecord
        )
    }
}

/// A fault that ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Happened {
    pub(crate) fault: Fault,
    /// The process that it hit, unless that was the server.
    pub(crate) process: Option<String>,
    /// Which of many masters it hit, and the connections of which holder to it.
    pub(crate) master: Option<usize>,
    pub(crate) holder: Option<usize>,
    /// The name whose keys it hit, unless it hit all.
    pub(crate) name: Option<String>,
    /// The fault lasted at most from `outer.0` to `outer.1`, and at least over `inner`.
    pub(crate) outer: (Nanos, Nanos),
    pub(crate) inner: (Nanos, Nanos),
}

impl Happened {
    pub(crate) fn hits(&self, name: &str) -> bool {
        self.name.as_deref().is_none_or(|hit| hit == name)
    }
}
