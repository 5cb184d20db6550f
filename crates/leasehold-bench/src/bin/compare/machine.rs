//! The machine of a measurement, and its cores.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use crate::tools::{find, output};

/// The cores of pinned work.
pub(super) const SERVER_CORE: u32 = 0;
pub(super) const CLIENT_CORE: u32 = 1;

/// One line: processor, cores, kernel.
pub(super) fn describe() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let mut lines = cpu.lines();
    let cpu = lines.find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpu = cpu.map_or("unknown processor", |(_, name)| name);
    let cores = available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{}, {cores} cores, Linux {}", cpu.trim(), kernel.trim())
}

/// Returns the reason why a program cannot have a core of its own here.
pub(super) fn check_cores() -> Result<(), String> {
    if find("taskset").is_none() {
        return Err("taskset is missing; install util-linux".into());
    }
    [SERVER_CORE, CLIENT_CORE].into_iter().try_for_each(|core| {
        output(&mut pinned(&Command::new("true"), core))?;
        Ok(())
    })
}

/// Keeps all threads of a process on one core.
pub(super) fn pin(pid: i32, core: u32) -> Result<(), String> {
    let mut taskset = Command::new("taskset");
    taskset.args(["--all-tasks", "--cpu-list", "--pid"]);
    output(taskset.args([core.to_string(), pid.to_string()]))?;
    Ok(())
}

/// The same command on one core.
pub(super) fn pinned(command: &Command, core: u32) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.args(["--cpu-list", &core.to_string()]);
    pinned.arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        pinned.current_dir(directory);
    }
    pinned
}
