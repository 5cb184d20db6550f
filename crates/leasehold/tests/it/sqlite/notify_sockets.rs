//! The notify sockets beside the file.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::mpsc;

use leasehold::__private::store::{Event, EventScope, Listener, WakeupMode};
use leasehold_core::{ClientId, Notice, Slot};
use leasehold_testkit::eventually;

use super::*;
use crate::store_ext::StoreExt as _;

fn sockets(fixture: &FileFixture) -> Vec<String> {
    names_in(&directory(fixture))
}

fn directory(fixture: &FileFixture) -> PathBuf {
    fixture.directory.path().join("locks.db-wake")
}

fn socket_of(fixture: &FileFixture, client: ClientId) -> PathBuf {
    directory(fixture).join(client.to_string())
}

/// Creates the socket of a killed process.
fn stale_socket(socket: &Path) {
    drop(UnixDatagram::bind(socket).unwrap());
}

#[tokio::test]
async fn a_socket_exists_as_long_as_its_client_listens() {
    let (fixture, store) = FileFixture::opened().await;
    granted(&*store, acquire("a", 1)).await;
    assert!(!directory(&fixture).exists(), "no client listens");
    let one = StoreClient::listening(&store, 11).await;
    let other = StoreClient::listening(&store, 12).await;
    let name = |client: &StoreClient| client.id.to_string();
    assert_eq!(sockets(&fixture), [name(&one), name(&other)]);
    one.unsubscribe();
    eventually(SOON, || sockets(&fixture) == [name(&other)]);
    let StoreClient { store: last, .. } = one;
    drop((store, last, other));
    eventually(SOON, || sockets(&fixture).is_empty());
}

/// An empty file that somebody has created keeps its permissions.
#[tokio::test]
async fn sockets_have_the_permissions_of_the_file() {
    for (file, expected) in [(0o600, 0o700), (0o660, 0o770), (0o640, 0o750)] {
        let fixture = FileFixture::new();
        create(&fixture.path(), file);
        let client = StoreClient::listening(&fixture.open().await, 11).await;
        assert_eq!(mode(&fixture.path()), file);
        assert_eq!(mode(&directory(&fixture)), expected);
        let socket = socket_of(&fixture, client.id);
        assert_eq!(mode(&socket), file);
    }
}

/// A lock passes over a waiter with this in the place of its socket, which is returned.
async fn passes_over(fixture: &FileFixture, replace: impl FnOnce(&Path)) -> PathBuf {
    let [holder, waiter] = fixture.two_clients().await;
    let dead = StoreClient::silent(&waiter.store, 21);
    holder.acquire("a", 1).await;
    dead.wait("a", 1).await;
    let socket = socket_of(fixture, dead.id);
    replace(&socket);
    assert_eq!(waiter.wait("a", 1).await, 1);
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
    socket
}

#[tokio::test]
async fn a_stale_socket_is_removed_when_it_is_found() {
    let fixture = FileFixture::new();
    let socket = passes_over(&fixture, stale_socket).await;
    assert!(!socket.exists());
}

/// The link may lead to the socket of another program, which takes notices for something else.
#[tokio::test]
async fn a_notice_does_not_follow_a_link() {
    let fixture = FileFixture::new();
    let elsewhere = fixture.directory.path().join("elsewhere");
    let stranger = UnixDatagram::bind(&elsewhere).unwrap();
    stranger.set_nonblocking(true).unwrap();
    passes_over(&fixture, |socket| symlink(&elsewhere, socket).unwrap()).await;
    assert!(stranger.recv(&mut [0; 16]).is_err());
}

#[tokio::test]
async fn old_stale_sockets_are_removed() {
    let (fixture, store) = FileFixture::opened().await;
    let living = StoreClient::listening(&store, 11).await;
    let stale = [100, 101, 102, 103, 104].map(|number| socket_of(&fixture, client_id(number)));
    stale.iter().for_each(|socket| stale_socket(socket));
    let (young, old) = stale.split_first().unwrap();
    let mut aged = Command::new("touch");
    aged.args(["--no-dereference", "--date=2023-01-01"])
        .args(old)
        .arg(socket_of(&fixture, living.id));
    assert!(aged.status().unwrap().success());
    let foreign = directory(&fixture).join("README");
    fs::write(&foreign, "not a socket").unwrap();
    for turn in 0.. {
        if old.iter().all(|socket| !socket.exists()) {
            break;
        }
        assert!(turn < 200, "{:?}", sockets(&fixture));
        let visitor = StoreClient::listening(&store, 12).await;
        visitor.unsubscribe();
    }
    assert!(young.exists(), "its process may be about to bind it");
    assert!(foreign.exists());
    // The living client is still notified.
    let other = StoreClient::listening(&fixture.open().await, 13).await;
    passes_on(&other, &living, "a").await;
}

