//! Numbers for things that are too large, or not of one size, to be in every state.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// Things by their numbers. The same thing has the same number.
#[derive(Debug)]
pub(super) struct Pool<T>(Mutex<Things<T>>);

#[derive(Debug)]
struct Things<T> {
    things: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> Pool<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Things {
            things: Vec::new(),
            numbers: HashMap::new(),
        }))
    }

    pub(super) fn get(&self, number: u32) -> T {
        let pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pool.things[number as usize].clone()
    }

    pub(super) fn number(&self, thing: T) -> u32 {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = pool.numbers.get(&thing) {
            return *number;
        }
        let number = pool.things.len() as u32;
        pool.things.push(thing.clone());
        pool.numbers.insert(thing, number);
        number
    }
}
