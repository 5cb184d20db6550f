//! A peer that may say anything.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use leasehold::__private::frame::{Decoder, encode};
use leasehold::__private::wire::{
    ClientSecret, ClientStatus, Hello, Introduction, Registration, Role, ToClient, ToNode,
};
use leasehold::Secret;

use leasehold_core::ClientId;

use crate::fixture::{Fixture, SOON};

/// A connection to a node, over whatever.
pub(crate) struct Raw<S> {
    pub(crate) stream: S,
    decoder: Decoder,
}

impl Raw<UnixStream> {
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self::over(stream)
    }

    /// An observer.
    pub(crate) fn observer(fixture: &Fixture) -> Self {
        let mut raw = Self::connect(&fixture.socket);
        raw.welcomed(hello(Role::Observer));
        raw
    }

    /// A client of this process.
    pub(crate) fn client(fixture: &Fixture, client: u128) -> Self {
        let mut raw = Self::connect(&fixture.socket);
        raw.welcomed(hello(role(fixture, client)));
        raw
    }
}

impl<S: Read + Write> Raw<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self {
            stream,
            decoder: Decoder::default(),
        }
    }

    #[track_caller]
    pub(crate) fn welcomed(&mut self, hello: ToNode) {
        let answer = self.asks(&hello);
        assert!(
            matches!(answer, Some(ToClient::Welcome { .. })),
            "{answer:?}"
        );
    }

    /// Says a word. Whoever is sent away cannot.
    pub(crate) fn says(&mut self, word: &ToNode) {
        let _ = self.stream.write_all(&encode(word).unwrap());
    }

    pub(crate) fn asks(&mut self, word: &ToNode) -> Option<ToClient> {
        self.says(word);
        self.hears()
    }

    /// The next word. `None`: the connection has ended.
    pub(crate) fn hears(&mut self) -> Option<ToClient> {
        let mut bytes = [0; 4096];
        loop {
            if let Some(word) = self.decoder.word().unwrap() {
                return Some(word);
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(read) => self.decoder.push(&bytes[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    panic!("no answer within {SOON:?}")
                }
                Err(_) => return None,
            }
        }
    }

    /// Who is there.
    pub(crate) fn status(&mut self) -> Vec<ClientStatus> {
        self.says(&ToNode::Status);
        let mut all = Vec::new();
        loop {
            match self.hears() {
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

    /// What is known of one client.
    pub(crate) fn status_of(&mut self, client: u128) -> Option<ClientStatus> {
        let mut all = self.status().into_iter();
        all.find(|status| status.client == client_id(client).to_bytes())
    }
}

pub(crate) fn hello(role: Role) -> ToNode {
    ToNode::Hello(Hello { token: None, role })
}

pub(crate) fn hello_with(token: &str, role: Role) -> ToNode {
    ToNode::Hello(Hello {
        token: Some(Secret::new(token)),
        role,
    })
}

/// What only the client of a number knows.
pub(crate) fn secret(client: u128) -> ClientSecret {
    let mut bytes = [0; 32];
    bytes[16..].copy_from_slice(&client.to_be_bytes());
    ClientSecret::from_random(bytes)
}

pub(crate) fn client_id(client: u128) -> ClientId {
    secret(client).client_id()
}

pub(crate) fn role(fixture: &Fixture, client: u128) -> Role {
    Role::Client(secret(client), introduction(fixture))
}

pub(crate) fn introduction(fixture: &Fixture) -> Introduction {
    Introduction {
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

pub(crate) fn registration(number: u64, name: &str, ttl_ms: u32) -> Registration {
    Registration {
        number,
        name: name.into(),
        ttl_ms,
        patience_ms: ttl_ms / 3,
        keep_ms: None,
    }
}
