//! The queues of this process: for each name the tasks that wait for it, first come first served.
//!
//! At most one task at a time is at the *head* of a queue: it sends requests to the store, or its lease holds
//! the lock. A [`Head`] is that right. A head that is dropped passes on to the next task, so no way out of a
//! function, no cancelled future and no panic can forget the waiting tasks. A queue exists exactly as long
//! as its head.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::primitives::{Mutex, MutexGuard, lock, may_switch};

/// The types of a kind of queues.
pub(crate) trait QueueKind: Sized {
    /// The key of a queue.
    type Key: Clone + Eq + Hash;
    /// The properties of a waiting task.
    type Info;
    /// The state of the head.
    type HeadState: Clone;
    /// What a task gets when its turn comes: the head, in one form or another.
    type Turn: From<Head<Self>>;
}

/// The queues of a process, by key.
pub(crate) struct LocalQueues<L: QueueKind>(Arc<Mutex<Table<L>>>);

struct Table<L: QueueKind> {
    queues: HashMap<L::Key, Queue<L>>,
    tickets: u64,
}

struct Queue<L: QueueKind> {
    head: Option<L::HeadState>,
    #[expect(
        clippy::box_collection,
        reason = "most queues, of which there may be a million, are empty"
    )]
    waiting: Option<Box<BTreeMap<u64, Waiter<L>>>>,
}

/// The right to be at the head of a queue.
pub(crate) struct Head<L: QueueKind> {
    queues: Arc<Mutex<Table<L>>>,
    /// `None` once it was passed on.
    key: Option<L::Key>,
}

/// A task that waits in a queue. Dropped, it leaves the queue.
pub(crate) struct QueuedTask<L: QueueKind> {
    queues: Arc<Mutex<Table<L>>>,
    key: L::Key,
    pub(in super::super) ticket: u64,
    turn: Option<oneshot::Receiver<L::Turn>>,
}

/// A task that was taken out of its queue to get its turn.
pub(crate) struct Waiter<L: QueueKind> {
    pub(crate) info: L::Info,
    turn: oneshot::Sender<L::Turn>,
}

/// The position of a task that entered a queue.
pub(crate) enum Entry<L: QueueKind> {
    Head(Head<L>),
    QueuedTask(QueuedTask<L>),
}

impl<L: QueueKind> LocalQueues<L> {
    /// Joins a queue: at its head if it is empty, else at its end.
    pub(crate) fn enter(&self, key: &L::Key, info: L::Info) -> Entry<L> {
        let mut table = self.table();
        let Table { queues, tickets } = &mut *table;
        let Some(queue) = queues.get_mut(key) else {
            return Entry::Head(self.open(queues, key));
        };
        let ticket = *tickets;
        *tickets += 1;
        let (turn, receiver) = oneshot::channel();
        let waiting = queue.waiting.get_or_insert_default();
        waiting.insert(ticket, Waiter { info, turn });
        Entry::QueuedTask(QueuedTask {
            queues: Arc::clone(&self.0),
            key: key.clone(),
            ticket,
            turn: Some(receiver),
        })
    }

    /// Joins a queue at its head if it is empty.
    pub(crate) fn enter_if_empty(&self, key: &L::Key) -> Option<Head<L>> {
        let mut table = self.table();
        let queues = &mut table.queues;
        (!queues.contains_key(key)).then(|| self.open(queues, key))
    }

    /// Whether there is a queue, and so a task at its head.
    pub(crate) fn is_open(&self, key: &L::Key) -> bool {
        self.table().queues.contains_key(key)
    }

    /// Whether tasks wait in a queue.
    pub(crate) fn is_followed(&self, key: &L::Key) -> bool {
        let table = self.table();
        table.queues.get(key).is_some_and(Queue::is_followed)
    }

    /// The state of the head of a queue, if there is one and it has set its state.
    pub(crate) fn head_state(&self, key: &L::Key) -> Option<L::HeadState> {
        self.table().queues.get(key)?.head.clone()
    }

    /// The states of the heads of all queues that `concerns` selects.
    pub(crate) fn head_states(&self, concerns: impl Fn(&L::Key) -> bool) -> Vec<L::HeadState> {
        let table = self.table();
        let queues = table.queues.iter().filter(|(key, _)| concerns(key));
        queues.filter_map(|(_, queue)| queue.head.clone()).collect()
    }

    /// The keys of all queues, with the states of their heads.
    pub(crate) fn all_heads(&self) -> Vec<(L::Key, L::HeadState)> {
        let table = self.table();
        let heads = table.queues.iter();
        let heads = heads.filter_map(|(key, queue)| Some((key.clone(), queue.head.clone()?)));
        heads.collect()
    }

