//! The messages between a client and a node.
//!
//! Messages carry plain values. The receiver checks them: lengths of names, ttls, the owner of a lease.

use std::fmt;

use leasehold_core::ClientId;
use ring::digest;
use serde::{Deserialize, Serialize};

use crate::Secret;

/// A message to a node. The first is a [`ToNode::Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToNode {
    /// The token and the role of the peer.
    Hello(Hello),
    /// Changes of the registered leases of a client.
    Changes(Changes),
    /// The client is alive and renews its leases.
    Heartbeat,
    /// A further process that must end before the client is dead. Its pidfd is sent with the message.
    Process,
    /// The client disconnects in good order. The node forgets its leases without releasing them.
    Disconnect,
    /// A query until when the node has renewed a lease.
    LeaseQuery {
        /// The id of its client.
        client: [u8; 16],
        /// Its number.
        number: u64,
    },
    /// A query of all clients.
    Status,
}

/// The first message to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The token, required over TCP.
    pub token: Option<Secret>,
    /// The role of the peer.
    pub role: Role,
}

/// The role of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// A client to monitor. The secret proves its id.
    Client(ClientSecret, ClientInfo),
    /// An observer, which only sends queries.
    Observer,
}

/// The client info in a hello.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// A random number that each program draws when it starts. Another one in the same process means an exec.
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

/// Changes of the registered leases of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The number of this batch on this connection.
    pub batch: u64,
    /// Leases to register, or registered ones with other terms.
    pub register: Vec<Registration>,
    /// The numbers of leases to unregister.
    pub unregister: Vec<u64>,
}

/// The registration of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Its number.
    pub number: u64,
    /// The name of the lock.
    pub name: String,
    /// The ttl of its renewals.
    pub ttl_ms: u32,
    /// The silence timeout in milliseconds, after which the node renews the lease.
    pub silence_timeout_ms: u32,
    /// How long the node may renew it, in milliseconds. `None`: without end. Zero: never, for a fixed lease.
    pub keep_ms: Option<u64>,
}

/// A message from a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToClient {
    /// The hello was accepted.
    Welcome {
        /// The name of the node.
        node: String,
        /// How long the leases of a silent client are renewed.
        max_pause_ms: u64,
    },
    /// The hello or a later message was refused. The connection ends.
    Refused(Refusal),
    /// A batch of changes was applied.
    Acknowledged {
        /// Its number.
        batch: u64,
        /// The refused registrations, by the number of the lease.
        refused: Vec<(u64, Refusal)>,
    },
    /// A further process is watched. If it cannot be watched, the message is [refused](ToClient::Refused), and the
    /// node has forgotten the client.
    Joined,
    /// Until when the node has renewed a lease, in nanoseconds on the boot clock of this machine.
    LeaseStatus(Option<u64>),
    /// A page of the status.
    Status {
        /// The clients on this page.
        clients: Vec<ClientStatus>,
        /// Whether another page follows.
        more: bool,
    },
    /// The node is about to stop. It has renewed the leases of silent clients.
    Closing,
    /// The stores that the node serves, before it refuses a client of another store: their names, or else their URLs
    /// without user and password.
    Stores(Vec<String>),
}

/// Why a node refuses something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Refusal {
    /// The token is unknown or missing.
    Token,
    /// The node does not serve the store.
    Store,
    /// The client belongs to another process, or has a newer connection.
    Foreign,
    /// Not a pidfd.
    Process,
    /// There are too many clients.
    Clients,
    /// The client has too many leases.
    Leases,
    /// An invalid name, ttl or other value.
    Value,
    /// An unexpected message, or an invalid frame.
    Message,
    /// The peer reads too slowly.
    SlowReader,
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
            Self::Leases => "it has as many leases as it may",
            Self::Value => "a value is out of range",
            Self::Message => "an unexpected message",
            Self::SlowReader => "replies were not read in time",
            Self::Namespace => "this user or token may not register locks of this namespace",
            Self::Processes => "it watches as many processes as it may",
        })
    }
}

/// The status of a client, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
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
    /// How many of its processes must still end before it is dead. Zero: it is on another machine, or dead.
    pub processes: u32,
    /// Whether it is connected.
    pub connected: bool,
    /// The time since its first hello, in milliseconds.
    pub known_ms: u64,
    /// The time since its last sign of life, in milliseconds.
    pub silent_ms: u64,
    /// Its liveness.
    pub liveness: Liveness,
    /// The likely reason for its silence. Empty if it is alive.
    pub reason: String,
    /// The names of some locks that the node renews for it.
    pub renewed: Vec<String>,
}

