//! Processes that outlive the test that started them.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process};

/// How long a process that is about to end may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes this process the parent of every orphan among its descendants, so that each can be found.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(getpid())) {
        println!("WARNING: orphaned processes will not be found: {error}");
    }
}

/// Checks that no descendant of this process is running, and kills those that are.
pub(crate) fn check_descendants() -> Result<(), String> {
    let start = Instant::now();
    let mut running = descendants();
    while !running.is_empty() && start.elapsed() < TIMEOUT {
        thread::sleep(Duration::from_millis(20));
        running = descendants();
    }
    if running.is_empty() {
        return Ok(());
    }
    for Process { pid, command, .. } in &running {
        println!("still running: {pid} {command}");
        if let Some(pid) = Pid::from_raw(*pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    Err(format!(
        "{} processes were still running and were killed",
        running.len()
    ))
}

#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    command: String,
}

/// The running descendants of this process. Empty where there is no `/proc`.
fn descendants() -> Vec<Process> {
    let mut others = running();
    let mut parents = vec![getpid().as_raw_nonzero().get()];
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        let children = others.extract_if(.., |process| process.parent == parent);
        for child in children {
            parents.push(child.pid);
            found.push(child);
        }
    }
    found
}

fn running() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let pid = name.to_str()?.parse().ok()?;
            parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
        })
        .collect()
}

/// Reads `pid (command) state parent ...`. `None` for one that has ended.
fn parse(pid: i32, stat: &str) -> Option<Process> {
    // The command may contain anything, so its end is the last bracket.
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, command) = head.split_once('(')?;
    let mut fields = tail.split_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    (!ended).then(|| Process {
        pid,
        parent,
        command: command.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_state_of_a_process_is_read_whatever_its_name() {
        let process = parse(7, "7 (a) Z 1 (b)) S 42 7 7 0");
        let expected = Process {
            pid: 7,
            parent: 42,
            command: "a) Z 1 (b)".into(),
        };
        assert_eq!(process, Some(expected));
        assert!(parse(7, "7 (redis-server) Z 42 7").is_none());
        assert!(parse(7, "").is_none());
    }

    fn is_running(pid: i32) -> bool {
        descendants().iter().any(|process| process.pid == pid)
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_orphan_is_found_after_the_end_of_its_parent() {
        adopt_orphans();
        let script = "sleep 600 >&- 2>&- & echo $!";
        let output = Command::new("sh").args(["-c", script]).output().unwrap();
        let pid = String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert!(is_running(pid));
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        let start = Instant::now();
        while is_running(pid) {
            assert!(start.elapsed() < TIMEOUT);
            thread::yield_now();
        }
    }
}
