//! All processes of a command, not only the first.

use std::collections::{HashMap, HashSet};
use std::fs;

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

use super::environment::LEASE;

/// The processes that belong to one run.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    /// The command's own process.
    pub(crate) child: Option<Pid>,
    /// Whether it leads a process group of its own.
    pub(crate) own_group: bool,
    /// The lease in their environment.
    pub(crate) lease: String,
}

/// Makes processes whose parent ends our children, so that they stay in sight.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(getpid())) {
        tracing::debug!(%error, "orphans of the command are not adopted");
    }
}

impl Family {
    /// Sends a signal to the group that the command leads, or, if it shares ours, to each of its
    /// processes.
    pub(crate) fn forward(&self, signal: Signal) {
        if self.own_group || self.members().is_empty() {
            self.signal_known(signal);
        } else {
            self.signal_all(signal);
        }
    }

    /// Sends a signal to what is known without looking: the command, or the group that it leads.
    fn signal_known(&self, signal: Signal) {
        let Some(child) = self.child else { return };
        // Gone already: then there is nobody to tell.
        let _ = if self.own_group {
            kill_process_group(child, signal)
        } else {
            kill_process(child, signal)
        };
    }

    /// Sends a signal to every process of the run. How many there were in sight.
    pub(crate) fn signal_all(&self, signal: Signal) -> usize {
        let members = self.members();
        if members.is_empty() {
            // Where there is no /proc, the command and its group are all that we know of.
            self.signal_known(signal);
        }
        for pid in &members {
            let _ = kill_process(*pid, signal);
        }
        members.len()
    }

    /// The living processes of the run: our descendants, and whoever carries the lease in its
    /// environment without descending from us (any more).
    pub(crate) fn members(&self) -> Vec<Pid> {
        let living = living();
        let mut members = descendants(&living, getpid());
        let carriers = living
            .iter()
            .filter(|process| carries(process.pid, &self.lease));
        members.extend(carriers.map(|process| process.pid));
        members.remove(&getpid());
        members
            .into_iter()
            .filter(|pid| !is_guardian(*pid))
            .collect()
    }
}

/// A process as /proc tells.
#[derive(Clone, Copy, Debug)]
struct Process {
    pid: Pid,
    parent: i32,
}

/// All processes that are not zombies. Empty where there is no /proc.
fn living() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may contain anything, also parentheses.
        let (_, rest) = stat.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        let parent = fields.next()?.parse().ok()?;
        let pid = Pid::from_raw(pid)?;
        (!matches!(state, "Z" | "X")).then_some(Process { pid, parent })
    })
    .collect()
}

fn descendants(living: &[Process], root: Pid) -> HashSet<Pid> {
    let mut children: HashMap<i32, Vec<Pid>> = HashMap::new();
    for process in living {
        children
            .entry(process.parent)
            .or_default()
            .push(process.pid);
    }
    let mut found = HashSet::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        for child in children
            .get(&parent.as_raw_nonzero().get())
            .into_iter()
            .flatten()
        {
            if found.insert(*child) {
                open.push(*child);
            }
        }
    }
    found
}

fn carries(pid: Pid, lease: &str) -> bool {
    has_entry(pid, "environ", &format!("{LEASE}={lease}"))
}

fn is_guardian(pid: Pid) -> bool {
    has_entry(pid, "cmdline", super::guardian::COMMAND)
}

/// Whether a list in /proc, whose entries end with a NUL, has this entry.
fn has_entry(pid: Pid, list: &str, wanted: &str) -> bool {
    let path = format!("/proc/{}/{list}", pid.as_raw_nonzero());
    fs::read(path).is_ok_and(|bytes| {
        bytes
            .split(|byte| *byte == 0)
            .any(|entry| entry == wanted.as_bytes())
    })
}
