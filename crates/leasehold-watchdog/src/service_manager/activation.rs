//! The descriptors that the service manager has passed to this process.

use std::collections::BTreeMap;
use std::env;
use std::os::fd::OwnedFd;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

const PROCESS: &str = "leasehold-process-";
const JOURNAL: &str = "leasehold-journal-";

/// The number of the first descriptor.
const FIRST: i32 = 3;

/// The largest accepted number of descriptors.
const MAX: i32 = 1 << 20;

/// Descriptors that this process has inherited.
#[derive(Debug, Default)]
pub(crate) struct InheritedDescriptors {
    /// Listening sockets.
    pub(crate) sockets: Vec<OwnedFd>,
    /// Pidfds, by the numbers in their names.
    pub(crate) processes: BTreeMap<u64, OwnedFd>,
    /// Journals, by generation.
    pub(crate) journals: BTreeMap<u64, OwnedFd>,
}

pub(super) fn process_name(number: u64) -> String {
    format!("{PROCESS}{number}")
}

pub(super) fn journal_name(generation: u64) -> String {
    format!("{JOURNAL}{generation}")
}

impl InheritedDescriptors {
    /// The descriptors that the environment announces, duplicated.
    pub(crate) fn from_environment() -> std::io::Result<Self> {
        let number = |name| env::var(name).ok()?.parse::<i32>().ok();
        let mut inherited = Self::default();
        if number("LISTEN_PID") != Some(getpid().as_raw_nonzero().get()) {
            return Ok(inherited);
        }
        let count = number("LISTEN_FDS").unwrap_or(0).clamp(0, MAX);
        let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':');
        // The environment only has their numbers. Duplicating them by way of this process's own pidfd is safe even if
        // a number is wrong.
        let this_process = pidfd_open(getpid(), PidfdFlags::empty())?;
        for number in FIRST..FIRST + count {
            let name = names.next().unwrap_or_default();
            let Ok(descriptor) = pidfd_getfd(&this_process, number, PidfdGetfdFlags::empty())
            else {
                tracing::warn!(
                    number,
                    name,
                    "the service manager has announced a descriptor that is not there"
                );
                continue;
            };
            let number_after = |prefix| name.strip_prefix(prefix)?.parse::<u64>().ok();
            if let Some(number) = number_after(PROCESS) {
                inherited.processes.insert(number, descriptor);
            } else if let Some(generation) = number_after(JOURNAL) {
                inherited.journals.insert(generation, descriptor);
            } else {
                inherited.sockets.push(descriptor);
            }
        }
        Ok(inherited)
    }
}
