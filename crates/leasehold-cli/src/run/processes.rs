//! All processes of a command, found by descent.
//!
//! The guardian is the subreaper of the command, so a process whose parent ends becomes a child of the
//! guardian. No process leaves the tree, whatever it does to its session, its title or its environment.

use std::collections::{HashMap, HashSet};
use std::{fmt, fs, io};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};

/// How often [`Tree::signal_once`] looks for processes that were forked while it stopped the others.
const STOP_ROUNDS: usize = 20;

/// Whether /proc shows the processes of our own pid namespace. By the ids of another, the processes of the command
/// are not found, and others would be signalled.
pub(crate) fn check_proc() -> io::Result<()> {
    if fs::read_link("/proc/self")?.to_str() == Some(&getpid().to_string()) {
        Ok(())
    } else {
        Err(io::Error::other(
            "/proc shows the processes of another pid namespace; mount one for this namespace",
        ))
    }
}

/// Makes this process the parent of descendants whose own parent has ended.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// The descendants of a process.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Pid,
    /// Processes that this user may not signal, and that were reported.
    denied: HashSet<Pid>,
}

/// The result of sending a signal to all processes of a tree.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// How many processes got it.
    pub(crate) reached: usize,
    /// How many processes this user may not signal.
    pub(crate) denied: usize,
    /// The messages about those of them that were not reported before.
    pub(crate) report: Vec<String>,
}

impl Tree {
    pub(crate) fn of(root: Pid) -> Self {
        Self {
            root,
            denied: HashSet::new(),
        }
    }

    /// The living processes.
    pub(crate) fn members(&self) -> Vec<Process> {
        descendants(living(), self.root)
    }

    /// Sends a signal to every process.
    pub(crate) fn signal(&mut self, signal: Signal) -> Sent {
        let mut sent = Sent::default();
        for process in self.members() {
            self.send(process, signal, &mut sent);
        }
        sent
    }

    /// Sends a signal to every process, once, and has stopped ones continue.
    ///
    /// All are stopped meanwhile: a process that is forked after the tree was read would not get the signal, and one
    /// that is forked by a handler of the signal must not get it.
    pub(crate) fn signal_once(&mut self, signal: Signal) -> Sent {
        let mut sent = Sent::default();
        let mut stopped = HashSet::new();
        for _ in 0..STOP_ROUNDS {
            let members = self.members().into_iter();
            let new: Vec<_> = members.filter(|new| stopped.insert(new.pid)).collect();
            if new.is_empty() {
                break;
            }
            for process in new {
                self.send(process, Signal::STOP, &mut sent);
            }
        }
        for signal in [signal, Signal::CONT] {
            for pid in &stopped {
                let _ = kill_process(*pid, signal);
            }
        }
        sent
    }

    fn send(&mut self, process: Process, signal: Signal, sent: &mut Sent) {
        match kill_process(process.pid, signal) {
            Ok(()) => sent.reached += 1,
            Err(Errno::PERM) => {
                sent.denied += 1;
                if self.denied.insert(process.pid) {
                    sent.report.push(denied(&process));
                }
            }
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
}

/// A process, as /proc describes it.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pid: Pid,
    parent: i32,
    name: String,
}

/// The process in messages.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.name)
    }
}

/// The message about a process that this user may not signal.
fn denied(process: &Process) -> String {
    let user = user_of(process.pid).unwrap_or_else(|| "another user".to_owned());
    let error = io::Error::from(Errno::PERM);
    format!("{process} of {user} cannot be signalled: {error}")
}

/// All processes that have not ended.
fn living() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        parse(Pid::from_raw(pid)?, &String::from_utf8_lossy(&stat))
    })
    .collect()
}

/// A process by its line in /proc, unless it has ended.
fn parse(pid: Pid, stat: &str) -> Option<Process> {
    // The name in parentheses may contain anything, also parentheses.
    let (start, rest) = stat.rsplit_once(')')?;
    let (_, name) = start.split_once('(')?;
    let fields: Vec<_> = rest.split_ascii_whitespace().collect();
    let (state, threads) = (*fields.first()?, *fields.get(17)?);
    // A process whose first thread has ended is shown as a zombie though others work on.
    let ended = state == "X" || (state == "Z" && matches!(threads, "0" | "1"));
    (!ended).then_some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        name: crate::output::printable(name),
    })
}

fn descendants(living: Vec<Process>, root: Pid) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in living {
        children.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        // Taken out, so that a list that was read while ids were used again cannot lead in a circle.
        let children = children.remove(&parent.as_raw_nonzero().get());
        for child in children.into_iter().flatten() {
            open.push(child.pid);
            found.push(child);
        }
    }
    found
}

/// The user whose rights a process has, for people.
fn user_of(pid: Pid) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    let uid = uids.split_ascii_whitespace().nth(1)?;
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    Some(format!("user {}", name.as_deref().unwrap_or(uid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(raw: i32) -> Pid {
        Pid::from_raw(raw).unwrap()
    }

    fn process(raw: i32, parent: i32) -> Process {
        Process {
            pid: pid(raw),
            parent,
            name: String::new(),
        }
    }

    fn stat(name: &str, state: &str, threads: u32) -> String {
        format!("7 ({name}) {state} 3 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 100 0")
    }

    #[test]
    fn a_name_may_look_like_the_rest_of_the_line() {
        let found = parse(pid(7), &stat("a) Z 99 (b", "S", 1)).unwrap();
        assert_eq!((found.parent, found.name.as_str()), (3, "a) Z 99 (b"));
    }

    #[test]
    fn a_zombie_has_ended_unless_a_thread_works_on() {
        assert!(parse(pid(7), &stat("a", "Z", 1)).is_none());
        assert!(parse(pid(7), &stat("a", "Z", 2)).is_some());
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let all = vec![process(2, 1), process(3, 2), process(1, 3), process(9, 8)];
        let mut found: Vec<_> = descendants(all, pid(1))
            .into_iter()
            .map(|process| process.pid.as_raw_nonzero().get())
            .collect();
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3]);
    }
}
