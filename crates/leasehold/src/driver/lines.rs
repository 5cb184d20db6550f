//! The lines of this process: for each name the tasks that wait for it, first come first served.
//!
//! At most one task at a time is at the *front* of a line: it asks the store, or its lease holds the
//! lock. A [`Front`] is that right. Whoever drops it passes it on to the next in line, so no way out
//! of a function, no cancelled future and no panic can forget those who wait. A line exists exactly
//! as long as its front does.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::primitives::{Mutex, MutexGuard, lock, may_switch};

/// What lines are made of.
pub(crate) trait Kind: Sized {
    /// What a line is for.
    type Key: Clone + Eq + Hash;
    /// What is known of a task that waits.
    type About;
    /// What the front is busy with.
    type Busy: Clone;
    /// What a task gets when its turn comes: the front, in one form or another.
    type Turn: From<Front<Self>>;
}

/// All lines.
pub(crate) struct Lines<L: Kind>(Arc<Mutex<Table<L>>>);

struct Table<L: Kind> {
    lines: HashMap<L::Key, Line<L>>,
    tickets: u64,
}

struct Line<L: Kind> {
    busy: Option<L::Busy>,
    #[expect(
        clippy::box_collection,
        reason = "nobody waits in most lines, of maybe a million"
    )]
    waiting: Option<Box<BTreeMap<u64, Next<L>>>>,
}

/// The place at the front of a line.
pub(crate) struct Front<L: Kind> {
    lines: Lines<L>,
    /// `None` once it was passed on.
    key: Option<L::Key>,
}

/// A place further back. Whoever drops it leaves the line.
pub(crate) struct Waiting<L: Kind> {
    lines: Lines<L>,
    key: L::Key,
    ticket: u64,
    turn: Option<oneshot::Receiver<L::Turn>>,
}

/// A task that was taken out of its line to get its turn.
pub(crate) struct Next<L: Kind> {
    pub(crate) about: L::About,
    turn: oneshot::Sender<L::Turn>,
}

/// Where a task stands that came to a line.
pub(crate) enum Entered<L: Kind> {
    Front(Front<L>),
    Waiting(Waiting<L>),
}

impl<L: Kind> Lines<L> {
    /// Goes to the front if nobody is there, else to the end.
    pub(crate) fn enter(&self, key: &L::Key, about: L::About) -> Entered<L> {
        let mut table = self.table();
        let ticket = table.tickets;
        let Some(line) = table.lines.get_mut(key) else {
            return Entered::Front(self.open(table, key));
        };
        let (turn, receiver) = oneshot::channel();
        let waiting = line.waiting.get_or_insert_default();
        waiting.insert(ticket, Next { about, turn });
        table.tickets += 1;
        Entered::Waiting(Waiting {
            lines: self.clone(),
            key: key.clone(),
            ticket,
            turn: Some(receiver),
        })
    }

    /// Goes to the front if nobody is there.
    pub(crate) fn enter_front(&self, key: &L::Key) -> Option<Front<L>> {
        let table = self.table();
        (!table.lines.contains_key(key)).then(|| self.open(table, key))
    }

    /// Whether anybody is at the front of a line.
    pub(crate) fn is_open(&self, key: &L::Key) -> bool {
        self.table().lines.contains_key(key)
    }

    /// What the front of a line is busy with, if somebody is there and has said so.
    pub(crate) fn busy(&self, key: &L::Key) -> Option<L::Busy> {
        self.table().lines.get(key)?.busy.clone()
    }

    /// What the fronts of those names are busy with that are asked for.
    pub(crate) fn all_busy(&self, asked_for: impl Fn(&L::Key) -> bool) -> Vec<L::Busy> {
        let table = self.table();
        let lines = table.lines.iter().filter(|(key, _)| asked_for(key));
        lines.filter_map(|(_, line)| line.busy.clone()).collect()
    }

    /// Ends all waiting: those who wait get no turn, and leave.
    pub(crate) fn close(&self) {
        let left: Vec<_> = {
            let mut table = self.table();
            let lines = table.lines.values_mut();
            lines.map(|line| line.waiting.take()).collect()
        };
        drop(left);
    }

