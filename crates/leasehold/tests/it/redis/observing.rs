//! Observers of names at a server: every change of what they have read is notified, however it is made.

use futures_util::future::join_all;
use leasehold::{LockEvent, LockEvents};
use leasehold_core::LeaseId;

use super::annotations::VALUE;
use super::*;
use crate::store_ext::{Observation, StoreExt as _, noticed};
use crate::waiters::poll_once;

pub(super) async fn observe(store: &dyn Store, key: &Key) -> Observation {
    let observed = store.observe(key, &VALUE).await;
    observed.unwrap_or_else(|error| panic!("{error}"))
}

/// Observes until a holder is read, as an observer does that lives through failures.
pub(super) async fn until_held_by(store: &dyn Store, key: &Key, lease: LeaseId) {
    let reading = async {
        loop {
            let Ok(observation) = store.observe(key, &VALUE).await else {
                // It reads again as soon as the store replies.
                tokio::task::yield_now().await;
                continue;
            };
            if observation
                .holder
                .is_some_and(|(holder, _)| holder == lease)
            {
                return;
            }
            if let Some(changed) = observation.changed {
                let _ = changed.await;
            }
        }
    };
    let read = tokio::time::timeout(LONG, reading).await;
    assert!(read.is_ok(), "{lease} was not seen");
}

fn is_pending(observation: &mut Observation) -> bool {
    let changed = observation.changed.as_mut().unwrap();
    changed.try_recv() == Err(tokio::sync::oneshot::error::TryRecvError::Empty)
}

#[tokio::test(flavor = "multi_thread")]
async fn any_change_of_a_key_that_was_read_is_noticed() {
    let (server, store) = server_and_store().await;
    let key = key("a");
    granted(&*store, acquire("a", 1)).await;
    let lease = lease(1).to_string();
    let value = format!("{lease} 17 0 text");
    let annotation = "app:{t:a}:value";
    for command in [
        &["PEXPIRE", RECORD, "60000"][..],
        &["DEL", RECORD],
        &["SET", RECORD, &lease, "PX", "60000"],
        &["RPUSH", QUEUE, "x 1 1", "x"],
        &["DEL", QUEUE],
        &["SET", annotation, &value],
        &["PEXPIRE", annotation, "100"],
        &["FLUSHALL"],
        &["CLIENT", "KILL", "USER", "default"],
        &["SET", RECORD, &lease],
    ] {
        let mut observation = observe(&*store, &key).await;
        let mut other = observe(&*store, &super::key("b")).await;
        // Reports of changes before it was read have arrived.
        let mut observation = match is_pending(&mut observation) {
            true => observation,
            false => observe(&*store, &key).await,
        };
        assert!(is_pending(&mut observation), "{command:?}");
        assert!(is_pending(&mut other), "{command:?}");
        server.cli(command);
        noticed(observation).await;
    }
    assert_eq!(
        observe(&*store, &key).await.holder.unwrap().0.to_string(),
        lease
    );
    // An annotation that expires by itself, at the latest when the server deletes it.
    assert_eq!(store.write_value(&key, 1, "text").await.unwrap(), Ok(()));
    let observation = observe(&*store, &key).await;
    server.cli(&["PEXPIRE", annotation, "1"]);
    noticed(observation).await;
    eventually_async(SOON, async || {
        observe(&*store, &key).await.annotation.is_none()
    })
    .await;
}

/// The server does not report changes to the connection that made them.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_by_a_request_that_was_cancelled_is_noticed() {
    let (server, store) = server_and_store().await;
    let key = key("a");
    works(&*store).await;
    for (request, holder) in [(acquire("a", 1), Some(lease(1))), (release("a", 1), None)] {
        let observation = observe(&*store, &key).await;
        server.cli(&["CLIENT", "PAUSE", "60000", "WRITE"]);
        let mut applying = store.apply(vec![request]);
        assert!(poll_once(&mut applying).is_pending());
        // It has arrived, and is not applied yet.
        let is_blocked = |client: &str| client.contains(" flags=b") || client.contains(" flags=tb");
        eventually_async(SOON, async || {
            server.cli(&["CLIENT", "LIST"]).lines().any(is_blocked)
        })
        .await;
        drop(applying);
        noticed(observation).await;
        // Read over the same connection, behind the request.
        let unpause = async { server.cli(&["CLIENT", "UNPAUSE"]) };
        let (observation, _) = tokio::join!(observe(&*store, &key), unpause);
        assert_eq!(observation.holder.map(|(lease, _)| lease), holder);
    }
}

