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
    for (pid, command) in &running {
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

/// The running descendants of this process, and their commands. Empty where there is no `/proc`.
fn descendants() -> Vec<(i32, String)> {
    let mut parents = vec![getpid().as_raw_nonzero().get()];
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        for child in children(parent) {
            parents.push(child);
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            found.extend(running(&stat).map(|command| (child, command.to_owned())));
        }
    }
    found
}

/// The children of all threads of a process.
fn children(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let files = threads.flatten().flatten();
    let files = files.map(|thread| thread.path().join("children"));
    let lists: String = files.flat_map(fs::read_to_string).collect();
    let pids = lists.split_whitespace();
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

/// The command in `pid (command) state ...`. `None` for a process that has ended.
fn running(stat: &str) -> Option<&str> {
    // The command may contain anything, so its end is the last bracket.
    let (head, state) = stat.rsplit_once(") ")?;
    let (_, command) = head.split_once('(')?;
    (!state.starts_with(['Z', 'X'])).then_some(command)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_state_of_a_process_is_read_whatever_its_name() {
        assert_eq!(running("7 (a) Z 1 (b)) S 42 7 7 0"), Some("a) Z 1 (b)"));
        assert_eq!(running("7 (redis-server) Z 42 7"), None);
        assert_eq!(running(""), None);
    }

    fn is_running(pid: i32) -> bool {
        descendants().iter().any(|(other, _)| *other == pid)
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
