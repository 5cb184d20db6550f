//! The sockets beside the file: made, found, shared, removed.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::SystemTime;

use leasehold::store::{Event, EventScope, Listener, WakeupMode};
use leasehold_core::Notice;
use leasehold_testkit::eventually;

use super::event_log::{Asker, wait};
use super::*;

fn bells(place: &Place) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder(place)) else {
        return Vec::new();
    };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

fn folder(place: &Place) -> PathBuf {
    place.folder.path().join("locks.db-wake")
}

/// What a process that was killed leaves.
fn leave_a_stale_bell(place: &Place, client: ClientId) -> PathBuf {
    let bell = folder(place).join(client.to_string());
    drop(UnixDatagram::bind(&bell).unwrap());
    bell
}

fn age(bell: &Path) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let since = then.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let time = rustix::fs::Timespec {
        tv_sec: since.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    let times = rustix::fs::Timestamps {
        last_access: time,
        last_modification: time,
    };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, bell, &times, flags).unwrap();
}

#[tokio::test]
async fn a_bell_hangs_as_long_as_its_client_listens() {
    let place = Place::new();
    let store = place.open().await;
    token(&*store, acquire("a", lease(1), LONG)).await;
    assert!(!folder(&place).exists(), "nobody listens");
    let (one, other) = (Asker::on(&store, 11).await, Asker::on(&store, 12).await);
    let name = |asker: &Asker| asker.client.to_string();
    assert_eq!(bells(&place), [name(&one), name(&other)]);
    store.forget(one.client);
    eventually(SOON, || bells(&place) == [name(&other)]);
    let Asker { store: last, .. } = one;
    drop((store, last, other));
    eventually(SOON, || bells(&place).is_empty());
}

#[tokio::test]
async fn bells_are_for_those_who_may_use_the_file() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (file, expected) in [(0o600, 0o700), (0o660, 0o770), (0o640, 0o750)] {
        let place = Place::new();
        fs::write(place.path(), "").unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(file)).unwrap();
        let asker = Asker::on(&place.open().await, 11).await;
        assert_eq!(mode(&folder(&place)), expected);
        let bell = folder(&place).join(asker.client.to_string());
        assert_eq!(mode(&bell), file);
    }
}

#[tokio::test]
async fn who_meets_a_stale_bell_removes_it() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&one, 12).await);
    holder.take("a", 1).await;
    let gone = LeaseId {
        client: client(21),
        number: 1,
    };
    outcome(&*other, wait("a", gone, LONG)).await;
    let bell = leave_a_stale_bell(&place, gone.client);
    assert_eq!(waiter.wait("a", 1).await, Some(1));
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
    assert!(!bell.exists());
}

#[tokio::test]
async fn stale_bells_of_clients_that_nobody_meets_are_removed_in_time() {
    let place = Place::new();
    let store = place.open().await;
    let living = Asker::on(&store, 11).await;
    let stale: Vec<_> = (100..150)
        .map(|number| leave_a_stale_bell(&place, client(number)))
        .collect();
    let (young, old) = stale.split_first().unwrap();
    for bell in old {
        age(bell);
    }
    age(&folder(&place).join(living.client.to_string()));
    let foreign = folder(&place).join("README");
    fs::write(&foreign, "not a bell").unwrap();
    for turn in 0.. {
        if old.iter().all(|bell| !bell.exists()) {
            break;
        }
        assert!(turn < 200, "{:?}", bells(&place));
        let visitor = Asker::on(&store, 12).await;
        store.forget(visitor.client);
    }
    assert!(young.exists(), "it may be about to be hung");
    assert!(foreign.exists());
    // The living one is still heard.
    let other = Asker::on(&place.open().await, 13).await;
    other.take("a", 1).await;
    assert_eq!(living.wait("a", 1).await, Some(0));
    other.release("a", 1).await;
    living.granted("a", 1).await;
}

#[tokio::test]
async fn a_bell_that_was_deleted_hangs_again_before_its_client_waits() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&other, 12).await);
    holder.take("a", 1).await;
    fs::remove_dir_all(folder(&place)).unwrap();
    assert_eq!(waiter.wait("a", 1).await, Some(0));
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
}

