//! The setup of a model: its size, faults and rules.

/// A model of the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Which nodes there are.
    pub(crate) nodes: Nodes,
    /// How many acquisitions the client's program makes in all its runs. Up to three.
    pub(crate) acquisitions: u8,
    /// How many times the program runs. Up to two.
    pub(crate) runs: u8,
    /// The ids of the program and its leases in its next run.
    pub(crate) restart: Restart,
    /// Whether its first run has registered a child that may outlive it.
    pub(crate) child: bool,
    /// How many ticks of a second a store keeps a lease.
    pub(crate) ttl: u8,
    /// For how many ticks a lease may be renewed.
    pub(crate) max_hold: Option<u8>,
    /// How many connections are lost, on either side first.
    pub(crate) lost_connections: u8,
    /// How many nodes may become slow.
    pub(crate) slow_nodes: u8,
    /// How many times a node is restarted without its data.
    pub(crate) node_restarts: u8,
    /// How many actions a node gives up before their replies.
    pub(crate) late_actions: u8,
    /// How many actions of a timely node may fail.
    pub(crate) failed_actions: u8,
    /// Whether a client may abandon a lease without a release, as it does not reach the store. It has leases
    /// of other locks, and so sends heartbeats.
    pub(crate) abandons_leases: bool,
    /// What proves the death of a client to a node.
    pub(crate) death_proof: DeathProof,
    /// What the store checks before a node's release.
    pub(crate) release_condition: ReleaseCondition,
    /// The effect of a node's renewal.
    pub(crate) renewal: Renewal,
    /// Nodes unregister the leases that a client has unregistered.
    pub(crate) unregisters: bool,
    /// For how many ticks nodes renew the leases of a silent client.
    pub(crate) max_pause: Option<u8>,
    /// Nodes wait for a ttl before they renew.
    pub(crate) renews_late: bool,
    /// A holder goes on after a pause without a renewal.
    pub(crate) skips_check: bool,
    /// A client that cannot renew sends heartbeats nevertheless.
    pub(crate) claims_health: bool,
    /// A client does not report on a new connection which leases it gave up while it had none.
    pub(crate) registers_current_only: bool,
    /// A node counts the ttl from the arrival of the reply.
    pub(crate) from_reply: bool,
}

/// Which nodes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// One on the client's machine.
    Host,
    /// One on another machine.
    Remote,
    /// Both.
    Both,
}

/// The ids of a program and its leases in its next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restart {
    /// A new client id; its leases are counted from one: the rule.
    NewClient,
    /// The same client id; its leases are counted on.
    SameClient,
    /// The same client id; its leases are counted from one, so an id is used twice.
    SameLease,
}

/// What proves the death of a client to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeathProof {
    /// All its processes are dead, which only the node on its machine can observe: the rule.
    AllProcesses,
    /// Its connection has ended.
    Connection,
    /// The process that connected is dead, whatever others were registered.
    MainProcess,
}

/// What the store checks before a release: which leases it may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReleaseCondition {
    /// This lease: the rule.
    Lease,
    /// Any lease of its client.
    Client,
    /// Any lease.
    Nothing,
}

/// The effect of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewal {
    /// It renews the lease that it names: the rule.
    Own,
    /// The same, and it grants a free lock to the lease.
    Creates,
    /// It renews any lease that holds the lock, and grants a free lock to its own.
    Anything,
}

/// How many ticks old the last renewal of a client is at most when it sends a heartbeat.
pub(super) const INTERVAL: u8 = 1;

/// For how many ticks nodes renew the leases of a silent client, by the rule.
pub(super) const MAX_PAUSE: u8 = 4;

impl Setup {
    /// A node on the host, a program that runs twice and acquires once each time, and no faults.
    pub(crate) const RULE: Self = Self {
        nodes: Nodes::Host,
        acquisitions: 2,
        runs: 2,
        restart: Restart::NewClient,
        child: false,
        ttl: 3,
        max_hold: None,
        lost_connections: 0,
        slow_nodes: 0,
        node_restarts: 0,
        late_actions: 0,
        failed_actions: 0,
        abandons_leases: false,
        death_proof: DeathProof::AllProcesses,
        release_condition: ReleaseCondition::Lease,
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
