//! A server that refuses for a while is waited for; one that refuses for good is not. No store can be opened meanwhile.

use leasehold::Mutex;
use leasehold_testkit::{eventually, fill_connections};
use tokio::task::JoinHandle;

use super::refused::refused;
use super::*;

async fn mutex(server: &RedisServer) -> Mutex {
    let client = client_at(&server.url(), LONG).await;
    client.mutex("a").unwrap()
}

/// A waiter that was refused once for this reason.
async fn refused_waiter(mutex: &Mutex, reason: &str) -> JoinHandle<Result<Guard, Error>> {
    let wanted = mutex.clone();
    let waiter = tokio::spawn(async move { wanted.lock().await });
    let mut last = None;
    eventually_async(LONG, async || {
        assert!(!waiter.is_finished(), "the wait has ended");
        last = mutex.wait_status().map(|status| status.error);
        last.is_some()
    })
    .await;
    let error = last.unwrap();
    assert_error(&error, ErrorKind::Store, &[reason]);
    assert!(error.is_transient(), "{error}");
    assert_eq!(error.retry_after(), None);
    waiter
}

async fn granted(waiter: JoinHandle<Result<Guard, Error>>) {
    let guard = tokio::time::timeout(LONG, waiter).await.expect("in time");
    guard.unwrap().unwrap().release().await.unwrap();
}

/// Runs blocking code beside a future that is driven while the server refuses commands with an error of this code.
pub(super) fn while_refused(
    server: &RedisServer,
    code: &str,
    block: impl FnOnce() + Send,
    work: impl AsyncFnOnce(),
) {
    std::thread::scope(|scope| {
        scope.spawn(block);
        eventually(LONG, || {
            let pong = server.try_cli(&["PING"]);
            pong.is_err_and(|error| error.starts_with(code))
        });
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| runtime.block_on(work()));
    });
}

/// Does something while the server runs a script, which it does until the script is killed.
pub(super) fn while_busy(server: &RedisServer, work: impl AsyncFnOnce()) {
    server.cli(&["CONFIG", "SET", "busy-reply-threshold", "50"]);
    let block = || drop(server.try_cli(&["EVAL", "while true do end", "0"]));
    while_refused(server, "BUSY", block, work);
}

/// The release is repeated until it is applied.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_script_is_waited_for() {
    for held in [false, true] {
        let server = RedisServer::start();
        let mutex = mutex(&server).await;
        let guard = mutex.lock().await.unwrap();
        let guard = held.then_some(guard);
        // The release has been applied.
        eventually_async(SOON, async || {
            mutex.inspect().await.unwrap().is_some() == held
        })
        .await;
        while_busy(&server, async || {
            drop(guard);
            if !held {
                let error = mutex.try_lock().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Store, "{error}");
            }
            let waiter = refused_waiter(&mutex, "busy with a slow script").await;
            server.cli(&["SCRIPT", "KILL"]);
            granted(waiter).await;
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_its_data_is_waited_for() {
    let server = RedisServer::options()
        .config("loading-process-events-interval-bytes 1024")
        .config("key-load-delay 2000")
        .start();
    let mutex = mutex(&server).await;
    server.cli(&["DEBUG", "POPULATE", "3000", "key", "100"]);
    let reload = || drop(server.cli(&["DEBUG", "RELOAD"]));
    while_refused(&server, "LOADING", reload, async || {
        refused(&server.url(), ErrorKind::Store, "still loading").await;
        let waiter = refused_waiter(&mutex, "still loading").await;
        server.cli(&["CONFIG", "SET", "key-load-delay", "0"]);
        granted(waiter).await;
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
    // The server accepts the first to connect.
    let others = fill_connections(server.port(), LONG);
    let full = "raise its maxclients";
    let waiter = refused_waiter(&mutex, full).await;
    refused(&server.url(), ErrorKind::Store, full).await;
    drop(others);
    granted(waiter).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lasting_error_ends_the_wait_at_once() {
    let server = RedisServer::start();
    let mutex = mutex(&server).await;
    server.cli(&["SET", "leasehold:{default:a}", "something else"]);
    let error = tokio::time::timeout(LONG / 2, mutex.lock()).await;
    let error = error.expect("immediately").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store, "{error}");
    assert!(!error.is_transient(), "{error}");
}
