//! The queues of this process: for each name the tasks that wait for it, first come first served.
//!
//! At most one task at a time is at the *head* of a queue: it asks the store, or its lease holds the
//! lock. A [`Head`] is that right. Whoever drops it passes it on to the next in queue, so no way out
//! of a function, no cancelled future and no panic can forget those who wait. A queue exists exactly
//! as long as its head does.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::sync::{Mutex, MutexGuard, lock, may_switch};

/// What queues are made of.
pub(crate) trait QueueKind: Sized {
    /// What a queue is for.
    type Key: Clone + Eq + Hash;
    /// What is known of a task that waits.
    type Info;
    /// What the head is busy with.
    type HeadState: Clone;
    /// What a task gets when its turn comes: the head, in one form or another.
    type Turn: From<Head<Self>>;
}

/// All queues.
pub(crate) struct LocalQueues<L: QueueKind>(Arc<Mutex<Table<L>>>);

struct Table<L: QueueKind> {
    queues: HashMap<L::Key, Queue<L>>,
    tickets: u64,
}

struct Queue<L: QueueKind> {
    busy: Option<L::HeadState>,
    #[expect(
        clippy::box_collection,
        reason = "nobody waits in most queues, of maybe a million"
    )]
    waiting: Option<Box<BTreeMap<u64, Waiter<L>>>>,
}

/// The place at the head of a queue.
pub(crate) struct Head<L: QueueKind> {
    queues: LocalQueues<L>,
    /// `None` once it was passed on.
    key: Option<L::Key>,
}

/// A place further back. Whoever drops it leaves the queue.
pub(crate) struct QueuedTask<L: QueueKind> {
    queues: LocalQueues<L>,
    key: L::Key,
    ticket: u64,
    turn: Option<oneshot::Receiver<L::Turn>>,
}

/// A task that was taken out of its queue to get its turn.
pub(crate) struct Waiter<L: QueueKind> {
    pub(crate) about: L::Info,
    turn: oneshot::Sender<L::Turn>,
}

/// Where a task stands that came to a queue.
pub(crate) enum Entry<L: QueueKind> {
    Head(Head<L>),
    QueuedTask(QueuedTask<L>),
}

impl<L: QueueKind> LocalQueues<L> {
    /// Goes to the head if nobody is there, else to the end.
    pub(crate) fn enter(&self, key: &L::Key, about: L::Info) -> Entry<L> {
        let mut table = self.table();
        let ticket = table.tickets;
        let Some(queue) = table.queues.get_mut(key) else {
            return Entry::Head(self.open(table, key));
        };
        let (turn, receiver) = oneshot::channel();
        let waiting = queue.waiting.get_or_insert_default();
        waiting.insert(ticket, Waiter { about, turn });
        table.tickets += 1;
        Entry::QueuedTask(QueuedTask {
            queues: self.clone(),
            key: key.clone(),
            ticket,
            turn: Some(receiver),
        })
    }

    /// Goes to the head if nobody is there.
    pub(crate) fn enter_front(&self, key: &L::Key) -> Option<Head<L>> {
        let table = self.table();
        (!table.queues.contains_key(key)).then(|| self.open(table, key))
    }

    /// Whether anybody is at the head of a queue.
    pub(crate) fn is_open(&self, key: &L::Key) -> bool {
        self.table().queues.contains_key(key)
    }

    /// What the head of a queue is busy with, if somebody is there and has said so.
    pub(crate) fn busy(&self, key: &L::Key) -> Option<L::HeadState> {
        self.table().queues.get(key)?.busy.clone()
    }

    /// What the heads of those names are busy with that are asked for.
    pub(crate) fn all_busy(&self, asked_for: impl Fn(&L::Key) -> bool) -> Vec<L::HeadState> {
        let table = self.table();
        let queues = table.queues.iter().filter(|(key, _)| asked_for(key));
        queues.filter_map(|(_, queue)| queue.busy.clone()).collect()
    }

    /// Ends all waiting: those who wait get no turn, and leave.
    pub(crate) fn close(&self) {
        let left: Vec<_> = {
            let mut table = self.table();
            let queues = table.queues.values_mut();
            queues.map(|queue| queue.waiting.take()).collect()
        };
        drop(left);
    }

