//! The turns of batches for the same name: they are applied one after the other, so that this process does not conflict with
//! itself.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

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
    /// Lets a batch wait for the turns of its names. Its places are taken when this is called, so that batches are applied in
    /// the order in which they came.
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
        let mut waiting = Waiting {
            queued: queued.collect(),
            ready: Vec::new(),
        };
        waiting.poll(&mut Context::from_waker(Waker::noop()));
        waiting
    }
}

/// The parts of a batch whose turns have not come, and those whose turn came first.
pub(super) struct Waiting {
    queued: Vec<(Part, BoxFuture<'static, OwnedMutexGuard<()>>)>,
    ready: Vec<Part>,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.ready.is_empty()
    }

    /// The number of requests.
    pub(super) fn requests(&self) -> usize {
        let queued = self.queued.iter().map(|(part, _)| part);
        let parts = queued.chain(&self.ready);
        parts.map(|part| part.positions.len()).sum()
    }

    /// The number of parts.
    pub(super) fn len(&self) -> usize {
        self.queued.len() + self.ready.len()
    }

    /// The parts whose turns have come, at least one. A call that is dropped loses no turn.
    pub(super) async fn next(&mut self) -> Vec<Part> {
        poll_fn(|context| {
            self.poll(context);
            match self.ready.is_empty() {
                true => Poll::Pending,
                false => Poll::Ready(std::mem::take(&mut self.ready)),
            }
        })
        .await
    }

    /// The parts whose turns have come so far.
    pub(super) fn ready(&mut self) -> Vec<Part> {
        self.poll(&mut Context::from_waker(Waker::noop()));
        std::mem::take(&mut self.ready)
    }

    fn poll(&mut self, context: &mut Context<'_>) {
        for (mut part, mut queued) in std::mem::take(&mut self.queued) {
            match queued.as_mut().poll(context) {
                Poll::Ready(turn) => {
                    part.turn = Some(turn);
                    self.ready.push(part);
                }
                Poll::Pending => self.queued.push((part, queued)),
            }
        }
    }

    /// Leaves the queues.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = Part> + '_ {
        let queued = self.queued.drain(..).map(|(part, _)| part);
        queued.chain(self.ready.drain(..))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::store::api::fixture::key;
    use crate::store::work::Work;

    #[tokio::test]
    async fn batches_have_their_turns_in_the_order_in_which_they_came() {
        let turns = Turns::default();
        let batch = || turns.queue(vec![Part::new(key("a"), vec![0], Work::nothing())]);
        let [mut first, mut second] = [batch(), batch()];
        let early = timeout(Duration::ZERO, second.next()).await;
        assert!(early.is_err());
        drop(first.next().await);
        assert_eq!(second.next().await.len(), 1);
    }
}
