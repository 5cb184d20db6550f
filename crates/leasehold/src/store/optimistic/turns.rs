//! The turns of batches for the same name: they are applied one after the other, so that this process does not conflict with
//! itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};

use crate::store::api::Key;
use crate::store::lock::lock;

/// The number of names from which those without a batch are forgotten.
const NAMES_MIN: usize = 1_024;

/// Whose turn it is, by name.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Key, Arc<Turn<()>>>>);

impl Turns {
    /// Waits for the turns of all these names, in their order, so that batches do not wait for each other in a circle.
    pub(super) async fn take(&self, keys: impl Iterator<Item = Key>) -> Vec<OwnedMutexGuard<()>> {
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        let turns: Vec<_> = {
            let mut names = lock(&self.0);
            if names.len() >= NAMES_MIN {
                names.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            let turn = |key| Arc::clone(names.entry(key).or_default());
            keys.into_iter().map(turn).collect()
        };
        let mut taken = Vec::with_capacity(turns.len());
        for turn in turns {
            taken.push(turn.lock_owned().await);
        }
        taken
    }
}
