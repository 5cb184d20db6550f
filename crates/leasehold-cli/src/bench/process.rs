//! What this process uses of the machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time of all its threads so far, their own and the kernel's on their behalf.
pub(super) fn cpu() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    // Neither is ever negative on this clock.
    let seconds = u64::try_from(spent.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(spent.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

/// The bytes that it has in memory at this moment. `None`: the system does not tell.
pub(super) fn resident() -> Option<u64> {
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
        assert_eq!(
            block.iter().map(|byte| usize::from(*byte)).sum::<usize>(),
            bytes
        );
        assert!(cpu() > cpu_before);
        // Other tests of this process come and go meanwhile.
        assert!(resident().unwrap() > resident_before + (bytes as u64) / 2);
    }
}
