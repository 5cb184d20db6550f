//! A process that forks while it holds locks: the child has a copy of everything, and none of it is its own.

// The only way to fork.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use leasehold::__private::store::{OpenOptions, Store};
use leasehold::{Cause, Client, ErrorKind, StateKind, blocking};
use leasehold_testkit::eventually;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use tokio::runtime::{Builder, Runtime};

use super::child::run;
use crate::fixture::{Fixture, fresh_name};
use crate::recording_store::RecordingStore;
use crate::sqlite::names_in;
use crate::store_client::{assert_error, open_with};

/// How long a child may take to end.
const TIMEOUT: Duration = Duration::from_secs(20);

/// SQLite keeps what locks a process has in memory. A fork has a copy of that, and not the locks: others would
/// delete the log that it writes to.
fn a_forked_child_connects_anew_if_its_parent_has_not_the_file_open(fixture: &Fixture) {
    let url = fixture.url().expect("a store that processes share");
    run(&format!("connect {url}"));
}

fn a_forked_child_leaves_the_locks_to_its_parent(fixture: &Fixture) {
    let url = fixture.url().expect("a store that processes share");
    for way in ["drops", "exits", "blocking-drops", "blocking-exits"] {
        run(&format!("fork {url} {} {way}", fresh_name("fork")));
    }
}

over_shared_stores! {
    a_forked_child_connects_anew_if_its_parent_has_not_the_file_open,
    a_forked_child_leaves_the_locks_to_its_parent,
}

/// In a helper: forks with locks held. The child ends in the given way.
pub(super) fn fork_with_locks(url: &str, name: &str, way: &str) {
    match way.strip_prefix("blocking-") {
        Some(way) => fork_blocking(url, name, way),
        None => fork_async(url, name, way),
    }
}

/// Forks with a lock held and another waited for, on a runtime of the caller's.
fn fork_async(url: &str, name: &str, way: &str) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let others = Runtime::new().unwrap();
    let (held, waited_for) = others.block_on(async {
        let other = Client::connect(url).await.unwrap();
        let waited_for = other.mutex(format!("{name}/waited-for")).unwrap();
        (other.mutex(name).unwrap(), waited_for.lock().await.unwrap())
    });
    let mut own = Some(runtime.block_on(async {
        // With the default response timeout: a renewal without a reply shows that the child has broken the connection.
        let recorder = RecordingStore::on(open_with(url, OpenOptions::default()).await);
        let store = Arc::clone(&recorder) as Arc<dyn Store>;
        let client = Client::builder().build(store).unwrap();
        let mutex = client.mutex(name).unwrap();
        let guard = mutex.lock().await.unwrap();
        let waits = client.mutex(waited_for.name()).unwrap();
        let mut waiter = Box::pin(async move { waits.lock().await.unwrap() });
        tokio::select! {
            _ = waiter.as_mut() => unreachable!("another holds it"),
            () = recorder.until_queued(1) => {}
        }
        (waiter, guard, mutex, client)
    }));
    let mut runtime = Some(runtime);
    let sockets = sockets(url);
    let child = in_child(|| {
        let (waiter, guard, mutex, client) = own.take().unwrap();
        assert_eq!(guard.state().kind(), StateKind::Lost(Cause::OtherProcess));
        assert!(now(guard.ensure(Duration::ZERO)).is_err());
        let refused = [
            now(mutex.lock()).err(),
            now(mutex.try_lock()).err(),
            now(mutex.inspect()).err(),
            now(mutex.revoke()).err(),
            now(client.locks()).err(),
        ];
        for error in refused {
            assert_is_of_other_process(&error.unwrap());
        }
        if way == "drops" {
            drop((waiter, guard, mutex, client));
            drop(runtime.take());
        } else {
            let lost = now(guard.release()).unwrap_err();
            assert_eq!(lost.kind(), ErrorKind::Lost, "{lost}");
        }
    });
    ends_well(child);
    let ((waiter, guard, ..), runtime) = (own.unwrap(), runtime.unwrap());
    assert!(!guard.state().is_lost());
    assert_eq!(self::sockets(url), sockets);
    others.block_on(async {
        assert!(held.try_lock().await.unwrap().is_none());
        waited_for.release().await.unwrap();
    });
    runtime.block_on(async {
        let waited = tokio::time::timeout(TIMEOUT, waiter).await.unwrap();
        drop(waited);
        // A copy of the runtime that ends takes its connections out of what the parent polls.
        let released = guard.release().await;
        assert!(released.is_ok() || way == "drops", "{released:?}");
    });
}

