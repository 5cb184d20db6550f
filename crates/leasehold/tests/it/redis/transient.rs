//! A server that refuses for a while is waited for; one that refuses for good is not.

use leasehold::{Client, ErrorKind, Guard, Mutex};
use leasehold_testkit::{RedisServer, eventually, eventually_async, fill_connections};
use tokio::task::JoinHandle;

use super::*;

/// Longer than anything here takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

async fn mutex(server: &RedisServer) -> Mutex {
    let client = Client::builder().ttl(LONG).connect(&server.url()).await;
    client.unwrap().mutex("a").unwrap()
}

/// Waits for a lock, and has been refused once for this reason.
async fn refused_waiter(mutex: &Mutex, reason: &str) -> JoinHandle<Result<Guard, Error>> {
    let wanted = mutex.clone();
    let waiter = tokio::spawn(async move { wanted.lock().await });
    let mut said = None;
    eventually_async(LONG, async || {
        assert!(!waiter.is_finished(), "the wait has ended");
        said = mutex.last_error();
        said.is_some()
    })
    .await;
    let error = said.unwrap();
    assert!(error.to_string().contains(reason), "{error}");
    assert!(
        error.is_transient() && error.retry_after().is_none(),
        "{error}"
    );
    waiter
}

async fn granted(waiter: JoinHandle<Result<Guard, Error>>) {
    let guard = tokio::time::timeout(LONG, waiter).await.expect("in time");
    guard.unwrap().unwrap().release().await.unwrap();
}

/// A server that runs a script of somebody else until it is told to end.
fn busy(server: &RedisServer, work: impl FnOnce()) {
    server.cli(&["CONFIG", "SET", "busy-reply-threshold", "50"]);
    std::thread::scope(|scope| {
        scope.spawn(|| server.try_cli(&["EVAL", "while true do end", "0"]));
        let says_busy = || {
            let pong = server.try_cli(&["PING"]);
            pong.is_err_and(|error| error.starts_with("BUSY"))
        };
        eventually(LONG, says_busy);
        work();
    });
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(work))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_script_is_waited_for() {
    let server = RedisServer::start();
    let mutex = mutex(&server).await;
    busy(&server, || {
        block_on(async {
            let error = mutex.try_lock().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Store, "{error}");
            let waiter = refused_waiter(&mutex, "busy with a slow script").await;
            server.cli(&["SCRIPT", "KILL"]);
            granted(waiter).await;
        });
    });
}

/// The lease is renewed when the server answers again, and a release is repeated until it is applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_comes_through_a_slow_script() {
    let server = RedisServer::start();
    let mutex = mutex(&server).await;
    let guard = mutex.lock().await.unwrap();
    busy(&server, || {
        block_on(async {
            drop(guard);
            let waiter = refused_waiter(&mutex, "busy with a slow script").await;
            server.cli(&["SCRIPT", "KILL"]);
            granted(waiter).await;
        });
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_its_data_is_waited_for() {
    let server = RedisServer::options()
        .config("loading-process-events-interval-bytes 1024")
        .config("key-load-delay 2000")
        .start();
    let mutex = mutex(&server).await;
    server.cli(&["DEBUG", "POPULATE", "3000", "key", "100"]);
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| server.cli(&["DEBUG", "RELOAD"]));
        let says_loading = || {
            let pong = server.try_cli(&["PING"]);
            pong.is_err_and(|error| error.starts_with("LOADING"))
        };
        eventually(LONG, says_loading);
        block_on(async {
            let waiter = refused_waiter(&mutex, "still loading").await;
            server.cli(&["CONFIG", "SET", "key-load-delay", "0"]);
            granted(waiter).await;
        });
        reload.join().unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_are_waited_for() {
    let server = RedisServer::start();
    let mutex = mutex(&server).await;
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let waiter = refused_waiter(&mutex, "min-replicas-to-write").await;
    let _replica = RedisServer::options().replica_of(&server).start();
    granted(waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_full_is_waited_for() {
    let server = RedisServer::start();
    let mutex = mutex(&server).await;
    server.cli(&["CONFIG", "SET", "maxclients", "8"]);
    server.cli(&["CLIENT", "KILL", "USER", "default"]);
    // Whoever comes first is let in.
    let others = fill_connections(server.port(), LONG);
    let waiter = refused_waiter(&mutex, "raise its maxclients").await;
    drop(others);
    granted(waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_pass_ends_the_waiting_at_once() {
    let server = RedisServer::start();
    let mutex = mutex(&server).await;
    server.cli(&["SET", "leasehold:{default:a}", "something else"]);
    let error = tokio::time::timeout(LONG / 2, mutex.lock()).await;
    let error = error.expect("at once").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
    assert!(!error.is_transient(), "{error}");
}
