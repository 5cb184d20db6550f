//! A node and its service manager, which opens its socket and keeps its state for the next node.
//!
//! The service manager is a fake that speaks the protocol of systemd over real sockets and descriptors.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use leasehold::__private::wire::ToClient;
use leasehold_testkit::{Helper, eventually};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;

use crate::actor;
use crate::fixture::{Fixture, LONG, SOON};
use crate::peer::Peer;

/// A service manager.
struct Manager {
    listener: UnixListener,
    notify: std::path::PathBuf,
    state: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    notifications: Vec<String>,
    descriptors: BTreeMap<String, OwnedFd>,
}

impl Manager {
    fn of(fixture: &Fixture) -> Self {
        std::fs::create_dir_all(fixture.socket.parent().unwrap()).unwrap();
        let listener = UnixListener::bind(&fixture.socket).unwrap();
        let notify = fixture.directory.path().join("notify");
        let socket = UnixDatagram::bind(&notify).unwrap();
        let state = Arc::<Mutex<Kept>>::default();
        let kept = Arc::clone(&state);
        std::thread::spawn(move || {
            while let Some((assignments, descriptors)) = receive(&socket) {
                kept.lock().unwrap().handle(&assignments, descriptors);
            }
        });
        Self {
            listener,
            notify,
            state,
        }
    }

    /// Starts a node with the socket and all kept descriptors.
    fn start(&self, fixture: &Fixture) -> Helper {
        self.handle_pending();
        self.state.lock().unwrap().notifications.clear();
        let node = {
            let state = self.state.lock().unwrap();
            let kept = state.descriptors.iter();
            let mut inherited = vec![("watchdog.socket", self.listener.as_fd())];
            inherited.extend(kept.map(|(name, descriptor)| (&**name, descriptor.as_fd())));
            let names: Vec<_> = inherited.iter().map(|(name, _)| *name).collect();
            let mut script = String::new();
            for ((_, descriptor), number) in inherited.iter().zip(3..) {
                fcntl_setfd(descriptor, FdFlags::empty()).unwrap();
                // High numbers first out of the way, so that none is overwritten before its turn.
                let (from, to) = (descriptor.as_raw_fd(), number + 500);
                script += &format!("exec {to}<&{from}\n");
            }
            for (_, number) in inherited.iter().zip(3..) {
                script += &format!("exec {number}<&{0} {0}<&-\n", number + 500);
            }
            script += "export LISTEN_PID=$$\nexec \"$@\"\n";
            let mut command = Command::new("bash");
            command
                .args(["-c", &script, "bash"])
                .env("LISTEN_FDS", inherited.len().to_string())
                .env("LISTEN_FDNAMES", names.join(":"))
                .env("WATCHDOG_USEC", "200000")
                .env("NOTIFY_SOCKET", &self.notify);
            let node = actor::node_through(command, fixture, "systemd:");
            for (_, descriptor) in &inherited {
                fcntl_setfd(descriptor, FdFlags::CLOEXEC).unwrap();
            }
            node
        };
        self.wait_for("READY=1");
        node
    }

    /// Handles the notifications that were sent, as systemd does before it starts a service again.
    fn handle_pending(&self) {
        let socket = UnixDatagram::unbound().unwrap();
        socket.send_to(b"LAST=1", &self.notify).unwrap();
        self.wait_for("LAST=1");
    }

    fn wait_for(&self, notification: &str) {
        eventually(SOON, || self.has_received(notification));
    }

    fn has_received(&self, notification: &str) -> bool {
        let state = self.state.lock().unwrap();
        state.notifications.iter().any(|it| it == notification)
    }

    /// The number of kept descriptors whose names begin so.
    fn kept(&self, prefix: &str) -> usize {
        let state = self.state.lock().unwrap();
        let names = state.descriptors.keys();
        names.filter(|name| name.starts_with(prefix)).count()
    }
}

