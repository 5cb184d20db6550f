//! A peer that sends any message.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use leasehold::__private::frame::{Decoder, encode};
use leasehold::__private::wire::{
    Changes, ClientInfo, ClientSecret, ClientStatus, Hello, Refusal, Registration, Role, ToClient,
    ToNode,
};
use leasehold::Secret;
use leasehold_core::ClientId;
use leasehold_testkit::eventually;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::fixture::{Fixture, SOON};

/// A connection to a node.
pub(crate) struct Peer<S> {
    pub(crate) stream: S,
    decoder: Decoder,
    batch: u64,
}

impl Peer<UnixStream> {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self::new(stream)
    }

    pub(crate) fn with_role(fixture: &Fixture, role: Role) -> Self {
        let mut peer = Self::connect(&fixture.socket);
        peer.expect_welcome(&hello(role));
        peer
    }

    pub(crate) fn observer(fixture: &Fixture) -> Self {
        Self::with_role(fixture, Role::Observer)
    }

    /// A client of this process.
    pub(crate) fn client(fixture: &Fixture, client: u128) -> Self {
        Self::with_role(fixture, role(fixture, client))
    }
}

impl<S: Read + Write> Peer<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            decoder: Decoder::default(),
            batch: 0,
        }
    }

    #[track_caller]
    pub(crate) fn expect_welcome(&mut self, hello: &ToNode) {
        self.send(hello);
        self.receive_welcome();
    }

    #[track_caller]
    pub(crate) fn receive_welcome(&mut self) {
        let reply = self.receive();
        assert!(matches!(reply, Some(ToClient::Welcome { .. })), "{reply:?}");
    }

    /// Expects the refusal of an earlier message and the end of the connection, after any replies.
    #[track_caller]
    pub(crate) fn expect_refusal(&mut self, expected: Refusal) {
        loop {
            match self.receive() {
                Some(ToClient::Refused(refusal)) => break assert_eq!(refusal, expected),
                Some(_) => {}
                None => panic!("the connection has ended without a refusal"),
            }
        }
        assert_eq!(self.receive(), None);
    }

    /// Sends a message. A node that has ended the connection does not take it.
    pub(crate) fn send(&mut self, message: &ToNode) {
        let _ = self.stream.write_all(&encode(message).unwrap());
    }

    pub(crate) fn request(&mut self, message: &ToNode) -> Option<ToClient> {
        self.send(message);
        self.receive()
    }

    /// The next message. `None`: the connection has ended.
    pub(crate) fn receive(&mut self) -> Option<ToClient> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(message) = self.decoder.message().unwrap() {
                return Some(message);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(read) => self.decoder.push(&bytes[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("no reply within {SOON:?}")
                }
                Err(_) => return None,
            }
        }
    }

    /// Registers leases. Returns the refused ones.
    pub(crate) fn register(
        &mut self,
        register: impl IntoIterator<Item = Registration>,
    ) -> Vec<(u64, Refusal)> {
        self.change(register.into_iter().collect(), vec![])
    }

    pub(crate) fn change(
        &mut self,
        register: Vec<Registration>,
        unregister: Vec<u64>,
    ) -> Vec<(u64, Refusal)> {
        self.batch += 1;
        let batch = self.batch;
        match self.request(&ToNode::Changes(Changes {
            batch,
            register,
            unregister,
        })) {
            Some(ToClient::Acknowledged { batch, refused }) if batch == self.batch => refused,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn disconnect(&mut self) {
        assert_eq!(self.request(&ToNode::Disconnect), None);
    }

    /// The clients of the node.
    pub(crate) fn status(&mut self) -> Vec<ClientStatus> {
        self.send(&ToNode::Status);
        let mut all = Vec::new();
        loop {
            match self.receive() {
                Some(ToClient::Status { clients, more }) => {
                    all.extend(clients);
                    if !more {
                        return all;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn status_of(&mut self, client: u128) -> Option<ClientStatus> {
        let mut all = self.status().into_iter();
        all.find(|status| status.client == client_id(client).to_bytes())
    }

    /// Waits until the status of a client is so.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, client: u128, is_so: impl Fn(&ClientStatus) -> bool) {
        eventually(SOON, || is_so(&self.status_of(client).unwrap()));
    }
}

pub(crate) fn hello(role: Role) -> ToNode {
    ToNode::Hello(Hello { token: None, role })
}

pub(crate) fn hello_with(token: &str, role: Role) -> ToNode {
    ToNode::Hello(Hello {
        token: Some(Secret::from(token)),
        role,
    })
}

/// The secret of the client with a number.
pub(crate) fn secret(client: u128) -> ClientSecret {
    let mut bytes = [0; 32];
    bytes[16..].copy_from_slice(&client.to_be_bytes());
    ClientSecret::from_random(bytes)
}

pub(crate) fn client_id(client: u128) -> ClientId {
    secret(client).client_id()
}

pub(crate) fn role(fixture: &Fixture, client: u128) -> Role {
    role_with(fixture, client, |_| {})
}

/// The role of a client with other client info.
pub(crate) fn role_with(
    fixture: &Fixture,
    client: u128,
    change: impl FnOnce(&mut ClientInfo),
) -> Role {
    let mut info = client_info(fixture);
    change(&mut info);
    Role::Client(secret(client), info)
}

pub(crate) fn client_info(fixture: &Fixture) -> ClientInfo {
    ClientInfo {
        process_nonce: [1; 16],
        store: fixture.url.clone(),
        namespace: "test".into(),
        tenant: "default".into(),
        host: "here".into(),
        pid: std::process::id(),
        program: "test".into(),
        label: "a label".into(),
    }
}

pub(crate) fn changes(batch: u64, register: Vec<Registration>) -> ToNode {
    ToNode::Changes(Changes {
        batch,
        register,
        unregister: vec![],
    })
}

pub(crate) fn registration(number: u64, name: &str, ttl: Duration) -> Registration {
    let ttl_ms = u32::try_from(ttl.as_millis()).unwrap();
    Registration {
        number,
        name: name.into(),
        ttl_ms,
        silence_timeout_ms: ttl_ms / 3,
        keep_ms: None,
    }
}

pub(crate) fn send_with_descriptors(
    stream: &UnixStream,
    message: &ToNode,
    descriptors: &[BorrowedFd<'_>],
) {
    let frame = encode(message).unwrap();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    let parts = [IoSlice::new(&frame)];
    sendmsg(stream, &parts, &mut control, SendFlags::empty()).unwrap();
}
