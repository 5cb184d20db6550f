//! The processor time and the memory that this process uses.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time of all its threads so far, their own and the kernel's on their behalf.
pub(crate) fn cpu() -> Duration {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    // Neither is ever negative on this clock.
    let seconds = u64::try_from(used.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(used.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// The bytes that it has in memory at this moment. `None`: the system does not say.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kibibytes * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time_and_memory() {
        let (cpu_before, resident_before) = (cpu(), resident().unwrap());
        let bytes = 64 << 20;
        let block = vec![1_u8; bytes];
        let sum: usize = block.iter().map(|byte| usize::from(*byte)).sum();
        assert_eq!(sum, bytes);
        assert!(cpu() > cpu_before);
        // Other tests of this process come and go meanwhile.
        assert!(resident().unwrap() > resident_before + (bytes as u64) / 2);
    }
}
