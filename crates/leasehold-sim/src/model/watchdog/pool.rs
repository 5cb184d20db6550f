//! Numbers for values that are too large to be in every state.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

/// Values by their numbers. Equal values have one number.
#[derive(Debug)]
pub(super) struct Pool<T>(Mutex<Values<T>>);

#[derive(Debug)]
struct Values<T> {
    values: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T: Clone + Eq + Hash> Pool<T> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Values {
            values: Vec::new(),
            numbers: HashMap::new(),
        }))
    }

    pub(super) fn get(&self, number: u32) -> T {
        let pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pool.values[number as usize].clone()
    }

    pub(super) fn number(&self, value: T) -> u32 {
        let mut pool = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = pool.numbers.get(&value) {
            return *number;
        }
        let number = pool.values.len() as u32;
        pool.values.push(value.clone());
        pool.numbers.insert(value, number);
        number
    }
}
