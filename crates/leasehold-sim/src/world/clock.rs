//! Clocks that start anywhere and run a little too fast or too slow.

use leasehold_core::Instant;

/// How many parts a rate is counted in.
const PPM: i64 = 1_000_000;

/// A clock of a machine, told in nanoseconds of the world's own time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriftingClock {
    start: u64,
    /// Nanoseconds that it shows per million nanoseconds of the world.
    rate: u64,
}

impl DriftingClock {
    pub(crate) fn new(start: u64, ppm_fast: i64) -> Self {
        Self {
            start,
            rate: u64::try_from(PPM + ppm_fast).unwrap_or(1).max(1),
        }
    }

    /// What it shows at a time of the world.
    pub(crate) fn read(&self, world: u64) -> Instant {
        Instant::from_nanos(self.start + scale(world, self.rate, PPM.unsigned_abs()))
    }

    /// The first time of the world at which it shows this instant or a later one.
    pub(crate) fn world_time(&self, instant: Instant) -> u64 {
        let shown = instant.as_nanos().saturating_sub(self.start);
        scale(shown, PPM.unsigned_abs(), self.rate) + 1
    }
}

fn scale(time: u64, by: u64, of: u64) -> u64 {
    let scaled = u128::from(time) * u128::from(by) / u128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_is_never_early() {
        for ppm in [-9_900, 0, 10_000, 250_000] {
            let clock = DriftingClock::new(77, ppm);
            for world in [0, 1, 999, 1_000_000_007, 86_400_000_000_000] {
                let shown = clock.read(world);
                let back = clock.world_time(shown);
                assert!(clock.read(back) >= shown, "{ppm} ppm at {world}");
                assert!(back <= world + 2, "{ppm} ppm: {back} for {world}");
            }
        }
    }
}
