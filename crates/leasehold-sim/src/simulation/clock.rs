//! Clocks that start anywhere and run a little too fast or too slow.

use fastrand::Rng;
use leasehold_core::Instant;

use super::setup::Setup;

/// The parts in which a rate is counted.
const PPM: i64 = 1_000_000;

/// The clock of a machine, as a function of the time of the simulation in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriftingClock {
    start: u64,
    /// Nanoseconds that it advances in a million nanoseconds of the simulation.
    rate: u64,
}

impl DriftingClock {
    /// A clock of a simulation.
    pub(super) fn random(setup: &Setup, rng: &mut Rng) -> Self {
        let (slow, fast) = setup.drift_ppm;
        Self::new(rng.u64(0..1 << 50), rng.i64(slow..=fast))
    }

    fn new(start: u64, ppm_fast: i64) -> Self {
        Self {
            start,
            rate: u64::try_from(PPM + ppm_fast).unwrap_or(1).max(1),
        }
    }

    /// Its instant at a time of the simulation.
    pub(super) fn read(&self, time: u64) -> Instant {
        Instant::from_nanos(self.start + scale(time, self.rate, PPM.unsigned_abs()))
    }

    /// The first time of the simulation at which it has reached an instant.
    pub(super) fn simulation_time(&self, instant: Instant) -> u64 {
        let elapsed = instant.as_nanos().saturating_sub(self.start);
        scale(elapsed, PPM.unsigned_abs(), self.rate) + 1
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
    fn a_timer_is_never_early() {
        for ppm in [-9_900, 0, 10_000, 250_000] {
            let clock = DriftingClock::new(77, ppm);
            for time in [0, 1, 999, 1_000_000_007, 86_400_000_000_000] {
                let instant = clock.read(time);
                let back = clock.simulation_time(instant);
                assert!(clock.read(back) >= instant, "{ppm} ppm at {time}");
                assert!(back <= time + 2, "{ppm} ppm: {back} for {time}");
            }
        }
    }
}
