//! The machine of a measurement, and its cores.

use std::fs;
use std::process::Command;
use std::thread::available_parallelism;

use crate::tools::find;

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

/// A core for the server and another one for the client.
pub(super) fn two_cores() -> Result<(u32, u32), String> {
    if find("taskset").is_none() {
        return Err("taskset is missing; install util-linux".into());
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut lines = status.lines();
    let allowed = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    first_and_last(allowed.unwrap_or_default())
        .filter(|(first, last)| first != last)
        .ok_or_else(|| "it takes two cores".into())
}

/// The first and the last number of a list such as `0-2,5`.
pub(super) fn first_and_last(list: &str) -> Option<(u32, u32)> {
    let mut numbers = list.split([',', '-']).map(|number| number.trim().parse());
    let first = numbers.next()?.ok()?;
    Some((first, numbers.next_back().unwrap_or(Ok(first)).ok()?))
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
