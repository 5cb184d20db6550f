//! A state: the lock, its queue and the clients.

/// How many clients there are at most.
pub(super) const CLIENTS: usize = 3;

/// A lock, and the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) hold: Hold,
    /// The ticks until the lease or the minimum hold in the record ends.
    pub(super) remaining: u8,
    /// The clients in the queue, from 1, the head first. 0: none.
    queue: [u8; CLIENTS],
    /// How often an operator will revoke the lease.
    pub(super) revocations: u8,
    /// For how many ticks the lock must stay taken: to the end of the minimum hold, counted from the grant.
    pub(super) reserved: u8,
    /// For how many ticks it may stay taken: the rest with which it was released.
    pub(super) limit: u8,
    /// Whether a release has ended the lease of another client.
    pub(super) foreign: bool,
    pub(super) clients: [Client; CLIENTS],
}

/// What holds the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Hold {
    #[default]
    None,
    /// The lease of a client.
    Lease(usize),
    /// The minimum hold of a client, whose lease has ended.
    Min(usize),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// The ticks since it sent its request or, after its grant, since it received that.
    pub(super) age: u8,
    /// The ticks until its deadline.
    pub(super) remaining: u8,
    /// By how many ticks its clock has gained on that of the store.
    pub(super) gained: u8,
    /// The ticks of the store since its grant.
    pub(super) since: u8,
    /// Whether a renewal and an enter may be processed late.
    pub(super) requests: bool,
    /// The releases that may be processed, one bit for each rest of a minimum hold.
    pub(super) releases: u16,
    /// Whether its lease was released or revoked.
    pub(super) ended: bool,
    /// Whether it has relied on the lock.
    pub(super) won: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// It was refused, and repeats its request.
    Waiting,
    /// The store has granted its request.
    Granted,
    /// It relies on the lock.
    Holding,
    /// It has sent a release, and may repeat it.
    Releasing,
    /// Its lease is lost, and may still hold the lock in the store.
    Lost,
    /// The same, and it has sent a release.
    CutOff,
    /// It no longer sends anything.
    Over,
}

impl State {
    pub(super) fn new(revocations: u8) -> Self {
        Self {
            revocations,
            ..Self::default()
        }
    }

    /// The clients in the queue, the head first.
    pub(super) fn waiters(&self) -> impl Iterator<Item = usize> {
        let numbers = self.queue.into_iter();
        numbers.filter_map(|number| usize::from(number).checked_sub(1))
    }

    /// These clients are in the queue, the head first.
    pub(super) fn wait(&mut self, waiters: impl Iterator<Item = usize>) {
        self.queue = [0; CLIENTS];
        for (place, at) in self.queue.iter_mut().zip(waiters) {
            *place = at as u8 + 1;
        }
    }

    /// Removes what no step and no property can still use.
    pub(super) fn reduce(&mut self) {
        for (at, client) in self.clients.iter_mut().enumerate() {
            // No step of a client depends on its clock then.
            let timed = [
                Phase::Granted,
                Phase::Holding,
                Phase::Releasing,
                Phase::Lost,
            ];
            if !timed.contains(&client.phase) {
                (client.age, client.remaining, client.gained) = (0, 0, 0);
            }
            if self.hold != Hold::Lease(at) {
                client.since = 0;
                // Other leases are not changed by them.
                client.requests &= self.hold == Hold::Min(at);
            }
        }
        if !matches!(self.hold, Hold::Min(_)) {
            self.limit = 0;
        }
    }

    /// The clients in their order, since their names make no difference.
    pub(super) fn sorted(&self, clients: usize) -> Self {
        let mut order: [usize; CLIENTS] = std::array::from_fn(|at| at);
        order[..clients].sort_by_key(|at| {
            let place = self.waiters().position(|waiter| waiter == *at);
            let holds = [Hold::Lease(*at), Hold::Min(*at)].map(|hold| self.hold == hold);
            (self.clients[*at], place, holds)
        });
        let moved = |at| order.iter().position(|from| *from == at).unwrap_or(at);
        let mut sorted = *self;
        sorted.clients = order.map(|at| self.clients[at]);
        sorted.hold = match self.hold {
            Hold::None => Hold::None,
            Hold::Lease(at) => Hold::Lease(moved(at)),
            Hold::Min(at) => Hold::Min(moved(at)),
        };
        sorted.wait(self.waiters().map(moved));
        sorted
    }
}

impl Client {
    /// Its lease was revoked. It is notified, unless it does not know of the grant.
    pub(super) fn revoke(&mut self) {
        if self.phase != Phase::Waiting {
            self.phase = Phase::Over;
            self.ended = true;
        }
    }
}
