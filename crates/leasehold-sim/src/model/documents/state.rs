//! A state: the document, what the clients know of it, and their writes.

/// How many clients there are, each with one acquisition. The last one has died as a holder, or does nothing.
pub(super) const CLIENTS: usize = 3;

/// How many of them live.
pub(super) const LIVING: usize = CLIENTS - 1;

/// How many ticks before the document the times of old writes differ.
pub(super) const OLDEST: i8 = 4;

/// The clients in the other order.
const SWAPPED: [usize; CLIENTS] = [1, 0, 2];

/// A document, and its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct State {
    pub(super) document: Document,
    /// Whether it does not exist.
    pub(super) absent: bool,
    /// How often it was written since it did not exist, as far as versions repeat.
    pub(super) version: u8,
    /// The ticks since the run that wrote it.
    pub(super) age: u8,
    /// The largest token of a grant, in microseconds after the time of the document.
    pub(super) highest: i32,
    /// Whether the token of a grant was not larger than all before.
    pub(super) reordered: bool,
    pub(super) gained: u8,
    pub(super) removals: u8,
    pub(super) clients: [Client; CLIENTS],
}

/// A document. Its times count from its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Document {
    /// The lease that holds the lock, from 1. 0: none.
    pub(super) hold: u8,
    /// The ticks until that ends.
    pub(super) remaining: u8,
    /// The leases in the queue, from 1, the head first. 0: none.
    pub(super) queue: [u8; CLIENTS],
    /// The last token, in microseconds.
    pub(super) counter: i32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// The number of its lease.
    pub(super) number: u8,
    /// The ticks since it received this version of the document. `None`: it has not.
    pub(super) seen: Option<u8>,
    /// The ticks until the lease of the holder ends, by the versions that it has received. `None`: it has received none since
    /// the last stamp.
    pub(super) left: Option<u8>,
    /// Its write whose reply it waits for.
    pub(super) request: Option<Write>,
    /// A write whose reply it does not wait for.
    pub(super) late: Option<Write>,
    /// The ticks since its grant, of which a notice is under way.
    pub(super) notice: Option<u8>,
    /// Whether the time of its place in the queue is wrong, so that it counts from the arrival of the notice.
    pub(super) misdated: bool,
    /// For how many ticks it relies on the lock.
    pub(super) remaining: u8,
    /// Whether it has relied on the lock.
    pub(super) won: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Phase {
    #[default]
    Idle,
    Waiting,
    Holding,
    Releasing,
    Over,
}

/// The write of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Write {
    pub(super) document: Document,
    /// The ticks from the time of the document that is there to the time of this one.
    pub(super) shift: i8,
    /// The version that is replaced.
    pub(super) version: u8,
    /// The ticks since the run.
    pub(super) age: u8,
    pub(super) reply: Reply,
    /// Whether the run has granted the lock.
    pub(super) granted: bool,
    /// Whether the client of the holder counts from this write.
    pub(super) stamped: bool,
    /// Whether the wall clock has moved the time on.
    pub(super) jumped: bool,
    /// Whether it is applied. The reply is under way.
    pub(super) applied: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Reply {
    /// The lease holds the lock.
    Held,
    /// It waits in the queue.
    Queued,
    #[default]
    Refused,
    /// It neither holds nor waits.
    Ended,
}

impl State {
    /// The lease of a client, as documents have it.
    pub(super) fn lease(&self, at: usize) -> u8 {
        at as u8 + CLIENTS as u8 * self.clients[at].number + 1
    }

    /// The same state with the clients in the other order.
    pub(super) fn swapped(&self) -> Self {
        let moved = |lease: u8| match lease.checked_sub(1).map(usize::from) {
            None => 0,
            Some(index) => (index - index % CLIENTS + SWAPPED[index % CLIENTS]) as u8 + 1,
        };
        let document = |it: Document| Document {
            hold: moved(it.hold),
            queue: it.queue.map(moved),
            ..it
        };
        let write = |it: Write| Write {
            document: document(it.document),
            ..it
        };
        Self {
            document: document(self.document),
            clients: SWAPPED.map(|at| Client {
                request: self.clients[at].request.map(write),
                late: self.clients[at].late.map(write),
                ..self.clients[at]
            }),
            ..*self
        }
    }
}

impl Document {
    /// Whether a lease holds the lock so many ticks later, and whether clients wait.
    pub(super) fn is_used(&self, elapsed: u8) -> (bool, bool) {
        let is_held = self.hold != 0 && self.remaining > elapsed;
        (is_held, self.queue[0] != 0)
    }

    /// How many leases hold or wait, but for those of some clients.
    pub(super) fn others(&self, clients: &[usize]) -> usize {
        let leases = self.queue.into_iter().chain([self.hold]);
        let indexes = leases.filter_map(|lease| usize::from(lease).checked_sub(1));
        let others = indexes.filter(|index| !clients.contains(&(index % CLIENTS)));
        others.count()
    }
}
