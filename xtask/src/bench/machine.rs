//! The machine of a measurement.

use std::fs;
use std::thread::available_parallelism;

/// One line: processor, cores, kernel.
pub(super) fn describe() -> String {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let cpu = cpu.lines().find(|line| line.starts_with("model name"));
    let cpu = cpu
        .and_then(|line| line.split_once(": "))
        .map_or("unknown processor", |pair| pair.1);
    let cores = available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{}, {cores} cores, Linux {}", cpu.trim(), kernel.trim())
}