/// Then the observer polls.
#[tokio::test(flavor = "multi_thread")]
async fn without_tracking_nothing_is_notified_and_all_is_read() {
    let old_protocol = RedisServer::options().config("rename-command HELLO \"\"");
    let rights = |removed: &str| format!("~app:* &app:* +@all {removed}");
    for (options, removed, changed, waiters) in [
        (old_protocol, "", false, 1),
        (RedisServer::options(), "-client|tracking", false, 1),
        (RedisServer::options(), "-client|caching", false, 1),
        (RedisServer::options(), "-llen", true, 0),
        (RedisServer::options(), "", true, 1),
    ] {
        let server = options.acl("bob", "pw", &rights(removed)).start();
        let holder = StoreClient::connect(&server.url(), 7).await;
        holder.acquire("a", 1).await;
        assert_eq!(holder.wait("a", 2).await, 0);
        let store = open(&server.url_of("bob", "pw")).await;
        let written = store.write_value(&key("a"), 1, "text").await;
        assert_eq!(written.unwrap(), Ok(()));
        let observation = observe(&*store, &key("a")).await;
        assert_eq!(observation.changed.is_some(), changed);
        assert_eq!(observation.waiters, waiters);
        let (lease, time_left) = observation.holder.unwrap();
        assert_eq!(lease, holder.lease(1));
        assert!(time_left <= TTL && time_left > TTL / 2, "{time_left:?}");
        assert_eq!(&*observation.annotation.unwrap().text, "text");
        let now = Duration::from_micros(observation.now.as_micros());
        let clock = std::time::UNIX_EPOCH.elapsed().unwrap();
        assert!(now.abs_diff(clock) < SOON, "{now:?}");
    }
}

/// Observers of other names do not read again, and a client without observers reads nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_costs_only_its_observers() {
    let (server, store) = server_and_store().await;
    let other = StoreClient::connect(&server.url(), 7).await;
    let mut idle = observe(&*store, &key("idle")).await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    // So few that they take less than ten seconds: after that time every observer reads again.
    for number in 1..20 {
        other.acquire("a", number).await;
        other.release("a", number).await;
    }
    assert!(is_pending(&mut idle));
    // Each reading has one.
    assert_eq!(calls(&server, "llen"), 0);
}

/// A new one reads immediately, whatever the others wait for.
#[tokio::test(flavor = "multi_thread")]
async fn the_observers_of_a_client_share_their_readings() {
    let server = RedisServer::start();
    let client = client_at(&server.url(), LONG).await;
    let mutex = client.mutex("a").unwrap();
    let mut observers: Vec<_> = (0..100).map(|_| mutex.events()).collect();
    let all_get = async |observers: &mut [LockEvents], expected: LockEvent| {
        for event in join_all(observers.iter_mut().map(LockEvents::next)).await {
            assert_eq!(event.unwrap(), expected);
        }
    };
    all_get(&mut observers, LockEvent::Free).await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    let other = client_at(&server.url(), LONG).await;
    let guard = lock(&other, "a").await;
    let lease = guard.lease_id();
    all_get(&mut observers, LockEvent::Granted(lease)).await;
    // Of two kinds each; a joint first reading may have left one more.
    assert!(calls(&server, "llen") <= 4, "{}", calls(&server, "llen"));
    all_get(&mut [mutex.events()], LockEvent::Held(lease)).await;
    drop(observers.drain(1..));
    guard.release().await.unwrap();
    all_get(&mut observers, LockEvent::Released(lease)).await;
}