#[tokio::test]
async fn a_client_that_listens_anew_is_told_at_its_new_ear() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let holder = Asker::on(&one, 11).await;
    let before = Asker::on(&other, 12).await;
    let after = Asker::on(&other, 12).await;
    holder.take("a", 1).await;
    assert_eq!(after.wait("a", 1).await, Some(0));
    holder.release("a", 1).await;
    after.granted("a", 1).await;
    assert_eq!(before.take_heard(), []);
    assert_eq!(bells(&place).len(), 2);
}

/// Two programs may know the file by different names; SQLite follows links, and so do the bells.
#[tokio::test]
async fn the_file_may_be_reached_through_a_link() {
    let place = Place::new();
    let one = place.open().await;
    let link = place.folder.path().join("link.db");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    let url = format!("sqlite:{}", link.display());
    let other = store::open(&url, &OpenOptions::default()).await.unwrap();
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&other, 12).await);
    holder.take("a", 1).await;
    assert_eq!(waiter.wait("a", 1).await, Some(0));
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;

    // The link leads elsewhere now, and so do the bells.
    let elsewhere = Place::new();
    let third = elsewhere.open().await;
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
    let holder = Asker::on(&third, 13).await;
    holder.take("a", 1).await;
    assert_eq!(waiter.wait("a", 1).await, Some(0));
    assert_eq!(
        waiter.hears(1).await,
        [Event::Interrupted(EventScope::Store)]
    );
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
}

/// Root uses the file of a user. Only root can give files away, so others see nothing here.
#[tokio::test]
async fn root_does_not_shut_the_owner_of_the_file_out() {
    use std::os::unix::fs::{MetadataExt as _, chown};

    const OWNER: u32 = 1_234;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    chown(place.path(), Some(OWNER), Some(OWNER)).unwrap();
    let asker = Asker::on(&place.open().await, 11).await;
    let bell = folder(&place).join(asker.client.to_string());
    for path in [folder(&place), bell] {
        let meta = fs::metadata(path).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (OWNER, OWNER));
    }
}

/// Another user owns the folder and puts links where sockets are, as fast as it can.
struct LinkPlanter {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<usize>>,
}

impl LinkPlanter {
    fn start(folder: PathBuf, target: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut planted = 0;
            while !stopped.load(Ordering::Relaxed) {
                let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
                for entry in entries.filter(|entry| !entry.path().is_symlink()) {
                    let _ = fs::remove_file(entry.path());
                    planted += usize::from(symlink(&target, entry.path()).is_ok());
                }
            }
            planted
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Stops it, and gives how many links it has planted.
    fn finish(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for LinkPlanter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Owner and mode of the file are for the socket, not for what a link in its place leads to.
#[tokio::test]
async fn a_link_in_the_place_of_a_socket_changes_nothing_elsewhere() {
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o660)).unwrap();
    let target = place.folder.path().join("target");
    fs::write(&target, "not for others").unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o600)).unwrap();
    let store = place.open().await;
    drop(Asker::on(&store, 11).await);
    let planter = LinkPlanter::start(folder(&place), target.clone());
    for turn in 0..1_000 {
        let client = client((turn % 100) as u8 + 100);
        let event_log: Arc<dyn Listener> = Arc::new(SlowEar::deaf());
        store.listen(&space("main"), client, Arc::downgrade(&event_log));
        outcome(&*store, renew("nothing", lease(0), LONG)).await;
        store.forget(client);
        let mode = fs::metadata(&target).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "after {turn} sockets");
    }
    assert!(planter.finish() > 0, "it never saw a socket");
}

#[tokio::test]
async fn a_link_in_the_place_of_the_folder_is_refused() {
    let place = Place::new();
    let store = place.open().await;
    let elsewhere = TempDir::new().unwrap();
    symlink(elsewhere.path(), folder(&place)).unwrap();
    let poor = Asker::on(&store, 11).await;
    assert_eq!(store.capabilities().wakeup, WakeupMode::Nothing);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    poor.take("a", 1).await;
    assert_eq!(poor.wait("a", 2).await, None);
}