    fn open(&self, mut table: MutexGuard<'_, Table<L>>, key: &L::Key) -> Head<L> {
        let queue = Queue {
            busy: None,
            waiting: None,
        };
        table.queues.insert(key.clone(), queue);
        Head {
            queues: self.clone(),
            key: Some(key.clone()),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table<L>> {
        lock(&self.0)
    }
}

impl<L: QueueKind> Queue<L> {
    fn is_awaited(&self) -> bool {
        let waiting = self.waiting.as_ref();
        waiting.is_some_and(|waiting| !waiting.is_empty())
    }
}

impl<L: QueueKind> Head<L> {
    /// Says what it is busy with, and learns whether anybody waits behind it.
    pub(crate) fn set_busy(&self, busy: L::HeadState) -> bool {
        let mut table = self.queues.table();
        let Some(queue) = self.key.as_ref().and_then(|key| table.queues.get_mut(key)) else {
            return false;
        };
        queue.busy = Some(busy);
        queue.is_awaited()
    }

    /// Takes the next task out of the queue, if there is one and it suits.
    pub(crate) fn next_if(&self, suits: impl FnOnce(&L::Info) -> bool) -> Option<Waiter<L>> {
        let mut table = self.queues.table();
        let queue = table.queues.get_mut(self.key.as_ref()?)?;
        let first = queue.waiting.as_mut()?.first_entry()?;
        suits(&first.get().about).then(|| first.remove())
    }

    /// Takes the next task out of the queue. `busy` is told whether still others wait, and says what the
    /// head is busy with from then on; if nothing, what it was last stands. `None`: nobody waits, and
    /// the queue is closed.
    pub(crate) fn next(
        mut self,
        busy: impl FnOnce(&L::Info, bool) -> Option<L::HeadState>,
    ) -> Option<(Self, Waiter<L>)> {
        let key = self.key.take()?;
        let next = {
            let mut table = self.queues.table();
            let queue = table.queues.get_mut(&key)?;
            let first = queue
                .waiting
                .as_mut()
                .and_then(|waiting| waiting.pop_first());
            let Some((_, next)) = first else {
                table.queues.remove(&key);
                return None;
            };
            if let Some(busy) = busy(&next.about, queue.is_awaited()) {
                queue.busy = Some(busy);
            }
            next
        };
        self.key = Some(key);
        Some((self, next))
    }
}

impl<L: QueueKind> Drop for Head<L> {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else {
            return;
        };
        let head = Self {
            queues: self.queues.clone(),
            key: Some(key),
        };
        if let Some((head, next)) = head.next(|_, _| None) {
            // One that has left in this moment drops it again, and so it goes on to the next.
            drop(next.give(head.into()));
        }
    }
}

impl<L: QueueKind> Waiter<L> {
    /// Gives the task its turn. It comes back if the task has left.
    pub(crate) fn give(self, turn: L::Turn) -> Result<(), L::Turn> {
        may_switch();
        self.turn.send(turn)
    }
}

impl<L: QueueKind> QueuedTask<L> {
    /// Waits for the turn. `None` only after a turn was had, or when all waiting is ended.
    pub(crate) async fn turn(&mut self) -> Option<L::Turn> {
        let turn = self.turn.as_mut()?.await;
        self.turn = None;
        turn.ok()
    }
}

impl<L: QueueKind> Drop for QueuedTask<L> {
    fn drop(&mut self) {
        if self.turn.is_some() {
            let mut table = self.queues.table();
            let queue = table.queues.get_mut(&self.key);
            let left = queue.and_then(|queue| queue.waiting.as_mut()?.remove(&self.ticket));
            drop((table, left));
            // If it was not there any more, its turn is dropped with the receiver and passed on.
        }
    }
}

impl<L: QueueKind> Clone for LocalQueues<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L: QueueKind> Default for LocalQueues<L> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Table {
            queues: HashMap::new(),
            tickets: 0,
        })))
    }
}

impl<L: QueueKind> fmt::Debug for LocalQueues<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = self.table().queues.len();
        f.debug_struct("LocalQueues")
            .field("queues", &queues)
            .finish()
    }
}

impl<L: QueueKind> fmt::Debug for Head<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Head").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "__shuttle"))]
mod model;