/// Forks with a lock of a blocking client held.
fn fork_blocking(url: &str, name: &str, way: &str) {
    let mut own = Some({
        let client = blocking::Client::connect(url).unwrap();
        let mutex = client.mutex(name).unwrap();
        let guard = mutex.lock().unwrap();
        (guard, mutex, client)
    });
    let child = in_child(|| {
        let (guard, mutex, client) = own.take().unwrap();
        assert_eq!(guard.state().kind(), StateKind::Lost(Cause::OtherProcess));
        assert_is_of_other_process(&mutex.lock().unwrap_err());
        assert_is_of_other_process(&client.block_on(client.locks()).unwrap_err());
        if way == "drops" {
            drop((guard, mutex, client));
        } else {
            assert_is_of_other_process(&guard.release().unwrap_err());
        }
    });
    ends_well(child);
    let (guard, ..) = own.unwrap();
    assert!(!guard.state().is_lost());
    let other = blocking::Client::connect(url).unwrap();
    assert!(other.mutex(name).unwrap().try_lock().unwrap().is_none());
    guard.release().unwrap();
}

/// In a helper: connects in a fork, while the parent is connected and after it has left.
pub(super) fn fork_and_connect(url: &str) {
    let name = fresh_name("fork");
    let lock = || {
        let client = blocking::Client::connect(url)?;
        client.mutex(&name)?.lock()?.release()
    };
    let client = blocking::Client::connect(url).unwrap();
    ends_well(in_child(|| {
        let locked = lock();
        if url.starts_with("sqlite:") {
            let error = locked.unwrap_err();
            assert_error(&error, ErrorKind::Unsupported, &["fork"]);
        } else {
            locked.unwrap();
        }
    }));
    drop(client);
    // The file is closed by its thread, a moment later.
    eventually(TIMEOUT, || {
        let child = in_child(|| lock().unwrap());
        waitpid(child, None).unwrap() == WaitStatus::Exited(child, 0)
    });
    #[cfg(target_os = "linux")]
    if let Some(file) = url.strip_prefix("sqlite:") {
        assert_lock_the_file_each(url, Path::new(file));
    }
}

/// A process and its fork, which both open a file anew, do not share the lock that shows that they live.
#[cfg(target_os = "linux")]
fn assert_lock_the_file_each(url: &str, file: &Path) {
    use std::os::unix::fs::MetadataExt as _;

    let inode = format!(":{} ", std::fs::metadata(file).unwrap().ino());
    let locks = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let of_file = |line: &&str| line.contains(" FLOCK ") && line.contains(&inode);
        locks.lines().filter(of_file).count()
    };
    eventually(TIMEOUT, || locks() == 0);
    let child = in_child(|| {
        let _client = blocking::Client::connect(url).unwrap();
        std::thread::sleep(TIMEOUT * 2);
    });
    eventually(TIMEOUT, || locks() == 1);
    let client = blocking::Client::connect(url).unwrap();
    let both = locks();
    let pid = rustix::process::Pid::from_raw(child.as_raw()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    waitpid(child, None).unwrap();
    assert_eq!(both, 2);
    drop(client);
}

/// Does something in a forked child, which then ends. Returns its process id.
fn in_child(work: impl FnOnce()) -> Pid {
    // SAFETY: only this thread lives on in the child. What it calls there may wait for a mutex that another
    // thread had at that moment, which the deadline of `ends_well` finds; the system's allocator is safe.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let done = catch_unwind(AssertUnwindSafe(work));
            std::process::exit(i32::from(done.is_err()));
        }
    }
}

/// Waits until a child has ended as it should.
fn ends_well(child: Pid) {
    eventually(TIMEOUT, || {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
            WaitStatus::StillAlive => false,
            status => {
                assert_eq!(status, WaitStatus::Exited(child, 0));
                true
            }
        }
    });
}

/// The output of a future without a runtime.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("it waits")
}

fn assert_is_of_other_process(error: &leasehold::Error) {
    assert_error(error, ErrorKind::Unsupported, &["connect anew"]);
}

/// The notify sockets beside a file.
fn sockets(url: &str) -> Vec<String> {
    let Some(file) = url.strip_prefix("sqlite:") else {
        return Vec::new();
    };
    let sockets = names_in(Path::new(&format!("{file}-wake")));
    assert!(!sockets.is_empty());
    sockets
}
