//! What a client and a node say to each other.
//!
//! Words carry plain values, which whoever hears them checks: lengths of names, ttls, whose lease it is.

use std::fmt;

use leasehold_core::ClientId;
use ring::digest;
use serde::{Deserialize, Serialize};

pub use crate::secret::Secret;

/// What is said to a node. The first is a [`ToNode::Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    /// Who it is.
    Hello(Hello),
    /// What has changed with the leases of a client.
    Changes(Changes),
    /// A client lives, and renews its leases.
    Heartbeat,
    /// A further process that must be gone before the client is dead. Its pidfd is sent along.
    Process,
    /// The client ends in good order: it has no lease any more, or wants none to be looked after.
    Disconnect,
    /// A query until when the node has renewed a lease.
    LeaseQuery {
        /// The id of its client.
        client: [u8; 16],
        /// Its number.
        number: u64,
    },
    /// Who is there?
    Status,
}

/// The first word to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What lets one in where not everybody is.
    pub token: Option<Secret>,
    /// What for.
    pub role: Role,
}

/// What somebody wants of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// To be looked after. The secret proves which client it is.
    Client(ClientSecret, Introduction),
    /// To look only.
    Observer,
}

/// Who a client is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    /// Drawn by each program when it starts: another in the same process has taken its place (exec).
    pub process_nonce: [u8; 16],
    /// The store, by its URL without a password, or by the name that the node gave it.
    pub store: String,
    /// The namespace of its locks.
    pub namespace: String,
    /// The tenant.
    pub tenant: String,
    /// The name of its machine.
    pub host: String,
    /// Its process id there.
    pub pid: u32,
    /// The program it runs.
    pub program: String,
    /// A text of the user's choice.
    pub label: String,
}

/// What has changed with the leases of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The number of this batch on this connection.
    pub batch: u64,
    /// Leases to look after, or on other terms.
    pub register: Vec<Registration>,
    /// Leases to look after no more.
    pub unregister: Vec<u64>,
}

/// A lease to look after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Its number.
    pub number: u64,
    /// The name of the lock.
    pub name: String,
    /// The ttl of its renewals.
    pub ttl_ms: u32,
    /// After which silence it is renewed.
    pub patience_ms: u32,
    /// For how long it may be renewed. `None`: without end. Zero: it is a fixed lease.
    pub keep_ms: Option<u64>,
}

/// What a node says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient {
    /// It is let in.
    Welcome {
        /// The name of the node.
        node: String,
        /// For how long a silent client is kept.
        max_pause_ms: u64,
    },
    /// It is not, or not any more. The connection ends.
    Refused(Refusal),
    /// A batch of changes was taken in.
    Acknowledged {
        /// Its number.
        batch: u64,
        /// What was not taken, by lease.
        refused: Vec<(u64, Refusal)>,
    },
    /// A further process is watched. One that cannot be is [refused](ToClient::Refused), and the node has
    /// forgotten the client.
    Joined,
    /// Until when a lease is kept, by this machine's clock since it was started, in nanoseconds.
    LeaseStatus(Option<u64>),
    /// Those who are there, or the next of them.
    Status {
        /// Some of them.
        clients: Vec<ClientStatus>,
        /// Whether there are more to come.
        more: bool,
    },
    /// The node is about to stop, and has renewed what it keeps alive.
    Closing,
}

/// Why a node refuses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// It does not know this token, or none was given.
    Token,
    /// It has no such store.
    Store,
    /// The lease is of another client, or the client of another process.
    Foreign,
    /// Not a process.
    Process,
    /// There are too many clients.
    Clients,
    /// The client has too many leases.
    Leases,
    /// A name, ttl or other value that cannot be.
    Value,
    /// A word that may not be said here, or a frame that is none.
    Word,
    /// It is too slow to read what it is told.
    Slow,
    /// This user or token may not register locks of this namespace.
    Namespace,
    /// The client has too many processes, or all clients have.
    Processes,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token => "the token is missing or wrong",
            Self::Store => "it does not serve this store",
            Self::Foreign => "the client or lease belongs to another process",
            Self::Process => "not a process that can be watched",
            Self::Clients => "it has as many clients as it may",
            Self::Leases => "it looks after as many leases as it may",
            Self::Value => "a value that cannot be",
            Self::Word => "a word that may not be said here",
            Self::Slow => "answers were not read in time",
            Self::Namespace => "this user or token may not register locks of this namespace",
            Self::Processes => "it watches as many processes as it may",
        })
    }
}

/// A client, for people who look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Its id.
    pub client: [u8; 16],
    /// The name of its machine.
    pub host: String,
    /// Its process id.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// Its label.
    pub label: String,
    /// The store.
    pub store: String,
    /// How many leases it has.
    pub leases: u32,
    /// How many processes must be gone before it is dead. Zero: it is on another machine.
    pub processes: u32,
    /// Whether it is connected.
    pub connected: bool,
    /// For how long the node has known it.
    pub known_ms: u64,
    /// When it was heard of last.
    pub silent_ms: u64,
    /// How it is about it.
    pub condition: Liveness,
    /// Why it is silent, as far as the machine tells.
    pub why: String,
    /// The names of some locks that are kept alive for it.
    pub kept: Vec<String>,
}

/// How it is about a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Liveness {
    /// It renews its leases itself.
    Alive,
    /// It is silent and alive: the node renews its leases.
    Silent,
    /// It was silent for too long, and its leases end.
    Abandoned,
    /// Nobody knows whether it lives.
    Unknown,
    /// It is dead, and its leases are released.
    Dead,
}

/// A secret that a client draws when it is built. The id of the client is a hash of it.
///
/// The store and everybody who may read it know the id, by the leases that it holds. Only the client knows the
/// secret, and its nodes. So a node cannot be made to renew or to release the lease of another client, and
/// needs no question to the store to be sure of that.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSecret([u8; 32]);

impl ClientSecret {
    /// A secret out of random bytes.
    #[must_use]
    pub const fn from_random(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The id of the client that has this secret: the first half of a SHA-256.
    #[must_use]
    pub fn client_id(&self) -> ClientId {
        let mut context = digest::Context::new(&digest::SHA256);
        // So that it is the hash of nothing else.
        context.update(b"leasehold client id\0");
        context.update(&self.0);
        let mut id = [0; 16];
        for (byte, hashed) in id.iter_mut().zip(context.finish().as_ref()) {
            *byte = *hashed;
        }
        ClientId::from_random(id)
    }
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientSecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_proves_its_secret_and_does_not_show_it() {
        let secret = ClientSecret::from_random([7; 32]);
        // The protocol: another program must come to the same.
        let id = secret.client_id().to_string();
        assert_eq!(id, "7d700332e3d7262169cd1e1dcfc2836b");
        let mut other = [7; 32];
        other[31] ^= 1;
        assert_ne!(
            ClientSecret::from_random(other).client_id(),
            secret.client_id()
        );
        assert_eq!(format!("{secret:?}"), "ClientSecret");
    }
}
