//! A process of a test's own, which it stops, kills and replaces.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::bed::{Bed, SOON};

/// A process that speaks with a node. It is killed when it is dropped.
pub(crate) struct Actor {
    process: Child,
    said: Receiver<String>,
    /// The id of its client.
    pub(crate) client: u128,
}

impl Actor {
    pub(crate) fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_leasehold-watchdog-actor"))
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
    pub(crate) fn introduced(bed: &Bed) -> Self {
        let actor = Self::start();
        actor.says_hello(bed, 1);
        actor
    }

    /// Says hello as a program of this image.
    #[track_caller]
    pub(crate) fn says_hello(&self, bed: &Bed, image: u32) {
        let said = self.hello(bed, self.client, image, &bed.url);
        assert!(said.starts_with("Welcome"), "{said}");
    }

    pub(crate) fn hello(&self, bed: &Bed, client: u128, image: u32, store: &str) -> String {
        let socket = bed.socket.display();
        self.asks(&format!("hello {socket} {client:x} {image:x} {store}"))
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

    pub(crate) fn tell(&self, order: &str) {
        let mut stdin = self.process.stdin.as_ref().unwrap();
        writeln!(stdin, "{order}").unwrap();
    }

    #[track_caller]
    pub(crate) fn asks(&self, order: &str) -> String {
        self.tell(order);
        self.said.recv_timeout(SOON).unwrap()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for it, so that nothing is left of it.
    pub(crate) fn reap(&mut self) {
        self.process.wait().unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
