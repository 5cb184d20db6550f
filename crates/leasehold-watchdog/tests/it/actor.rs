//! Processes that a test stops, kills and replaces.

use std::io::{self, Read, Write};
use std::process::{Child, Command};
use std::time::Duration;

use leasehold::__private::frame::encode;
use leasehold::__private::wire::{ClientInfo, Registration, ToClient};
use leasehold_testkit::Helper;
use rustix::process::Signal;

use crate::fixture::Fixture;
use crate::helper::{from_hex, to_hex};
use crate::peer::{Peer, changes, hello, registration, role_with};

/// The connection of a [helper](crate::helper).
pub(crate) struct Relay(pub(crate) Helper);

impl Read for Relay {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = from_hex(&self.0.request("read"));
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

impl Write for Relay {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(&format!("write {}", to_hex(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A client of a node, in a process of its own.
pub(crate) struct Actor {
    /// The number of its client.
    pub(crate) client: u128,
    pub(crate) peer: Peer<Relay>,
}

impl Actor {
    pub(crate) fn client(fixture: &Fixture) -> Self {
        Self::client_with(fixture, fastrand::u128(..), |_| {})
    }

    /// A client with a number and other client info.
    pub(crate) fn client_with(
        fixture: &Fixture,
        client: u128,
        change: impl FnOnce(&mut ClientInfo),
    ) -> Self {
        let peer = Peer::new(Relay(Helper::start()));
        let mut actor = Self { client, peer };
        actor.connect(fixture, change);
        actor
    }

    /// Connects to a node.
    #[track_caller]
    pub(crate) fn connect(&mut self, fixture: &Fixture, change: impl FnOnce(&mut ClientInfo)) {
        self.send_hello(fixture, change);
        self.peer.receive_welcome();
    }

    pub(crate) fn send_hello(&mut self, fixture: &Fixture, change: impl FnOnce(&mut ClientInfo)) {
        let socket = fixture.socket.display();
        self.helper().send(&format!("connect {socket}"));
        let role = role_with(fixture, self.client, change);
        self.peer.send(&hello(role));
    }

    pub(crate) fn register(&mut self, number: u64, name: &str, ttl: Duration) {
        let registration = registration(number, name, ttl);
        assert_eq!(self.peer.register([registration]), []);
    }

    /// Sends a registration, and kills the process.
    pub(crate) fn register_and_die(&self, registration: Registration) {
        let frame = encode(&changes(1, vec![registration])).unwrap();
        let command = format!("write-and-die {}", to_hex(&frame));
        self.helper().send(&command);
    }

    /// Registers a further process.
    pub(crate) fn add_process(&mut self, process: &Sleeper) -> Option<ToClient> {
        self.helper().send(&format!("process {}", process.pid()));
        self.peer.receive()
    }

    pub(crate) fn helper(&self) -> &Helper {
        &self.peer.stream.0
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.helper().signal(signal);
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.peer.stream.0.kill();
    }
}

/// A node in a process of its own that may open so many files.
pub(crate) fn node(fixture: &Fixture, files: u32) -> Helper {
    let limited = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &limited]);
    node_through(
        shell,
        fixture,
        &format!("unix:{}", fixture.socket.display()),
    )
}

/// A node that is started through a shell, whose script executes its own arguments.
pub(crate) fn node_through(shell: Command, fixture: &Fixture, listen: &str) -> Helper {
    let node = Helper::spawn_through(shell);
    let command = format!("node {listen} {}", fixture.redis.url());
    assert_eq!(node.request(&command), "listening");
    node
}

/// A process without a connection, which ends with the test.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