/// The link may lead to the socket of another program, which takes notices for something else.
#[tokio::test]
async fn a_notice_does_not_follow_a_link() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&one, 12).await);
    holder.take("a", 1).await;
    let linked = LeaseId {
        client: client(21),
        number: 1,
    };
    outcome(&*other, wait("a", linked, LONG)).await;
    let elsewhere = place.folder.path().join("elsewhere");
    let stranger = UnixDatagram::bind(&elsewhere).unwrap();
    stranger.set_nonblocking(true).unwrap();
    symlink(&elsewhere, folder(&place).join(linked.client.to_string())).unwrap();
    assert_eq!(waiter.wait("a", 1).await, Some(1));
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
    assert!(stranger.recv(&mut [0; 16]).is_err(), "a notice went there");
}

/// Hears slowly: each event only when the test lets it.
#[derive(Debug)]
struct SlowEar {
    heard: mpsc::SyncSender<Event>,
}

impl SlowEar {
    /// Nobody takes what it hears.
    fn deaf() -> Self {
        let (heard, _) = mpsc::sync_channel(0);
        Self { heard }
    }
}

impl Listener for SlowEar {
    fn notify(&self, event: Event) {
        // If the test has seen enough, nothing more matters.
        let _ = self.heard.send(event);
    }
}

/// A notice is lost where too many wait to be heard already. Then its client is told that there may
/// have been some.
#[tokio::test]
async fn who_is_too_slow_to_hear_everything_is_told_so() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let (holder, me) = (Asker::on(&one, 11).await, client(12));
    let (heard, events) = mpsc::sync_channel(0);
    let event_log: Arc<dyn Listener> = Arc::new(SlowEar { heard });
    other.listen(&space("main"), me, Arc::downgrade(&event_log));
    let names: Vec<_> = (0..100).map(|number| format!("n{number}")).collect();
    for (number, name) in (0..).zip(&names) {
        holder.take(name, number).await;
        let lease = LeaseId { client: me, number };
        let (refused, _) = outcome(&*other, wait(name, lease, LONG)).await;
        assert!(matches!(
            refused,
            Outcome::Refused {
                queue_position: Some(0),
                ..
            }
        ));
    }
    // Nobody waits for the slow one.
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
    let place = Place::new();
    let deep = ["a".repeat(200), "b".repeat(200)];
    let path = place.folder.path().join(deep.join("/")).join("locks.db");
    let url = format!("sqlite:{}", path.display());
    let open = async || store::open(&url, &OpenOptions::default()).await.unwrap();
    let (one, other) = (open().await, open().await);
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&other, 12).await);
    assert_eq!(other.capabilities().wakeup, WakeupMode::Grants);
    holder.take("a", 1).await;
    assert_eq!(waiter.wait("a", 1).await, Some(0));
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
}

/// Something is in the way. The store does without a queue for its own clients, and says so; those
/// of others are served.
#[tokio::test]
async fn without_sockets_nobody_waits_in_the_queue() {
    let place = Place::new();
    let store = place.open().await;
    fs::write(folder(&place), "").unwrap();
    let poor = Asker::on(&store, 11).await;
    assert_eq!(store.capabilities().wakeup, WakeupMode::Nothing);
    poor.take("a", 1).await;
    assert_eq!(poor.wait("a", 2).await, None);
    assert_eq!(place.count("waiters"), 0);

    // It is tried again when somebody else comes.
    fs::remove_file(folder(&place)).unwrap();
    let rich = Asker::on(&store, 12).await;
    assert_eq!(store.capabilities().wakeup, WakeupMode::Grants);
    assert_eq!(poor.wait("a", 2).await, Some(0));
    assert_eq!(rich.wait("a", 1).await, Some(1));
    poor.release("a", 1).await;
    poor.granted("a", 2).await;
}

/// Whatever comes to a bell, it goes on to be heard.
#[tokio::test]
async fn nonsense_at_a_bell_is_nobodys_news() {
    let place = Place::new();
    let (one, other) = (place.open().await, place.open().await);
    let (holder, waiter) = (Asker::on(&one, 11).await, Asker::on(&other, 12).await);
    let bell = folder(&place).join(waiter.client.to_string());
    let stranger = UnixDatagram::unbound().unwrap();
    let noise: Vec<u8> = (0..5_000).map(|_| fastrand::u8(..)).collect();
    for letter in [&[][..], &[0], &[1, 1], &[2, 3, 4], &noise] {
        stranger.send_to(letter, &bell).unwrap();
    }
    holder.take("a", 1).await;
    assert_eq!(waiter.wait("a", 1).await, Some(0));
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
}