    /// Takes the waiting tasks that suit out of a queue, in their order.
    pub(crate) fn remove_if(
        &self,
        key: &L::Key,
        suits: impl Fn(&L::Info) -> bool,
    ) -> Vec<Waiter<L>> {
        let mut table = self.table();
        let queue = table.queues.get_mut(key);
        let Some(waiting) = queue.and_then(|queue| queue.waiting.as_mut()) else {
            return Vec::new();
        };
        let suiting = waiting.iter().filter(|(_, waiter)| suits(&waiter.info));
        let tickets: Vec<u64> = suiting.map(|(ticket, _)| *ticket).collect();
        let removed = tickets.iter().filter_map(|ticket| waiting.remove(ticket));
        removed.collect()
    }

    /// Ends all waiting: the tasks in the queues get no turn, and leave.
    pub(crate) fn close(&self) {
        let waiting: Vec<_> = {
            let mut table = self.table();
            let queues = table.queues.values_mut();
            queues.map(|queue| queue.waiting.take()).collect()
        };
        drop(waiting);
    }

    /// How many queues there are.
    pub(crate) fn count(&self) -> usize {
        self.table().queues.len()
    }

    fn open(&self, queues: &mut HashMap<L::Key, Queue<L>>, key: &L::Key) -> Head<L> {
        let queue = Queue {
            head: None,
            waiting: None,
        };
        queues.insert(key.clone(), queue);
        Head {
            queues: Arc::clone(&self.0),
            key: Some(key.clone()),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table<L>> {
        lock(&self.0)
    }
}

impl<L: QueueKind> Queue<L> {
    fn is_followed(&self) -> bool {
        let waiting = self.waiting.as_ref();
        waiting.is_some_and(|waiting| !waiting.is_empty())
    }
}

impl<L: QueueKind> Head<L> {
    /// Sets its state, and returns the one before.
    pub(crate) fn set_state(&self, state: L::HeadState) -> Option<L::HeadState> {
        let mut table = lock(&self.queues);
        let queue = table.queues.get_mut(self.key.as_ref()?)?;
        queue.head.replace(state)
    }

    /// Whether tasks wait behind it.
    pub(crate) fn is_followed(&self) -> bool {
        let table = lock(&self.queues);
        let queue = self.key.as_ref().and_then(|key| table.queues.get(key));
        queue.is_some_and(Queue::is_followed)
    }

    /// The ticket of the first task that waits behind it.
    pub(crate) fn first_ticket(&self) -> Option<u64> {
        let table = lock(&self.queues);
        let waiting = table.queues.get(self.key.as_ref()?)?.waiting.as_ref()?;
        waiting.first_key_value().map(|(ticket, _)| *ticket)
    }

    /// Takes the next task out of the queue, if there is one and it suits.
    pub(crate) fn next_if(&self, suits: impl FnOnce(&L::Info) -> bool) -> Option<Waiter<L>> {
        let mut table = lock(&self.queues);
        let queue = table.queues.get_mut(self.key.as_ref()?)?;
        let first = queue.waiting.as_mut()?.first_entry()?;
        suits(&first.get().info).then(|| first.remove())
    }

    /// Takes the next task out of the queue. Returns `None` if no task waits: the queue is then removed.
    pub(crate) fn next(mut self) -> Option<(Self, Waiter<L>)> {
        let key = self.key.take()?;
        let next = {
            let mut table = lock(&self.queues);
            let waiting = table.queues.get_mut(&key)?.waiting.as_mut();
            let Some((_, next)) = waiting.and_then(|waiting| waiting.pop_first()) else {
                table.queues.remove(&key);
                return None;
            };
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
            queues: Arc::clone(&self.queues),
            key: Some(key),
        };
        if let Some((head, next)) = head.next() {
            // A task that was cancelled meanwhile drops the turn again, which passes it on to the next.
            drop(next.wake(head.into()));
        }
    }
}

impl<L: QueueKind> Waiter<L> {
    /// Wakes the task with its turn. Returns the turn if the task was cancelled.
    pub(crate) fn wake(self, turn: L::Turn) -> Result<(), L::Turn> {
        may_switch();
        self.turn.send(turn)
    }
}

impl<L: QueueKind> QueuedTask<L> {
    /// Waits for the turn. `None` only after that, or when all waiting is ended.
    pub(crate) async fn wait(&mut self) -> Option<L::Turn> {
        let turn = self.turn.as_mut()?.await;
        self.turn = None;
        turn.ok()
    }
}

impl<L: QueueKind> Drop for QueuedTask<L> {
    fn drop(&mut self) {
        if self.turn.is_some() {
            let mut table = lock(&self.queues);
            let queue = table.queues.get_mut(&self.key);
            let waiter = queue.and_then(|queue| queue.waiting.as_mut()?.remove(&self.ticket));
            drop((table, waiter));
            // If it was no longer there, its turn is dropped with the receiver, and passes on.
        }
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
