//! The machine of a measurement.

use std::fs;
use std::thread::available_parallelism;

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
