//! The local queues under a model checker.
//!
//! Tasks join a queue, wait, leave at any moment, get their turn, hand it on without giving up the head, or give
//! it up. In every order one task at a time is at the head, a task that stays gets its turn in the order of
//! arrival, and there is no queue at the end. A lost turn would leave a task waiting for ever, which the checker
//! reports as a deadlock.

use std::pin::pin;
use std::sync::Arc;

use shuttle::future::{block_on, spawn, yield_now};
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex as ModelMutex;
use tokio::sync::oneshot;

use super::super::local_queue::{Entry, Head, LocalQueues, QueueKind};
use super::{ended, poll_times};

const RUNS: usize = 8_000;
const TASKS: usize = 4;
const KEYS: u8 = 2;

/// A part of the protocol that is left out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mutation {
    None,
    /// The queue is forgotten when a turn is returned, because its task has left.
    ForgetsReturned,
    /// The head is forgotten instead of passed on.
    ForgetsHead,
}

struct Toy;

impl QueueKind for Toy {
    type Key = u8;
    type Info = ();
    type HeadState = ();
    type Turn = Turn;
}

enum Turn {
    Head(Head<Toy>),
    /// The head stays with another task until this is dropped, as with a lease and its holds.
    Handed(oneshot::Sender<()>),
}

impl From<Head<Toy>> for Turn {
    fn from(head: Head<Toy>) -> Self {
        Self::Head(head)
    }
}

/// The queues, and what the checks need.
struct World {
    queues: LocalQueues<Toy>,
    mutation: Mutation,
    inside: ModelMutex<[u8; KEYS as usize]>,
    served: ModelMutex<[Option<u64>; KEYS as usize]>,
}

impl World {
    async fn inside(&self, key: u8) {
        let index = usize::from(key);
        {
            let mut inside = self.inside.lock().unwrap();
            inside[index] += 1;
            assert_eq!(inside[index], 1, "two at the head");
        }
        yield_now().await;
        self.inside.lock().unwrap()[index] -= 1;
    }

    fn in_order(&self, key: u8, ticket: u64) {
        let mut served = self.served.lock().unwrap();
        let last = &mut served[usize::from(key)];
        assert!(last.is_none_or(|last| last < ticket), "out of order");
        *last = Some(ticket);
    }

    /// One task: joins, perhaps leaves early, does its work, and passes its turn on.
    async fn visit(self: Arc<Self>, key: u8) {
        let turn = match self.queues.enter(&key, ()) {
            Entry::Head(head) => Turn::Head(head),
            Entry::QueuedTask(mut waiting) => {
                let ticket = waiting.ticket;
                let leaves = thread_rng().gen_bool(0.4);
                let turn = {
                    let mut turn = pin!(waiting.wait());
                    if leaves {
                        let polls = thread_rng().gen_range(0..3);
                        poll_times(&mut turn, polls).await.flatten()
                    } else {
                        turn.await
                    }
                };
                let Some(turn) = turn else {
                    assert!(leaves, "no turn for one that stayed");
                    return;
                };
                self.in_order(key, ticket);
                turn
            }
        };
        self.inside(key).await;
        let head = match turn {
            Turn::Head(head) => head,
            Turn::Handed(done) => return drop(done),
        };
        while thread_rng().gen_bool(0.5)
            && let Some(next) = head.next_if(|()| true)
        {
            let (handed, done) = oneshot::channel();
            match next.wake(Turn::Handed(handed)) {
                Ok(()) => drop(done.await),
                Err(_) if self.mutation == Mutation::ForgetsReturned => {
                    return std::mem::forget(head);
                }
                Err(_) => {}
            }
        }
        if self.mutation == Mutation::ForgetsHead {
            std::mem::forget(head);
        }
    }
}

fn run(mutation: Mutation, keys: u8) {
    let world = Arc::new(World {
        queues: LocalQueues::default(),
        mutation,
        inside: ModelMutex::default(),
        served: ModelMutex::default(),
    });
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let key = thread_rng().gen_range(0..keys);
            spawn(Arc::clone(&world).visit(key))
        })
        .collect();
    block_on(ended(tasks));
    for key in 0..keys {
        assert!(!world.queues.is_open(&key), "a queue was left behind");
    }
}

#[test]
fn every_turn_comes_in_order_and_no_queue_stays() {
    shuttle::check_random(|| run(Mutation::None, KEYS), RUNS);
    shuttle::check_pct(|| run(Mutation::None, 1), RUNS, 3);
}

#[test]
#[should_panic]
fn a_returned_turn_that_is_not_passed_on_is_noticed() {
    shuttle::check_random(|| run(Mutation::ForgetsReturned, 1), RUNS);
}

#[test]
#[should_panic]
fn a_head_that_is_forgotten_is_noticed() {
    shuttle::check_random(|| run(Mutation::ForgetsHead, 1), RUNS);
}
