//! The setup of a model: its size, faults and rules.

setup! {
    /// A model of the watchdog.
    ///
    /// By the rule: a node on the host, a program that runs twice and acquires once each time, and no faults.
    Setup {
        /// Which nodes there are.
        nodes: Nodes = Nodes::Host,
        /// How many acquisitions the client's program makes in all its runs. Up to three.
        acquisitions: u8 = 2,
        /// How many times the program runs. Up to two.
        runs: u8 = 2,
        /// The ids of the program and its leases in its next run.
        restart: Restart = Restart::NewClient,
        /// Whether its first run has registered a child that may outlive it.
        child: bool = false,
        /// How many ticks of a second a store keeps a lease.
        ttl: u8 = 3,
        /// For how many ticks a lease may be renewed.
        max_hold: Option<u8> = None,
        /// How many connections are lost, on either side first.
        lost_connections: u8 = 0,
        /// How many nodes may become slow.
        slow_nodes: u8 = 0,
        /// How many times a node is restarted without its data.
        node_restarts: u8 = 0,
        /// How many actions a node gives up before their replies.
        late_actions: u8 = 0,
        /// How many actions of a timely node may fail.
        failed_actions: u8 = 0,
        /// Whether a client may abandon a lease without a release, as it does not reach the store. It has leases
        /// of other locks, and so sends heartbeats.
        abandons_leases: bool = false,
        /// What proves the death of a client to a node.
        death_proof: DeathProof = DeathProof::AllProcesses,
        /// What the store checks before a node's release.
        release_condition: ReleaseCondition = ReleaseCondition::Lease,
        /// The effect of a node's renewal.
        renewal: Renewal = Renewal::Own,
        /// Nodes unregister the leases that a client has unregistered.
        unregisters: bool = true,
        /// For how many ticks nodes renew the leases of a silent client.
        max_pause: Option<u8> = Some(MAX_PAUSE),
        /// Nodes wait for a ttl before they renew.
        renews_late: bool = false,
        /// A holder goes on after a pause without a renewal.
        skips_check: bool = false,
        /// A client that cannot renew sends heartbeats nevertheless.
        claims_health: bool = false,
        /// A client does not report on a new connection which leases it gave up while it had none.
        registers_current_only: bool = false,
        /// A node counts the ttl from the arrival of the reply.
        from_reply: bool = false,
    }
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
    /// Nothing: no death is noticed.
    Nothing,
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
