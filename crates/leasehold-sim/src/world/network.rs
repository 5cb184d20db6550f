//! How messages travel: late, doubled or not at all.

use std::time::Duration;

use fastrand::Rng;
use leasehold_core::Ttl;

/// What a world's network does to messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    ttl: Duration,
    /// How many messages in a hundred get lost, doubled, and delayed for longer than a client waits.
    lost: u8,
    doubled: u8,
    slow: u8,
}

impl Network {
    pub(super) fn random(rng: &mut Rng, ttl: Ttl) -> Self {
        Self {
            ttl: ttl.as_duration(),
            lost: rng.u8(0..15),
            doubled: rng.u8(0..15),
            slow: rng.u8(0..25),
        }
    }

    /// The network after the faults have stopped.
    pub(super) fn calm(self) -> Self {
        Self {
            lost: 0,
            doubled: 0,
            slow: 0,
            ..self
        }
    }

    /// How long each copy of a message is under way.
    pub(super) fn copies(self, rng: &mut Rng) -> Vec<Duration> {
        let lost = rng.u8(0..100) < self.lost;
        let doubled = rng.u8(0..100) < self.doubled;
        let copies = usize::from(!lost) + usize::from(doubled);
        (0..copies).map(|_| self.delay(rng)).collect()
    }

    fn delay(self, rng: &mut Rng) -> Duration {
        let longest = if rng.u8(0..100) >= self.slow {
            self.ttl / 50
        } else if rng.u8(0..4) > 0 {
            self.ttl / 3
        } else {
            self.ttl * 2
        };
        longest.mul_f64(rng.f64())
    }
}