impl Kept {
    fn handle(&mut self, assignments: &str, mut descriptors: Vec<OwnedFd>) {
        let assignments: Vec<_> = assignments.lines().collect();
        let name = assignments.iter().find_map(|it| it.strip_prefix("FDNAME="));
        if assignments.contains(&"FDSTORE=1") {
            assert!(assignments.contains(&"FDPOLL=0"), "{assignments:?}");
            let kept = descriptors.pop().unwrap();
            self.descriptors.insert(name.unwrap().to_owned(), kept);
        } else if assignments.contains(&"FDSTOREREMOVE=1") {
            self.descriptors.remove(name.unwrap());
        } else {
            self.notifications
                .extend(assignments.into_iter().map(str::to_owned));
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
    let assignments = String::from_utf8(bytes[..received.bytes].to_vec()).unwrap();
    Some((assignments, descriptors))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_manager_is_notified_and_keeps_descriptors() {
    let fixture = Fixture::new().await;
    let manager = Manager::of(&fixture);
    let node = manager.start(&fixture);
    manager.wait_for("WATCHDOG=1");
    assert_eq!(manager.kept("leasehold-journal-"), 1);
    let mut actor = fixture.holder("lock", LONG).await;
    eventually(SOON, || manager.kept("leasehold-process-") == 1);
    actor.peer.disconnect();
    eventually(SOON, || manager.kept("leasehold-process-") == 0);
    assert!(!manager.has_received("STOPPING=1"));
    assert_eq!(node.request("stop"), "stopped");
    manager.wait_for("STOPPING=1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_between_two_nodes_is_noticed_by_the_next() {
    let fixture = Fixture::new().await;
    let manager = Manager::of(&fixture);
    let mut node = manager.start(&fixture);
    let actor = fixture.holder("lock", LONG).await;
    let mut reaped = fixture.holder("other", LONG).await;
    let alive = fixture.holder("alive", LONG).await;
    eventually(SOON, || manager.kept("leasehold-process-") == 3);
    node.kill();
    actor.signal(Signal::KILL);
    reaped.kill();
    assert!(fixture.is_held(actor.client, 1, "lock").await);
    let _node = manager.start(&fixture);
    fixture.wait_until_free("lock").await;
    fixture.wait_until_free("other").await;
    eventually(SOON, || manager.kept("leasehold-process-") == 1);
    assert!(fixture.is_held(alive.client, 1, "alive").await);
    alive.signal(Signal::KILL);
    fixture.wait_until_free("alive").await;
    assert_eq!(manager.kept("leasehold-journal-"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_client_keeps_its_locks_over_restarts() {
    let fixture = Fixture::new().await;
    let manager = Manager::of(&fixture);
    let mut node = manager.start(&fixture);
    let actor = fixture.holder("lock", LONG).await;
    eventually(SOON, || manager.kept("leasehold-process-") == 1);
    actor.signal(Signal::STOP);
    let mut second_start = None;
    for restart in 0..6 {
        match restart % 2 {
            0 => node.kill(),
            _ => assert_eq!(node.request("stop"), "stopped"),
        }
        let end = fixture.lease_end("lock");
        node = manager.start(&fixture);
        second_start.get_or_insert_with(Instant::now);
        eventually(SOON, || fixture.lease_end("lock") > end);
        assert!(fixture.is_held(actor.client, 1, "lock").await);
    }
    let paused = second_start.unwrap().elapsed();
    let status = Peer::observer(&fixture).status_of(actor.client).unwrap();
    assert_eq!(status.reason, "it is stopped by a signal");
    assert!(!status.connected);
    // The first node had not noticed the silence yet, and every later one knows that it had begun before the second.
    let silence = LONG / 3 + paused;
    assert!(
        u128::from(status.silent_ms) >= silence.as_millis(),
        "{status:?}, {paused:?}"
    );
    actor.signal(Signal::KILL);
    fixture.wait_until_free("lock").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_connects_between_two_nodes_is_served_by_the_next() {
    let fixture = Fixture::new().await;
    let manager = Manager::of(&fixture);
    let node = manager.start(&fixture);
    let mut actor = fixture.holder("lock", LONG).await;
    assert_eq!(node.request("stop"), "stopped");
    assert_eq!(actor.peer.receive(), Some(ToClient::Closing));
    assert_eq!(actor.peer.receive(), None);
    drop(node);
    actor.send_hello(&fixture, |_| {});
    let _node = manager.start(&fixture);
    actor.peer.receive_welcome();
    let status = Peer::observer(&fixture).status_of(actor.client).unwrap();
    assert_eq!((status.leases, status.connected), (1, true));
}
