//! What was seen of servers.

use std::collections::BTreeMap;

/// What was seen of Redis servers.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// Their URL without a password.
    pub(crate) name: String,
    pub(crate) topology: Topology,
    pub(crate) nodes: Vec<NodeFacts>,
    /// Those that could not be looked at, and why.
    pub(crate) silent: Vec<(String, String)>,
    /// The line that makes a user who may do what this deployment needs, and no more.
    pub(crate) acl: String,
}

/// How servers belong together, as the URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// One server.
    Single,
    /// The master that sentinels name: what each of them says of it.
    Sentinel(Vec<Watch>),
    /// A cluster: `CLUSTER INFO` and `CLUSTER NODES` of one of its nodes.
    Cluster(Seen<ClusterFacts>),
    /// Many masters.
    Masters,
}

/// What a sentinel says of the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    /// Where the sentinel is.
    pub(crate) name: String,
    /// `SENTINEL MASTER`.
    pub(crate) master: Seen<Fields>,
}

/// What a node says of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClusterFacts {
    pub(crate) info: Fields,
    pub(crate) members: Vec<Member>,
}

/// A node of a cluster, as another sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) flags: Vec<String>,
    /// The master that it follows.
    pub(crate) follows: Option<String>,
    pub(crate) has_slots: bool,
}

/// What was seen of one server.
#[derive(Clone, Debug)]
pub(crate) struct NodeFacts {
    /// Where it is, without a password.
    pub(crate) name: String,
    /// `INFO`.
    pub(crate) info: Seen<Fields>,
    /// `CONFIG GET`, of what matters.
    pub(crate) config: Seen<Fields>,
    /// `None` if it does not tell the time.
    pub(crate) clock: Option<ClockFacts>,
    /// The version of the protocol that it speaks with us: 2 or 3.
    pub(crate) protocol: u8,
    pub(crate) rights: Rights,
}

/// What a server said, or why it did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen<T> {
    Known(T),
    /// In its own words.
    Hidden(String),
}

/// A server's clock against ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockFacts {
    /// How far it is ahead, in microseconds.
    pub(crate) ahead: i64,
    /// By how much that may be wrong: half of the shortest round trip.
    pub(crate) error: i64,
}

/// What our user may do there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) user: Option<String>,
    pub(crate) lacks: Vec<Lack>,
    /// Why the server refuses to write, whoever asks.
    pub(crate) blocked: Option<String>,
}

/// Something that our user may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lack {
    /// As it stands in a rule of `ACL SETUSER`, with its sign.
    pub(crate) rule: String,
    pub(crate) need: Need,
}

/// What a right is needed for, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    Lock,
    Wait,
    Renew,
    Losses,
    Look,
    Force,
}

/// Names and their values, as servers tell them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(pub(crate) BTreeMap<String, String>);

impl Fields {
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub(crate) fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }
}

impl NodeFacts {
    /// Whether it follows another, as far as it says.
    pub(crate) fn is_replica(&self) -> bool {
        self.info
            .known()
            .is_some_and(|info| info.is("role", "slave"))
    }
}

impl Member {
    pub(crate) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl<T> Seen<T> {
    pub(crate) fn known(&self) -> Option<&T> {
        match self {
            Self::Known(seen) => Some(seen),
            Self::Hidden(_) => None,
        }
    }
}
