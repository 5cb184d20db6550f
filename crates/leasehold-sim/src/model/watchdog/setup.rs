//! What is explored: how large the world is, what may fail in it, and which rule is broken, if any.

/// A model of the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Which nodes there are.
    pub nodes: Nodes,
    /// How many acquisitions the client's program makes, in all its lives. Up to three.
    pub acquisitions: u8,
    /// How many times the program runs. Up to two.
    pub lives: u8,
    /// What it calls itself and its leases when it runs again.
    pub restart: Restart,
    /// In its first life it has registered a child that may live on without it.
    pub child: bool,
    /// How many ticks of a second a store keeps a lease.
    pub ttl: u8,
    /// How many ticks old its own last renewal is at most when a client says that it is well.
    pub interval: u8,
    /// After how many ticks a lease may not be renewed any more, if ever.
    pub keep: Option<u8>,
    /// How many connections end, for either side first.
    pub ends: u8,
    /// How many nodes may become slow.
    pub slow: u8,
    /// How many times a node ends and begins again, and knows nothing then.
    pub stops: u8,
    /// For how many deeds a node does not wait until they are answered.
    pub late: u8,
    /// How many deeds of a node that is in time may fail all the same.
    pub slack: u8,
    /// How many words may be on their way on one connection.
    pub words: usize,
    /// A client may give up a lease without having released it, as it does not reach the store. It has
    /// leases of other locks, and so something to say.
    pub gives_up: bool,
    /// The rules.
    pub rules: Rules,
}

/// Which nodes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// One on the client's machine.
    Host,
    /// One on another machine.
    Remote,
    /// Both.
    Both,
}

/// What a program calls itself when it runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// A new client id; its leases are counted from the beginning. The rule.
    NewClient,
    /// The same client id; its leases are counted on.
    SameClient,
    /// The same client id; its leases are counted from the beginning. So an id is used twice.
    SameLease,
}

/// The rules, whole or broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What a node takes for the end of a client.
    pub verdict: Verdict,
    /// What a node's release is guarded by.
    pub release: Guard,
    /// What a node's renewal does.
    pub renewal: Renewal,
    /// Nodes heed that a lease is not to be looked after any more.
    pub heeded: bool,
    /// For how many ticks nodes keep who is silent.
    pub max_pause: Option<u8>,
    /// Nodes wait as long as a ttl before they renew.
    pub patient: bool,
    /// A holder goes on after a pause without asking.
    pub trusting: bool,
    /// A client that cannot renew says that it is well all the same.
    pub boasting: bool,
    /// A new connection says nothing of leases that were left while there was none.
    pub forgetful: bool,
    /// A node counts how long a lease is kept from when it hears the answer.
    pub from_answer: bool,
}

/// What a node takes for the end of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// That all its processes are gone, which only the node on its machine can see. The rule.
    Proof,
    /// That its connection ended.
    Connection,
    /// That the process is gone that connected, whatever others were registered.
    Main,
}

/// What a release must know of the lease that it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Its id. The rule.
    Lease,
    /// The id of its client.
    Client,
    /// Nothing.
    Nothing,
}

/// What a renewal does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It renews the lease that it names. The rule.
    Own,
    /// The same, and where nobody holds the lock, it makes the lease hold it.
    Creates,
    /// It renews whatever lease holds the lock, and makes its own where none does.
    Anything,
}

/// How long nodes keep who is silent, by the rule, in ticks.
pub(super) const MAX_PAUSE: u8 = 4;

impl Rules {
    /// Nothing broken.
    pub const WHOLE: Self = Self {
        verdict: Verdict::Proof,
        release: Guard::Lease,
        renewal: Renewal::Own,
        heeded: true,
        max_pause: Some(MAX_PAUSE),
        patient: false,
        trusting: false,
        boasting: false,
        forgetful: false,
        from_answer: false,
    };
}

impl Setup {
    /// A node on the host, a program that runs twice and acquires once each time, and no faults.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            nodes: Nodes::Host,
            acquisitions: 2,
            lives: 2,
            restart: Restart::NewClient,
            child: false,
            ttl: 3,
            interval: 1,
            keep: None,
            ends: 0,
            slow: 0,
            stops: 0,
            late: 0,
            slack: 0,
            words: 1,
            gives_up: false,
            rules: Rules::WHOLE,
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}
