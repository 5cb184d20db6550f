//! A set of states with the predecessor of each, in little memory.

use std::hash::{Hash, Hasher};

/// No state.
pub(super) const NONE: u32 = u32::MAX;

/// States by their numbers, each with its predecessor.
///
/// A `HashMap` would store every state twice: once to find it, once to visit it.
pub(super) struct Table<S> {
    states: Vec<S>,
    predecessors: Vec<u32>,
    /// The numbers of states, in slots by their hashes. At most half of the slots are used.
    slots: Vec<u32>,
}

impl<S: Copy + Eq + Hash> Table<S> {
    pub(super) fn new() -> Self {
        Self {
            states: Vec::new(),
            predecessors: Vec::new(),
            slots: vec![NONE; 1 << 10],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    pub(super) fn state(&self, number: u32) -> S {
        self.states[number as usize]
    }

    /// Adds a state. Returns its number if it is new.
    pub(super) fn insert(&mut self, state: S, predecessor: u32) -> Option<u32> {
        if self.states.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let slot = self.slot(&state);
        if self.slots[slot] != NONE {
            return None;
        }
        let number = u32::try_from(self.states.len()).ok()?;
        self.slots[slot] = number;
        self.states.push(state);
        self.predecessors.push(predecessor);
        Some(number)
    }

    /// The states on the path to one, from an initial one.
    pub(super) fn path(&self, to: u32) -> Vec<S> {
        let mut path = Vec::new();
        let mut number = to;
        while number != NONE {
            path.push(self.state(number));
            number = self.predecessors[number as usize];
        }
        path.reverse();
        path
    }

    /// The slot of a state, or the one for it.
    fn slot(&self, state: &S) -> usize {
        let mut hasher = Mixer(0);
        state.hash(&mut hasher);
        let slots = self.slots.len();
        // The number of slots is a power of two.
        let mut slot = hasher.finish() as usize & (slots - 1);
        while self.slots[slot] != NONE && self.state(self.slots[slot]) != *state {
            slot = (slot + 1) & (slots - 1);
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![NONE; self.slots.len() * 2];
        for number in 0..self.states.len() {
            let slot = self.slot(&self.states[number]);
            self.slots[slot] = number as u32;
        }
    }
}

/// A fast hasher. States are not chosen to collide.
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(bytes));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
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
    fn only_inserted_states_are_found() {
        let mut table = Table::new();
        for state in 0..10_000_u64 {
            let predecessor = (state as u32).checked_sub(1).unwrap_or(NONE);
            assert_eq!(table.insert(state * 7, predecessor), Some(state as u32));
        }
        for state in 0..70_000_u64 {
            let new = table.insert(state, NONE).is_some();
            assert_eq!(new, state % 7 != 0, "{state}");
        }
        assert_eq!(table.path(3), [0, 7, 14, 21]);
    }
}