#[tokio::test]
async fn a_deleted_socket_is_created_again_before_its_client_waits() {
    let fixture = FileFixture::new();
    let [holder, waiter] = fixture.two_clients().await;
    holder.acquire("a", 1).await;
    fs::remove_dir_all(directory(&fixture)).unwrap();
    assert_eq!(waiter.wait("a", 1).await, 0);
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
}

#[tokio::test]
async fn a_client_that_subscribes_again_is_notified_at_its_new_listener() {
    let fixture = FileFixture::new();
    let (one, other) = (fixture.open().await, fixture.open().await);
    let holder = StoreClient::listening(&one, 11).await;
    let before = StoreClient::listening(&other, 12).await;
    let after = StoreClient::listening(&other, 12).await;
    holder.acquire("a", 1).await;
    assert_eq!(after.wait("a", 1).await, 0);
    holder.release("a", 1).await;
    after.granted("a", 1).await;
    assert_eq!(before.events(), []);
    assert_eq!(sockets(&fixture).len(), 2);
}

/// SQLite follows links, and so do the sockets.
#[tokio::test]
async fn the_file_may_be_reached_through_a_link() {
    let fixture = FileFixture::new();
    let link = fixture.directory.path().join("link.db");
    symlink(fixture.path(), &link).unwrap();
    let linked = format!("sqlite:{}", link.display());
    let [holder, waiter] = StoreClient::two_listening([&fixture.url(), &linked]).await;
    passes_on(&holder, &waiter, "a").await;

    // The link leads elsewhere now, and so do the sockets.
    let elsewhere = FileFixture::new();
    let third = elsewhere.open().await;
    fs::remove_file(&link).unwrap();
    symlink(elsewhere.path(), &link).unwrap();
    let holder = StoreClient::listening(&third, 13).await;
    holder.acquire("a", 1).await;
    assert_eq!(waiter.wait("a", 1).await, 0);
    let interrupted = [Event::Interrupted(EventScope::Store)];
    assert_eq!(waiter.next_events(1).await, interrupted);
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
}

/// Root uses the file of a user. Only root can give files away, so others see nothing here.
#[tokio::test]
async fn root_creates_sockets_for_the_owner_of_the_file() {
    use std::os::unix::fs::{MetadataExt as _, chown};

    const OWNER: u32 = 1_234;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let fixture = FileFixture::new();
    fs::write(fixture.path(), "").unwrap();
    chown(fixture.path(), Some(OWNER), Some(OWNER)).unwrap();
    let client = StoreClient::listening(&fixture.open().await, 11).await;
    let socket = socket_of(&fixture, client.id);
    for path in [directory(&fixture), socket] {
        let meta = fs::metadata(path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (OWNER, OWNER));
    }
}

/// Another user owns the directory, and replaces sockets by links all the time. Owner and mode of the file are for the
/// socket, not for what such a link leads to.
#[tokio::test]
async fn a_link_in_the_place_of_a_socket_changes_nothing_elsewhere() {
    let fixture = FileFixture::new();
    create(&fixture.path(), 0o660);
    let target = fixture.directory.path().join("target");
    create(&target, 0o600);
    let store = fixture.open().await;
    let living = StoreClient::listening(&store, 11).await;
    let (directory, link) = (directory(&fixture), target.clone());
    let ended = Arc::downgrade(&living.event_log);
    let planter = std::thread::spawn(move || {
        let mut planted = 0;
        while ended.strong_count() > 0 {
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            for entry in entries.filter(|entry| !entry.path().is_symlink()) {
                let _ = fs::remove_file(entry.path());
                planted += usize::from(symlink(&link, entry.path()).is_ok());
            }
        }
        planted
    });
    for turn in 0..1_000 {
        let client = StoreClient::listening(&store, (turn % 100) as u8 + 100).await;
        client.unsubscribe();
        assert_eq!(mode(&target), 0o600, "after {turn} sockets");
    }
    drop(living);
    assert!(planter.join().unwrap() > 0, "it never found a socket");
}

/// A listener that takes an event only when the test receives it.
#[derive(Debug)]
struct SlowListener(mpsc::SyncSender<Event>);

