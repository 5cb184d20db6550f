//! The setup of a model: its size, faults and rules.

/// A model of the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Which nodes there are.
    pub nodes: Nodes,
    /// How many acquisitions the client's program makes in all its runs. Up to three.
    pub acquisitions: u8,
    /// How many times the program runs. Up to two.
    pub runs: u8,
    /// The ids of the program and its leases in its next run.
    pub restart: Restart,
    /// Whether its first run has registered a child that may outlive it.
    pub child: bool,
    /// How many ticks of a second a store keeps a lease.
    pub ttl: u8,
    /// How many ticks old the last renewal of a client is at most when it sends a heartbeat.
    pub interval: u8,
    /// For how many ticks a lease may be renewed.
    pub max_hold: Option<u8>,
    /// How many connections end, on either side first.
    pub ends: u8,
    /// How many nodes may become slow.
    pub slow: u8,
    /// How many times a node is restarted without its data.
    pub stops: u8,
    /// How many actions a node gives up before their replies.
    pub late: u8,
    /// How many actions of a timely node may fail.
    pub slack: u8,
    /// How many messages may be under way on one connection.
    pub messages: usize,
    /// Whether a client may give up a lease without a release, as it does not reach the store. It has leases
    /// of other locks, and so sends heartbeats.
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

/// The ids of a program and its leases in its next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// A new client id; its leases are counted from one: the rule.
    NewClient,
    /// The same client id; its leases are counted on.
    SameClient,
    /// The same client id; its leases are counted from one, so an id is used twice.
    SameLease,
}

/// The rules, or mutations of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What proves the death of a client to a node.
    pub death_proof: DeathProof,
    /// The guard of a node's release.
    pub release: Guard,
    /// The effect of a node's renewal.
    pub renewal: Renewal,
    /// Nodes unregister the leases that a client has unregistered.
    pub unregisters: bool,
    /// For how many ticks nodes renew the leases of a silent client.
    pub max_pause: Option<u8>,
    /// Nodes wait for a ttl before they renew.
    pub renews_late: bool,
    /// A holder goes on after a pause without a renewal.
    pub skips_check: bool,
    /// A client that cannot renew sends heartbeats nevertheless.
    pub claims_health: bool,
    /// A client does not report on a new connection which leases it gave up while it had none.
    pub registers_current_only: bool,
    /// A node counts the ttl from the arrival of the reply.
    pub from_reply: bool,
}

/// What proves the death of a client to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeathProof {
    /// All its processes are dead, which only the node on its machine can observe: the rule.
    AllProcesses,
    /// Its connection has ended.
    Connection,
    /// The process that connected is dead, whatever others were registered.
    MainProcess,
}

/// What a release must know of the lease that it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Its id: the rule.
    Lease,
    /// The id of its client.
    Client,
    /// Nothing.
    Nothing,
}

/// The effect of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It renews the lease that it names: the rule.
    Own,
    /// The same, and it grants a free lock to the lease.
    Creates,
    /// It renews any lease that holds the lock, and grants a free lock to its own.
    Anything,
}

/// For how many ticks nodes renew the leases of a silent client, by the rule.
pub(super) const MAX_PAUSE: u8 = 4;

impl Rules {
    /// The rules without a mutation.
    pub const SHIPPED: Self = Self {
        death_proof: DeathProof::AllProcesses,
        release: Guard::Lease,
        renewal: Renewal::Own,
        unregisters: true,
        max_pause: Some(MAX_PAUSE),
        renews_late: false,
        skips_check: false,
        claims_health: false,
        registers_current_only: false,
        from_reply: false,
    };
}

impl Setup {
    /// A node on the host, a program that runs twice and acquires once each time, and no faults.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            nodes: Nodes::Host,
            acquisitions: 2,
            runs: 2,
            restart: Restart::NewClient,
            child: false,
            ttl: 3,
            interval: 1,
            max_hold: None,
            ends: 0,
            slow: 0,
            stops: 0,
            late: 0,
            slack: 0,
            messages: 1,
            gives_up: false,
            rules: Rules::SHIPPED,
        }
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}
