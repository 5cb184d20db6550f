//! The turns of batches for the same name: they are applied one after the other, so that this process does not conflict with
//! itself.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use tokio::task::unconstrained;

use super::attempt::Part;
use crate::store::api::{BoxFuture, Key};
use crate::store::lock::lock;

/// The number of names from which those without a batch are forgotten.
const NAMES_MIN: usize = 1_024;

/// Whose turn it is, by name.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<Key, Arc<Turn<()>>>>);

impl Turns {
    /// Lets a batch wait for the turns of its names.
    pub(super) fn queue(&self, parts: Vec<Part>) -> Waiting {
        let mut names = lock(&self.0);
        if names.len() >= NAMES_MIN {
            names.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        let queued = parts.into_iter().map(|part| {
            let turn = Arc::clone(names.entry(part.key.clone()).or_default());
            let turn: BoxFuture<'static, _> = Box::pin(unconstrained(turn.lock_owned()));
            (part, turn)
        });
        Waiting(queued.collect())
    }
}

/// The parts of a batch whose turns have not come.
pub(super) struct Waiting(Vec<(Part, BoxFuture<'static, OwnedMutexGuard<()>>)>);

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts whose turns have come, at least one. The first call takes the places of all, so that batches are applied in
    /// their order. A call that is dropped loses no turn.
    pub(super) async fn next(&mut self) -> Vec<Part> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Vec<Part>> {
        let mut ready = Vec::new();
        for (mut part, mut queued) in std::mem::take(&mut self.0) {
            match queued.as_mut().poll(context) {
                Poll::Ready(turn) => {
                    part.turn = Some(turn);
                    ready.push(part);
                }
                Poll::Pending => self.0.push((part, queued)),
            }
        }
        match ready.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(ready),
        }
    }

    /// Leaves the queues.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = Part> + '_ {
        self.0.drain(..).map(|(part, _)| part)
    }
}