/// The liveness of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Liveness {
    /// It renews its leases itself.
    Alive,
    /// It is silent and alive: the node renews its leases.
    Silent,
    /// It is silent for too long: its leases expire.
    Abandoned,
    /// It is not connected, and whether it is alive cannot be found out.
    #[default]
    Unknown,
    /// It is dead: its leases are released.
    Dead,
}

impl Liveness {
    /// As one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Silent => "silent",
            Self::Abandoned => "abandoned",
            Self::Unknown => "unknown",
            Self::Dead => "dead",
        }
    }
}

/// A secret that a client draws when it is built. The id of the client is a hash of it.
///
/// The id stands in the store, in each lease of the client. Only the client and its nodes know the secret. So a node
/// cannot be made to renew or to release the lease of another client, and need not check that with the store.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSecret([u8; 32]);

impl ClientSecret {
    /// A secret from random bytes.
    #[must_use]
    pub const fn from_random(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The id of the client that has this secret: the first half of a SHA-256.
    #[must_use]
    pub fn client_id(&self) -> ClientId {
        let mut context = digest::Context::new(&digest::SHA256);
        // Separates this use of the hash from any other.
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
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::watchdog::frame::{Decoder, encode};

    /// Decodes a frame in hexadecimal to a message with this `Debug`, and encodes it again.
    fn check<T: Serialize + DeserializeOwned + fmt::Debug>(frame: &str, message: &str) {
        let byte = |at| u8::from_str_radix(&frame[at..at + 2], 16).unwrap();
        let bytes: Vec<_> = (0..frame.len()).step_by(2).map(byte).collect();
        let mut decoder = Decoder::default();
        decoder.push(&bytes);
        let decoded = decoder.message::<T>().unwrap().unwrap();
        assert_eq!(format!("{decoded:?}"), message);
        assert_eq!(encode(&decoded), Ok(bytes));
    }

    /// The encoding has the fields in their order and no names. These bytes are what peers of this version send.
    #[test]
    fn the_encoding_of_messages_is_stable() {
        let (secret, hex, sixteen) = ("07".repeat(32), "01".repeat(16), [1; 16]);
        check::<ToNode>(
            &format!(
                "0000005f03000105746f6b656e00{secret}{hex}0573746f7265026e730674656e616e7404686f7374ac020770726f6772616d056c6162656c"
            ),
            &format!(
                r#"Hello(Hello {{ token: Some(...), role: Client(ClientSecret, ClientInfo {{ process_nonce: {sixteen:?}, store: "store", namespace: "ns", tenant: "tenant", host: "host", pid: 300, program: "program", label: "label" }}) }})"#
            ),
        );
        check::<ToNode>(
            "000000130301040102046c6f636bb0ea019c4a01050109",
            r#"Changes(Changes { batch: 4, register: [Registration { number: 2, name: "lock", ttl_ms: 30000, silence_timeout_ms: 9500, keep_ms: Some(5) }], unregister: [9] })"#,
        );
        check::<ToClient>(
            "00000006030204010207",
            "Acknowledged { batch: 4, refused: [(2, Message)] }",
        );
        check::<ToClient>("00000006030701026162", r#"Stores(["ab"])"#);
        check::<ToClient>(
            &format!(
                "00000044030501{hex}04686f7374ac020770726f6772616d056c6162656c0573746f7265020101882784070106726561736f6e01046c6f636b00"
            ),
            &format!(
                r#"Status {{ clients: [ClientStatus {{ client: {sixteen:?}, host: "host", pid: 300, program: "program", label: "label", store: "store", leases: 2, processes: 1, connected: true, known_ms: 5000, silent_ms: 900, liveness: Silent, reason: "reason", renewed: ["lock"] }}], more: false }}"#
            ),
        );
    }

    #[test]
    fn an_id_proves_its_secret_and_does_not_show_it() {
        let secret = ClientSecret::from_random([7; 32]);
        // Part of the protocol: other implementations must derive the same id.
        let id = secret.client_id().to_string();
        assert_eq!(id, "7d700332e3d7262169cd1e1dcfc2836b");
        assert_eq!(format!("{secret:?}"), "ClientSecret");
    }
}
