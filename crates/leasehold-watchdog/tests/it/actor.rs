//! A process of a test's own, which it stops, kills and replaces.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{Fixture, SOON};

/// What it runs.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold-watchdog-actor");

/// A process that speaks with a node. It is killed when it is dropped.
pub(crate) struct Actor {
    process: Child,
    said: Receiver<String>,
    /// The id of its client.
    pub(crate) client: u128,
}

impl Actor {
    pub(crate) fn start() -> Self {
        Self::run(&mut Command::new(PROGRAM))
    }

    /// One that is a node, in a process of its own.
    pub(crate) fn node(fixture: &Fixture) -> Self {
        let listen = format!("unix:{}", fixture.socket.display());
        let node = Self::run(Command::new(PROGRAM).args(["node", &listen, &fixture.redis.url()]));
        assert_eq!(node.says(), "listening");
        node
    }

    /// A node that may have so many files open.
    pub(crate) fn node_with_files(fixture: &Fixture, files: u32) -> Self {
        let listen = format!("unix:{}", fixture.socket.display());
        let limited = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &limited,
            PROGRAM,
            "node",
            &listen,
            &fixture.redis.url(),
        ]);
        let node = Self::run(&mut command);
        assert_eq!(node.says(), "listening");
        node
    }

    pub(crate) fn run(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (tell, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = tell.send(line);
            }
        });
        Self {
            process,
            said,
            client: fastrand::u128(..),
        }
    }

    /// One that has said hello to the node.
    pub(crate) fn introduced(fixture: &Fixture) -> Self {
        let actor = Self::start();
        actor.says_hello(fixture, 1);
        actor
    }

    /// Says hello as a program with this process nonce.
    #[track_caller]
    pub(crate) fn says_hello(&self, fixture: &Fixture, nonce: u32) {
        let said = self.hello(fixture, self.client, nonce, &fixture.url);
        assert!(said.starts_with("Welcome"), "{said}");
    }

    pub(crate) fn hello(&self, fixture: &Fixture, client: u128, nonce: u32, store: &str) -> String {
        let socket = fixture.socket.display();
        self.asks(&format!("hello {socket} {client:x} {nonce:x} {store}"))
    }

    /// Registers a lease that it has acquired.
    #[track_caller]
    pub(crate) fn registers(&self, number: u64, name: &str, ttl: Duration) {
        let said = self.register(number, name, ttl, "-");
        assert!(said.ends_with("refused: [] }"), "{said}");
    }

    pub(crate) fn register(&self, number: u64, name: &str, ttl: Duration, keep: &str) -> String {
        let (ttl, patience) = (ttl.as_millis(), ttl.as_millis() / 3);
        self.asks(&format!("register {number} {name} {ttl} {patience} {keep}"))
    }

    /// Names a further process.
    pub(crate) fn joins(&self, pid: u32) -> String {
        self.asks(&format!("process {pid}"))
    }

    pub(crate) fn tell(&self, order: &str) {
        let mut stdin = self.process.stdin.as_ref().unwrap();
        writeln!(stdin, "{order}").unwrap();
    }

    #[track_caller]
    pub(crate) fn asks(&self, order: &str) -> String {
        self.tell(order);
        self.says()
    }

    /// The next that it says.
    #[track_caller]
    pub(crate) fn says(&self) -> String {
        self.said.recv_timeout(SOON).unwrap()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Ends it, so that nothing is left of it.
    pub(crate) fn end(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
