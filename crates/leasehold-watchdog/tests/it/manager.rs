//! A node and its service manager: sockets that were there before it, and what outlives it.
//!
//! The service manager is a stand-in that speaks the protocol of systemd over real sockets and descriptors.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use leasehold_testkit::eventually;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;

use crate::actor::{Actor, PROGRAM};
use crate::fixture::{Fixture, SOON};
use crate::raw::Raw;

const LONG: Duration = Duration::from_secs(600);

/// What starts a node, and keeps what it gives away.
struct Manager {
    listener: UnixListener,
    notify: std::path::PathBuf,
    state: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    said: Vec<String>,
    descriptors: BTreeMap<String, OwnedFd>,
}

impl Manager {
    fn of(fixture: &Fixture) -> Self {
        std::fs::create_dir_all(fixture.socket.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(&fixture.socket).unwrap();
        let notify = fixture.folder.path().join("notify");
        let socket = UnixDatagram::bind(&notify).unwrap();
        let state = Arc::<Mutex<Kept>>::default();
        let kept = Arc::clone(&state);
        std::thread::spawn(move || {
            while let Some((facts, descriptors)) = receive(&socket) {
                kept.lock().unwrap().hear(&facts, descriptors);
            }
        });
        Self {
            listener,
            notify,
            state,
        }
    }

    /// Starts a node with the socket, and with all that is kept.
    fn start(&self, fixture: &Fixture) -> Actor {
        self.state.lock().unwrap().said.clear();
        let node = {
            let state = self.state.lock().unwrap();
            let kept = state.descriptors.iter();
            let mut given = vec![("watchdog.socket", self.listener.as_fd())];
            given.extend(kept.map(|(name, descriptor)| (&**name, descriptor.as_fd())));
            let names: Vec<_> = given.iter().map(|(name, _)| *name).collect();
            let mut script = String::new();
            for ((_, descriptor), number) in given.iter().zip(3..) {
                fcntl_setfd(descriptor, FdFlags::empty()).unwrap();
                // High numbers first out of the way, so that none is overwritten before its turn.
                let (from, to) = (descriptor.as_raw_fd(), number + 500);
                script += &format!("exec {to}<&{from}\n");
            }
            for (_, number) in given.iter().zip(3..) {
                script += &format!("exec {number}<&{0} {0}<&-\n", number + 500);
            }
            script += "export LISTEN_PID=$$\nexec \"$@\"\n";
            let mut command = Command::new("bash");
            command
                .args([
                    "-c",
                    &script,
                    "bash",
                    PROGRAM,
                    "node",
                    "systemd:",
                    &fixture.redis.url(),
                ])
                .env("LISTEN_FDS", given.len().to_string())
                .env("LISTEN_FDNAMES", names.join(":"))
                .env("WATCHDOG_USEC", "200000")
                .env("NOTIFY_SOCKET", &self.notify);
            let node = Actor::run(&mut command);
            for (_, descriptor) in &given {
                fcntl_setfd(descriptor, FdFlags::CLOEXEC).unwrap();
            }
            node
        };
        assert_eq!(node.says(), "listening");
        self.hears("READY=1");
        node
    }

    fn hears(&self, fact: &str) {
        eventually(SOON, || self.has_heard(fact));
    }

    fn has_heard(&self, fact: &str) -> bool {
        let state = self.state.lock().unwrap();
        state.said.iter().any(|said| said == fact)
    }

    /// The names of what is kept, that begin so.
    fn kept(&self, prefix: &str) -> usize {
        let state = self.state.lock().unwrap();
        let names = state.descriptors.keys();
        names.filter(|name| name.starts_with(prefix)).count()
    }
}

impl Kept {
    fn hear(&mut self, facts: &str, mut descriptors: Vec<OwnedFd>) {
        let facts: Vec<_> = facts.lines().collect();
        let name = facts.iter().find_map(|fact| fact.strip_prefix("FDNAME="));
        if facts.contains(&"FDSTORE=1") {
            assert!(facts.contains(&"FDPOLL=0"), "{facts:?}");
            let kept = descriptors.pop().unwrap();
            self.descriptors.insert(name.unwrap().to_owned(), kept);
        } else if facts.contains(&"FDSTOREREMOVE=1") {
            self.descriptors.remove(name.unwrap());
        } else {
            self.said.extend(facts.into_iter().map(str::to_owned));
        }
    }
}

fn receive(socket: &UnixDatagram) -> Option<(String, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 4096];
    let mut parts = [std::io::IoSliceMut::new(&mut bytes)];
    let received = recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    let facts = String::from_utf8(bytes[..received.bytes].to_vec()).unwrap();
    Some((facts, descriptors))
}

