//! The lines of a history file: an instant and what happened, in JSON.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::faults::Happened;
use crate::clock::{self, Nanos};

/// A line of a holder process. `hold` numbers the acquisitions of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Event {
    Started {
        pid: u32,
        ttl_ms: u64,
        handoff: bool,
    },
    /// A hold is asked for: `inside` another one of the same owner, if it enters its lease again.
    Asked {
        hold: u64,
        name: String,
        fixed: bool,
        inside: Option<u64>,
    },
    Granted {
        hold: u64,
        lease: String,
        token: u64,
        deadline: Nanos,
        ttl_ms: u64,
    },
    NotGranted {
        hold: u64,
        why: String,
    },
    /// The state was read after `before` and not after the line's instant. If it is not lost and it
    /// is to be a `step`, a critical step begins here.
    Checked {
        hold: u64,
        before: Nanos,
        state: Seen,
        step: bool,
    },
    /// The critical step has ended, and what the fenced resource said in it.
    Stepped {
        hold: u64,
        write: Write,
    },
    /// The stream of states said so.
    Told {
        hold: u64,
        state: Seen,
    },
    Leaving {
        hold: u64,
    },
    /// The release has returned.
    Left {
        hold: u64,
        how: String,
    },
    /// The store was asked for the hold count after `before`; the state was read after its answer.
    Counted {
        hold: u64,
        before: Nanos,
        expected: u32,
        seen: Option<(String, u32)>,
        state: Seen,
    },
    /// The process, or a thread of it that wanted to, did not run from here to the line's instant.
    Stalled {
        since: Nanos,
    },
    /// No task ran from here to the line's instant, though there was a processor for them: something
    /// blocked the thread that runs them.
    Blocked {
        since: Nanos,
    },
    Ended {
        released: bool,
    },
}

impl Event {
    /// The hold that it is about.
    pub(crate) fn hold(&self) -> Option<u64> {
        match self {
            Self::Asked { hold, .. }
            | Self::Granted { hold, .. }
            | Self::NotGranted { hold, .. }
            | Self::Checked { hold, .. }
            | Self::Stepped { hold, .. }
            | Self::Told { hold, .. }
            | Self::Leaving { hold }
            | Self::Left { hold, .. }
            | Self::Counted { hold, .. } => Some(*hold),
            Self::Started { .. }
            | Self::Stalled { .. }
            | Self::Blocked { .. }
            | Self::Ended { .. } => None,
        }
    }
}

/// What a guard said of its lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Seen {
    Held(Nanos),
    Jeopardy(Nanos, String),
    Lost(String),
}

/// What became of a write to the fenced resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Write {
    Accepted,
    Refused,
    Unknown,
}

/// A line of the campaign.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Note {
    /// `wall` is what to take from a token's time to have an instant; `None` if the server's clock
    /// is set in this world.
    World {
        names: Vec<String>,
        wall: Option<Nanos>,
        /// How many servers decide together: more than one are many masters, of which faults let fewer than
        /// a majority forget at a time.
        servers: usize,
    },
    Fault(Happened),
    /// What the record of a name was at some instant between `from` and the line's.
    Sampled {
        name: String,
        from: Nanos,
        holds: Vec<(String, u32)>,
        left_ms: i64,
    },
    /// The fenced resource decided about a write.
    Wrote {
        process: String,
        hold: u64,
        name: String,
        token: u64,
        accepted: bool,
    },
    /// A holder process ended though nobody had killed it, or did not end when it was asked to.
    Failed {
        process: String,
        why: String,
    },
    /// The wall clock of the machine was set, so the times of tokens tell nothing.
    WallMoved,
    /// A record that was there when all holders had ended and every ttl had passed, or a key
    /// without an end.
    LeftBehind {
        key: String,
        left_ms: i64,
    },
    /// A record right after all holders had ended.
    AtTheEnd {
        name: String,
        lease: String,
    },
}

/// A history file that is being written. Each line is one call, so a process that is killed leaves
/// whole lines behind.
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self(file))
    }

    /// Writes a line of this instant, and answers it.
    pub(crate) fn write(&self, what: &impl Serialize) -> Nanos {
        let now = clock::now();
        self.write_at(now, what);
        now
    }

    /// # Panics
    ///
    /// If it cannot: a history with holes proves nothing.
    #[allow(clippy::expect_used)]
    pub(crate) fn write_at(&self, at: Nanos, what: &impl Serialize) {
        let mut line = serde_json::to_vec(&(at, what)).expect("a line");
        line.push(b'\n');
        (&self.0).write_all(&line).expect("the history is written");
    }
}
