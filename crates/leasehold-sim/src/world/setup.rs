//! What a world is like: how many clients, which faults, and which rule is broken, if any.

/// A world to run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many clients compete for the name.
    pub clients: usize,
    /// How many events happen before the faults stop.
    pub events: usize,
    /// By how many millionths a client's clock may be slower or faster than the store's.
    pub drift_ppm: (i64, i64),
    /// Which leases the clients ask for.
    pub leases: Leases,
    /// The rule that is broken, to show that a judge sees it.
    pub broken: Option<Broken>,
}

/// Which leases the clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leases {
    /// Renewed and fixed ones, entered again now and then.
    Mixed,
    /// Fixed ones only: no margin protects them but the drift allowance.
    Fixed,
}

/// A rule that clients, or the store, may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The deadline counts from the arrival of the answer, not from the sending of the request.
    DeadlineFromReply,
    /// One lease id serves all acquisitions of a client.
    ReusedLeaseId,
    /// A renewal that is confirmed after the loss makes the lease good again.
    RevivedLease,
    /// The lease is believed until somebody says otherwise.
    NoDeadline,
}

impl Default for Setup {
    /// Clocks as far apart as the allowance lets them, and nothing broken.
    ///
    /// `drift(ttl)` is a hundredth of the ttl. A client's clock that shows 0.99 s in a second of
    /// the store is the slowest that this covers; a fast one is always safe.
    fn default() -> Self {
        Self {
            clients: 3,
            events: 500,
            drift_ppm: (-10_000, 10_000),
            leases: Leases::Mixed,
            broken: None,
        }
    }
}
