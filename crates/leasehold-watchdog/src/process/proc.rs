//! Facts about a process from `/proc`. If its id was reused meanwhile, they belong to another process.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

/// The id of a pidfd's process. 0 if it is not visible here, or has ended.
///
/// # Errors
///
/// If the descriptor is not a pidfd.
pub(super) fn pid_of(pidfd: &OwnedFd) -> io::Result<u32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd()))?;
    let pid = line(&info, "Pid:").ok_or_else(|| invalid("the descriptor is not a pidfd"))?;
    // -1: it has ended and was reaped.
    Ok(pid.parse().unwrap_or(0))
}

/// Its start time, in ticks since the machine was started.
pub(super) fn started(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of its program may contain parentheses.
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest);
    let started = fields.and_then(|fields| fields.split_whitespace().nth(19)?.parse().ok());
    started.ok_or_else(|| invalid("/proc/PID/stat is not as expected"))
}

/// The real user id.
pub(super) fn uid(pid: u32) -> io::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let uid = numbers(&status, "Uid:").next();
    uid.ok_or_else(|| invalid("/proc/PID/status is not as expected"))
}

/// Its supplementary groups. Empty if they are not readable.
pub(super) fn groups(pid: u32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    numbers(&status, "Groups:").collect()
}

/// A hash of the addresses that the kernel drew for its program. `None`: they are not readable for this user.
pub(super) fn address_hash(pid: u32) -> Option<u64> {
    let addresses = fs::read(format!("/proc/{pid}/auxv")).ok()?;
    if addresses.is_empty() {
        return None;
    }
    // FNV-1a, which stays the same from one version of a node to the next.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    Some(addresses.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The likely reason for its silence, for people.
pub(super) fn silence_reason(pid: u32) -> String {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
        return "it is not visible from here".into();
    };
    let traced = line(&status, "TracerPid:").filter(|tracer| *tracer != "0");
    let state = line(&status, "State:").and_then(|state| state.chars().next());
    match (state, traced) {
        (Some('t'), Some(tracer)) => format!("it is stopped by process {tracer}, which traces it"),
        (Some('T'), _) => "it is stopped by a signal".into(),
        (Some('Z'), _) => "its main thread has ended, others go on".into(),
        _ if is_frozen(pid) => "its control group is frozen".into(),
        (Some('D'), _) => "it waits for a disk or for memory".into(),
        (_, Some(tracer)) => format!("it is traced by process {tracer}"),
        (Some('R'), _) => "it runs, but sends nothing".into(),
        _ => "it sleeps, but sends nothing".into(),
    }
}

/// Whether its control group is frozen, in version 1 or 2.
fn is_frozen(pid: u32) -> bool {
    let has_line = |path: String, lines: &[&str]| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.lines().any(|line| lines.contains(&line))
    };
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    // Each line has the form ID:CONTROLLERS:PATH, in version 2 without controllers.
    groups.lines().any(|line| {
        let fields: Vec<_> = line.splitn(3, ':').collect();
        match fields[..] {
            [_, "", path] => has_line(format!("/sys/fs/cgroup{path}/cgroup.events"), &["frozen 1"]),
            [_, "freezer", path] => {
                let state = format!("/sys/fs/cgroup/freezer{path}/freezer.state");
                has_line(state, &["FROZEN", "FREEZING"])
            }
            _ => false,
        }
    })
}

fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix(name).map(str::trim))
}

/// The numbers in a line.
fn numbers(text: &str, name: &str) -> impl Iterator<Item = u32> {
    let words = line(text, name).unwrap_or_default().split_whitespace();
    words.filter_map(|number| number.parse().ok())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
