//! A random order that a seed repeats.

use std::time::SystemTime;

/// A generator of random numbers (SplitMix64).
#[derive(Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Fisher-Yates: each order is equally likely.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            let other = self.next() % (end as u64 + 1);
            items.swap(end, other as usize);
        }
    }
}

/// A seed that is short enough to be typed.
pub(super) fn new_seed() -> u64 {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Random(time.unwrap_or_default().as_nanos() as u64).next() % 1_000_000
}