#[tokio::test(flavor = "multi_thread")]
async fn it_says_how_it_is() {
    let fixture = Fixture::make().await;
    let manager = Manager::of(&fixture);
    let node = manager.start(&fixture);
    manager.hears("WATCHDOG=1");
    assert_eq!(manager.kept("leasehold-journal-"), 1);
    let actor = fixture.holder("lock", LONG).await;
    eventually(SOON, || manager.kept("leasehold-process-") == 1);
    actor.tell("disconnect");
    eventually(SOON, || manager.kept("leasehold-process-") == 0);
    assert!(!manager.has_heard("STOPPING=1"));
    assert_eq!(node.asks("stop"), "stopped");
    manager.hears("STOPPING=1");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dies_while_there_is_no_node_is_seen_by_the_next() {
    let fixture = Fixture::make().await;
    let manager = Manager::of(&fixture);
    let mut node = manager.start(&fixture);
    let actor = fixture.holder("lock", LONG).await;
    let mut waited_for = fixture.holder("other", LONG).await;
    let alive = fixture.holder("alive", LONG).await;
    eventually(SOON, || manager.kept("leasehold-process-") == 3);
    node.end();
    actor.signal(Signal::KILL);
    waited_for.end();
    assert!(fixture.held(actor.client, 1, "lock").await.is_some());
    let _node = manager.start(&fixture);
    fixture.is_free("lock").await;
    fixture.is_free("other").await;
    eventually(SOON, || manager.kept("leasehold-process-") == 1);
    assert!(fixture.held(alive.client, 1, "alive").await.is_some());
    alive.signal(Signal::KILL);
    fixture.is_free("alive").await;
    assert_eq!(manager.kept("leasehold-journal-"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_paused_keeps_its_locks_over_restarts() {
    let ttl = Duration::from_secs(6);
    let fixture = Fixture::make().await;
    let manager = Manager::of(&fixture);
    let mut node = manager.start(&fixture);
    let actor = fixture.holder("lock", ttl).await;
    eventually(SOON, || manager.kept("leasehold-process-") == 1);
    actor.signal(Signal::STOP);
    let start = Instant::now();
    let mut restarts = 0;
    while start.elapsed() < ttl * 2 {
        match restarts % 2 {
            0 => node.end(),
            _ => assert_eq!(node.asks("stop"), "stopped"),
        }
        restarts += 1;
        node = manager.start(&fixture);
        assert!(fixture.held(actor.client, 1, "lock").await.is_some());
        tokio::time::sleep(ttl / 10).await;
    }
    assert!(restarts >= 2, "{restarts}");
    let status = Raw::observer(&fixture).status_of(actor.client).unwrap();
    assert_eq!(status.why, "it is stopped by a signal");
    assert!(!status.connected);
    // The silence began before the first of them ended.
    assert!(Duration::from_millis(status.silent_ms) > ttl, "{status:?}");
    actor.signal(Signal::KILL);
    fixture.is_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_while_there_is_no_node_waits_for_the_next() {
    let fixture = Fixture::make().await;
    let manager = Manager::of(&fixture);
    let node = manager.start(&fixture);
    let actor = fixture.holder("lock", LONG).await;
    assert_eq!(node.asks("stop"), "stopped");
    assert_eq!(actor.asks("hear"), "Closing");
    assert_eq!(actor.asks("hear"), "closed");
    drop(node);
    let hello = format!(
        "hello {} {:x} 1 {}",
        fixture.socket.display(),
        actor.client,
        fixture.url
    );
    actor.tell(&hello);
    let _node = manager.start(&fixture);
    assert!(actor.says().starts_with("Welcome"));
    let status = Raw::observer(&fixture).status_of(actor.client).unwrap();
    assert_eq!((status.leases, status.connected), (1, true));
}
