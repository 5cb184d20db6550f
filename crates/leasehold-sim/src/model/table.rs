//! A set of states that remembers how each was reached, in little room.

use std::hash::{Hash, Hasher};

/// No state.
pub(super) const NONE: u32 = u32::MAX;

/// States by their numbers, each with the one that it was reached from.
///
/// A `HashMap` would keep every state twice: once to find it, once to visit it in its turn.
pub(super) struct Table<S> {
    states: Vec<S>,
    from: Vec<u32>,
    /// Numbers of states at the places that their hashes lead to. At most half of the places are
    /// taken.
    places: Vec<u32>,
}

impl<S: Copy + Eq + Hash> Table<S> {
    pub(super) fn new() -> Self {
        Self {
            states: Vec::new(),
            from: Vec::new(),
            places: vec![NONE; 1 << 10],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    pub(super) fn state(&self, number: u32) -> S {
        self.states[number as usize]
    }

    /// Adds a state, and answers its number if it is new.
    pub(super) fn insert(&mut self, state: S, from: u32) -> Option<u32> {
        if self.states.len() * 2 >= self.places.len() {
            self.grow();
        }
        let place = self.place(&state);
        if self.places[place] != NONE {
            return None;
        }
        let number = u32::try_from(self.states.len()).ok()?;
        self.places[place] = number;
        self.states.push(state);
        self.from.push(from);
        Some(number)
    }

    /// The states on the way to one, the first one first.
    pub(super) fn way(&self, to: u32) -> Vec<S> {
        let mut way = Vec::new();
        let mut number = to;
        while number != NONE {
            way.push(self.state(number));
            number = self.from[number as usize];
        }
        way.reverse();
        way
    }

    /// Where a state is, or would be.
    fn place(&self, state: &S) -> usize {
        let mut hasher = Mixer(0);
        state.hash(&mut hasher);
        let places = self.places.len();
        // The number of places is a power of two.
        let mut place = hasher.finish() as usize & (places - 1);
        while self.places[place] != NONE && self.state(self.places[place]) != *state {
            place = (place + 1) & (places - 1);
        }
        place
    }

    fn grow(&mut self) {
        self.places = vec![NONE; self.places.len() * 2];
        for number in 0..self.states.len() {
            let place = self.place(&self.states[number]);
            self.places[place] = number as u32;
        }
    }
}

/// A hasher that is quick, and good enough for states: nobody chooses them to collide.
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        // The upper half of a product is the better mixed one.
        self.0 ^ self.0 >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_and_nothing_else() {
        let mut table = Table::new();
        for state in 0..10_000_u64 {
            let from = (state as u32).checked_sub(1).unwrap_or(NONE);
            assert_eq!(table.insert(state * 7, from), Some(state as u32));
        }
        for state in 0..70_000_u64 {
            let new = table.insert(state, NONE).is_some();
            assert_eq!(new, state % 7 != 0, "{state}");
        }
        assert_eq!(table.way(3), [0, 7, 14, 21]);
    }
}
