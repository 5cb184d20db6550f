//! The machine on which the store runs: its boot id and its clocks.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use leasehold_core::Instant;

use super::error::of_system;
use crate::Result;
use crate::clock::{BootClock, Clock};

/// The boot id and the clocks of a machine. Tests create machines of their own.
#[doc(hidden)]
#[derive(Clone)]
pub struct Machine {
    /// Unique for each boot. `None` where the system has none: then leases follow the wall clock.
    pub boot_id: Option<String>,
    /// Counts from the boot, suspend included.
    pub clock: Arc<dyn Clock>,
    /// The offset of `clock` from the initial time namespace, in microseconds.
    pub skew: i64,
    /// The wall clock.
    pub wall: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Machine {
    /// The machine that this process runs on.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) if its boot id cannot be read.
    pub fn this() -> Result<Self> {
        Ok(Self {
            boot_id: boot_id()?,
            clock: Arc::new(BootClock),
            skew: skew(),
            wall: Arc::new(SystemTime::now),
        })
    }

    /// This machine, with another clock.
    pub(super) fn with_clock(clock: Arc<dyn Clock>) -> Result<Self> {
        let boot_id = boot_id()?.unwrap_or_else(|| "a clock of the caller".into());
        Ok(Self {
            boot_id: Some(boot_id),
            clock,
            skew: 0,
            wall: Arc::new(SystemTime::now),
        })
    }

    /// The time since the boot, in microseconds.
    pub(super) fn uptime(&self) -> i64 {
        let running = self.clock.now().since(Instant::default());
        micros(running.as_micros()).saturating_sub(self.skew)
    }

    /// The wall clock, in microseconds since the Unix epoch.
    pub(super) fn wall(&self) -> i64 {
        let wall = (self.wall)().duration_since(UNIX_EPOCH).unwrap_or_default();
        micros(wall.as_micros())
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine")
            .field("boot_id", &self.boot_id)
            .field("clock", &self.clock)
            .field("skew", &self.skew)
            .finish_non_exhaustive()
    }
}

fn micros(micros: u128) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

fn boot_id() -> Result<Option<String>> {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    if !cfg!(target_os = "linux") {
        return Ok(None);
    }
    match std::fs::read_to_string(FILE) {
        Ok(text) if !text.trim().is_empty() => Ok(Some(text.trim().to_owned())),
        Ok(_) => Err(unknown_boot(FILE)),
        Err(error) => Err(of_system(error, |_| unknown_boot(FILE))),
    }
}

fn unknown_boot(file: &str) -> crate::Error {
    crate::error::invalid(format!(
        "{file} cannot be read, and without it no lease can be timed; mount /proc"
    ))
}

/// In a time namespace of its own, which only Linux has, a process has a shifted boot clock, unlike other processes that
/// share the file.
fn skew() -> i64 {
    std::fs::read_to_string("/proc/self/timens_offsets")
        .ok()
        .and_then(|text| parse_skew(&text))
        .unwrap_or(0)
}

fn parse_skew(offsets: &str) -> Option<i64> {
    let line = offsets
        .lines()
        .find_map(|line| line.trim().strip_prefix("boottime"))?;
    let mut numbers = line.split_whitespace().map(str::parse::<i64>);
    let (seconds, nanos) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(
        seconds
            .saturating_mul(1_000_000)
            .saturating_add(nanos / 1_000),
    )
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_shift_of_a_time_namespace_is_read() {
        let text = "monotonic           0         0\nboottime      -86400   5000000\n";
        assert_eq!(parse_skew(text), Some(-86_400_000_000 + 5_000));
        assert_eq!(parse_skew("monotonic 0 0\n"), None);
        assert_eq!(parse_skew("boottime x y"), None);
    }

    #[test]
    fn this_machine_has_a_boot_id() {
        assert!(Machine::this().unwrap().boot_id.is_some());
    }
}
