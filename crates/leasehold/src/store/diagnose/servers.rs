//! Facts about servers.

use super::{ClockFacts, Fields};

/// The facts about Redis servers.
#[derive(Clone, Debug)]
pub(crate) struct ServerFacts {
    /// Their URL without a password.
    pub(crate) name: String,
    pub(crate) topology: Topology,
    pub(crate) nodes: Vec<NodeFacts>,
    /// The servers that could not be inspected, and why.
    pub(crate) silent: Vec<(String, String)>,
    /// The command that creates a user with exactly the permissions that this deployment needs.
    pub(crate) acl: String,
    /// The same for a user that may also read what the checks need.
    pub(crate) diagnosis_acl: String,
}

/// The deployment that the URL names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server.
    Single,
    /// The master that sentinels name, as each of them reports it.
    Sentinel(Vec<SentinelFacts>),
    /// A cluster: `CLUSTER INFO` and `CLUSTER NODES` of one of its nodes.
    Cluster(QueryResult<ClusterFacts>),
    /// Many masters.
    Masters,
}

/// The report of a sentinel on the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentinelFacts {
    /// The address of the sentinel.
    pub(crate) name: String,
    /// `SENTINEL MASTER`.
    pub(crate) master: QueryResult<Fields>,
}

/// The report of a node on its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterFacts {
    pub(crate) info: Fields,
    pub(crate) members: Vec<ClusterMember>,
}

/// A node of a cluster, as another reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterMember {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) flags: Vec<String>,
    /// The master that it replicates.
    pub(crate) follows: Option<String>,
    pub(crate) has_slots: bool,
}

/// The facts about one server.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts {
    /// Its URL or address, without a password.
    pub(crate) name: String,
    /// `INFO`.
    pub(crate) info: QueryResult<Fields>,
    /// `CONFIG GET` of the relevant settings.
    pub(crate) config: QueryResult<Fields>,
    /// `None` if `TIME` is refused.
    pub(crate) clock: Option<ClockFacts>,
    /// The version of the protocol on the connection: 2 or 3.
    pub(crate) protocol: u8,
    pub(crate) rights: Rights,
}

/// The reply to a query, or the error message of the server.
pub(crate) type QueryResult<T> = Result<T, String>;

/// The permissions of our user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) user: Option<String>,
    /// Whether the rights on keys were tried.
    pub(crate) tried: bool,
    pub(crate) missing: Vec<MissingRight>,
    /// Why the server refuses the writes of all users.
    pub(crate) blocked: Option<String>,
}

/// A permission that our user lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingRight {
    /// As a rule of `ACL SETUSER`, with its sign.
    pub(crate) rule: String,
    pub(crate) purpose: Purpose,
}

/// The purpose of a permission, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Lock,
    Wait,
    Renew,
    Losses,
    /// A record that is a hash.
    Hash,
    Inspect,
}

impl NodeFacts {
    /// Whether it reports to be a replica.
    pub(crate) fn is_replica(&self) -> bool {
        let info = self.info.as_ref();
        info.is_ok_and(|info| info.is("role", "slave"))
    }
}

impl ClusterMember {
    pub(crate) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}