impl Listener for SlowListener {
    fn notify(&self, event: Event) {
        // The test may have ended.
        let _ = self.0.send(event);
    }
}

/// A notice beyond the limit is dropped. Its client is then notified of an interruption.
#[tokio::test]
async fn a_slow_listener_is_notified_of_lost_notices() {
    let fixture = FileFixture::new();
    let [holder, other] = fixture.two_clients().await;
    let slow = StoreClient::silent(&other.store, 21);
    let (sender, events) = mpsc::sync_channel(0);
    let listener: Arc<dyn Listener> = Arc::new(SlowListener(sender));
    let to = Arc::downgrade(&listener);
    let _listening = slow.store.listen(&space(), slow.id, to);
    // More than a socket has room for: 10 messages, or 512 where systemd runs.
    let limit = fs::read_to_string("/proc/sys/net/unix/max_dgram_qlen").unwrap();
    let count = limit.trim().parse::<usize>().unwrap() + 20;
    let names: Vec<_> = (0..count).map(|number| format!("n{number}")).collect();
    for (number, name) in (0..).zip(&names) {
        holder.acquire(name, number).await;
        assert_eq!(slow.wait(name, number).await, 0);
    }
    // The releases do not wait for the slow listener.
    for (number, name) in (0..).zip(&names) {
        holder.release(name, number).await;
    }
    let mut granted = 0;
    loop {
        match events.recv_timeout(SOON).unwrap() {
            Event::Notice(_, Notice::Granted(_)) => granted += 1,
            Event::Interrupted(_) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(granted < names.len(), "{granted}");
}

/// The address of a socket has room for 108 bytes.
#[tokio::test]
async fn the_path_of_the_file_may_be_long() {
    let fixture = FileFixture::new();
    let path = ["a".repeat(200), "b".repeat(200)].join("/");
    let directory = fixture.directory.path().join(path);
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("locks.db");
    let url = format!("sqlite:{}", path.display());
    let [holder, waiter] = StoreClient::two_listening([&url, &url]).await;
    assert_eq!(waiter.store.capabilities().wakeup, WakeupMode::Grants);
    passes_on(&holder, &waiter, "a").await;
}

/// Another file is in the place of the directory, or a link.
#[tokio::test]
async fn without_sockets_no_client_joins_the_queue() {
    for link in [false, true] {
        let fixture = FileFixture::new();
        let store = fixture.open().await;
        let elsewhere = TempDir::new().unwrap();
        match link {
            true => symlink(elsewhere.path(), directory(&fixture)).unwrap(),
            false => fs::write(directory(&fixture), "").unwrap(),
        }
        let without = StoreClient::listening(&store, 11).await;
        assert_eq!(store.capabilities().wakeup, WakeupMode::Nothing);
        assert_eq!(names_in(elsewhere.path()), [""; 0]);
        without.acquire("a", 1).await;
        without.is_not_queued(wait("a", 2)).await;
        assert_eq!(fixture.count("members"), 0);
        // An observer polls.
        let observation = store.observe(&key("a"), &Slot::Value).await;
        let observation = observation.unwrap();
        let holder = observation.holder.map(|(holder, _)| holder);
        assert_eq!(holder, Some(without.lease(1)));
        assert!(observation.changed.is_none());
        assert_eq!(fixture.count("members WHERE class = 6"), 0);

        // It is tried again with the next client.
        fs::remove_file(directory(&fixture)).unwrap();
        let with = StoreClient::listening(&store, 12).await;
        assert_eq!(store.capabilities().wakeup, WakeupMode::Grants);
        assert_eq!(without.wait("a", 2).await, 0);
        assert_eq!(with.wait("a", 1).await, 1);
        without.release("a", 1).await;
        without.granted("a", 2).await;
    }
}

#[tokio::test]
async fn invalid_messages_at_a_socket_are_ignored() {
    let fixture = FileFixture::new();
    let [holder, waiter] = fixture.two_clients().await;
    let socket = socket_of(&fixture, waiter.id);
    let stranger = UnixDatagram::unbound().unwrap();
    let noise: Vec<u8> = (0..5_000).map(|_| fastrand::u8(..)).collect();
    for message in [&[][..], &[0], &[1, 1], &[1, 5, 1], &[2, 3, 4], &noise] {
        stranger.send_to(message, &socket).unwrap();
    }
    passes_on(&holder, &waiter, "a").await;
}
