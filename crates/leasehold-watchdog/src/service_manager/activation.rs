//! What the service manager has given to this process.

use std::collections::BTreeMap;
use std::env;
use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

const PROCESS: &str = "leasehold-process-";
const JOURNAL: &str = "leasehold-journal-";

/// The first of them.
const FIRST: i32 = 3;

/// How many there may be.
const MAX: i32 = 1 << 20;

/// Descriptors that were opened before this process was started.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// Those that somebody connects to.
    pub(crate) sockets: Vec<OwnedFd>,
    /// Those of processes, by their places.
    pub(crate) processes: BTreeMap<u64, OwnedFd>,
    /// Journals, by their generations.
    pub(crate) journals: BTreeMap<u64, OwnedFd>,
}

pub(super) fn process_name(place: u64) -> String {
    format!("{PROCESS}{place}")
}

pub(super) fn journal_name(generation: u64) -> String {
    format!("{JOURNAL}{generation}")
}

impl Given {
    /// What the environment says. Nothing is taken away by that.
    pub(crate) fn here() -> std::io::Result<Self> {
        let number = |name| env::var(name).ok()?.parse::<i32>().ok();
        let mut given = Self::default();
        if number("LISTEN_PID") != Some(getpid().as_raw_nonzero().get()) {
            return Ok(given);
        }
        let count = number("LISTEN_FDS").unwrap_or(0).clamp(0, MAX);
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        // They are numbers in the environment. By asking for them from this very process, they become
        // descriptors of its own, however wrong the numbers are.
        let here = pidfd_open(getpid(), PidfdFlags::empty())?;
        for number in FIRST..FIRST + count {
            let name = names.next().unwrap_or_default();
            let Ok(descriptor) = pidfd_getfd(&here, number, PidfdGetfdFlags::empty()) else {
                tracing::warn!(
                    number,
                    name,
                    "the service manager has announced a descriptor that is not there"
                );
                continue;
            };
            let place = |prefix| name.strip_prefix(prefix)?.parse::<u64>().ok();
            if let Some(place) = place(PROCESS) {
                given.processes.insert(place, descriptor);
            } else if let Some(generation) = place(JOURNAL) {
                given.journals.insert(generation, descriptor);
            } else {
                given.sockets.push(descriptor);
            }
        }
        Ok(given)
    }
}
