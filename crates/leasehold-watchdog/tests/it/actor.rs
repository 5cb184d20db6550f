//! Processes that a test stops, kills and replaces.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use leasehold_testkit::Helper;
use rustix::process::{Pid, Signal};

use crate::fixture::Fixture;

/// A helper that is a client of a node, or a node. See [`crate::helper`] for its commands.
pub(crate) struct Actor {
    helper: Helper,
    /// The number of its client.
    pub(crate) client: u128,
}

impl Actor {
    /// A client of a node.
    pub(crate) fn client(fixture: &Fixture) -> Self {
        Self::client_with(fixture, fastrand::u128(..), &fixture.url)
    }

    /// A client with a number, whose locks are in a store.
    pub(crate) fn client_with(fixture: &Fixture, client: u128, store: &str) -> Self {
        let actor = Self {
            helper: Helper::start(),
            client,
        };
        actor.expect_welcome(&actor.hello(fixture, 1, store));
        actor
    }

    /// A node that may open so many files.
    pub(crate) fn node(fixture: &Fixture, files: u32) -> Self {
        let limited = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        let mut shell = Command::new("sh");
        shell.args(["-c", &limited]);
        let listen = format!("unix:{}", fixture.socket.display());
        Self::node_through(shell, fixture, &listen)
    }

    /// A node that is started through a shell, whose script executes its own arguments.
    pub(crate) fn node_through(shell: Command, fixture: &Fixture, listen: &str) -> Self {
        let node = Self {
            helper: Helper::spawn_through(shell),
            client: 0,
        };
        let url = fixture.redis.url();
        assert_eq!(node.request(&format!("node {listen} {url}")), "listening");
        node
    }

    /// Connects to a node as a program with this process nonce.
    #[track_caller]
    pub(crate) fn connect(&self, fixture: &Fixture, nonce: u32) {
        self.expect_welcome(&self.hello(fixture, nonce, &fixture.url));
    }

    #[track_caller]
    fn expect_welcome(&self, hello: &str) {
        let reply = self.request(hello);
        assert!(reply.starts_with("Welcome"), "{reply}");
    }

    /// The command to connect to a node.
    pub(crate) fn hello(&self, fixture: &Fixture, nonce: u32, store: &str) -> String {
        let socket = fixture.socket.display();
        format!("hello {socket} {:x} {nonce:x} {store}", self.client)
    }

    /// Registers a lease.
    #[track_caller]
    pub(crate) fn register(&self, number: u64, name: &str, ttl: Duration) {
        self.register_until(number, name, ttl, "-");
    }

    /// Registers a lease that is renewed for so many milliseconds at most.
    #[track_caller]
    pub(crate) fn register_until(&self, number: u64, name: &str, ttl: Duration, keep: &str) {
        let (ttl, silence_timeout) = (ttl.as_millis(), ttl.as_millis() / 3);
        let command = format!("register {number} {name} {ttl} {silence_timeout} {keep}");
        let reply = self.request(&command);
        assert!(reply.ends_with("refused: [] }"), "{reply}");
    }

    /// Registers a further process.
    pub(crate) fn add_process(&self, pid: u32) -> String {
        self.request(&format!("process {pid}"))
    }

    pub(crate) fn send(&self, command: &str) {
        self.helper.send(command);
    }

    #[track_caller]
    pub(crate) fn request(&self, command: &str) -> String {
        self.helper.request(command)
    }

    /// The next line of its output.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.helper.reply()
    }

    pub(crate) fn pid(&self) -> Pid {
        self.helper.pid()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.helper.signal(signal);
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.helper.kill();
    }

    /// Its resident memory in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = self.proc_file("status");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let mut words = line.unwrap().split_whitespace();
        words.nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// The processor time that it has used.
    pub(crate) fn cpu_time(&self) -> Duration {
        let stat = self.proc_file("stat");
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let ticks = fields.split(' ').skip(11).take(2);
        let ticks: u32 = ticks.map(|ticks| ticks.parse::<u32>().unwrap()).sum();
        Duration::from_millis(10) * ticks
    }

    pub(crate) fn open_files(&self) -> usize {
        let pid = self.pid().as_raw_nonzero();
        fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
    }

    /// The state of its main thread.
    pub(crate) fn state(&self) -> Option<char> {
        self.helper.state()
    }

    fn proc_file(&self, name: &str) -> String {
        let pid = self.pid().as_raw_nonzero();
        fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap()
    }
}

/// A process without a connection, which a test kills.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