    fn open(&self, mut table: MutexGuard<'_, Table<L>>, key: &L::Key) -> Front<L> {
        let line = Line {
            busy: None,
            waiting: None,
        };
        table.lines.insert(key.clone(), line);
        Front {
            lines: self.clone(),
            key: Some(key.clone()),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table<L>> {
        lock(&self.0)
    }
}

impl<L: Kind> Line<L> {
    fn is_awaited(&self) -> bool {
        let waiting = self.waiting.as_ref();
        waiting.is_some_and(|waiting| !waiting.is_empty())
    }
}

impl<L: Kind> Front<L> {
    /// Says what it is busy with, and learns whether anybody waits behind it.
    pub(crate) fn set_busy(&self, busy: L::Busy) -> bool {
        let mut table = self.lines.table();
        let Some(line) = self.key.as_ref().and_then(|key| table.lines.get_mut(key)) else {
            return false;
        };
        line.busy = Some(busy);
        line.is_awaited()
    }

    /// Takes the next task out of the line, if there is one and it suits.
    pub(crate) fn next_if(&self, suits: impl FnOnce(&L::About) -> bool) -> Option<Next<L>> {
        let mut table = self.lines.table();
        let line = table.lines.get_mut(self.key.as_ref()?)?;
        let first = line.waiting.as_mut()?.first_entry()?;
        suits(&first.get().about).then(|| first.remove())
    }

    /// Takes the next task out of the line. `busy` is told whether still others wait, and says what the
    /// front is busy with from then on; if nothing, what it was last stands. `None`: nobody waits, and
    /// the line is closed.
    pub(crate) fn next(
        mut self,
        busy: impl FnOnce(&L::About, bool) -> Option<L::Busy>,
    ) -> Option<(Self, Next<L>)> {
        let key = self.key.take()?;
        let next = {
            let mut table = self.lines.table();
            let line = table.lines.get_mut(&key)?;
            let first = line
                .waiting
                .as_mut()
                .and_then(|waiting| waiting.pop_first());
            let Some((_, next)) = first else {
                table.lines.remove(&key);
                return None;
            };
            if let Some(busy) = busy(&next.about, line.is_awaited()) {
                line.busy = Some(busy);
            }
            next
        };
        self.key = Some(key);
        Some((self, next))
    }
}

impl<L: Kind> Drop for Front<L> {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else {
            return;
        };
        let front = Self {
            lines: self.lines.clone(),
            key: Some(key),
        };
        if let Some((front, next)) = front.next(|_, _| None) {
            // One that has left in this moment drops it again, and so it goes on to the next.
            drop(next.give(front.into()));
        }
    }
}

impl<L: Kind> Next<L> {
    /// Gives the task its turn. It comes back if the task has left.
    pub(crate) fn give(self, turn: L::Turn) -> Result<(), L::Turn> {
        may_switch();
        self.turn.send(turn)
    }
}

impl<L: Kind> Waiting<L> {
    /// Waits for the turn. `None` only after a turn was had, or when all waiting is ended.
    pub(crate) async fn turn(&mut self) -> Option<L::Turn> {
        let turn = self.turn.as_mut()?.await;
        self.turn = None;
        turn.ok()
    }
}

impl<L: Kind> Drop for Waiting<L> {
    fn drop(&mut self) {
        if self.turn.is_some() {
            let mut table = self.lines.table();
            let line = table.lines.get_mut(&self.key);
            let left = line.and_then(|line| line.waiting.as_mut()?.remove(&self.ticket));
            drop((table, left));
            // If it was not there any more, its turn is dropped with the receiver and passed on.
        }
    }
}

impl<L: Kind> Clone for Lines<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L: Kind> Default for Lines<L> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Table {
            lines: HashMap::new(),
            tickets: 0,
        })))
    }
}

impl<L: Kind> fmt::Debug for Lines<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.table().lines.len();
        f.debug_struct("Lines").field("lines", &lines).finish()
    }
}

impl<L: Kind> fmt::Debug for Front<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "__shuttle"))]
mod model;
