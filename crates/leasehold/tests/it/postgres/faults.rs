//! Connections that end, and servers.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::__private::store::{Event, EventScope, Reply, WakeupMode};
use leasehold::{Client, Ran};
use leasehold_core::{Outcome, Slot};
use leasehold_testkit::{PostgresPair, Proxy};
use tokio::time::timeout;

use super::*;
use crate::store_ext::{StoreExt as _, noticed};

/// Ends all connections of clients.
const TERMINATE: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

/// A request that finds a connection ended is sent on another one, because nothing was applied.
#[tokio::test(flavor = "multi_thread")]
async fn terminated_connections_lose_no_request() {
    let server = PostgresServer::start();
    let url = server.url();
    let [holder, waiter] = StoreClient::two_listening([&url, &url]).await;
    server.run(&[TERMINATE]);
    // Both are told twice that they may have missed something: at the end of their session, and in the next one. Then they
    // can wait again.
    for client in [&holder, &waiter] {
        let mut events = Vec::new();
        eventually_async(SOON, async || {
            events.extend(client.events());
            events.len() == 2
        })
        .await;
        let interrupted = [(); 2].map(|()| Event::Interrupted(EventScope::Store));
        assert_eq!(events, interrupted);
    }
    passes_on(&holder, &waiter, "b").await;
    let mut last = 0;
    for round in 1..20 {
        let token = holder.acquire("a", round).await;
        assert!(token > last);
        last = token;
        server.run(&[TERMINATE]);
        holder.release("a", round).await;
    }
}

/// All of them read at the same time, again and again, and a server has few connections.
#[tokio::test(flavor = "multi_thread")]
async fn many_observers_open_few_connections() {
    let server = PostgresServer::start();
    let proxy = Proxy::before_port(server.port());
    let port = |port: u16| format!(":{port}/");
    let store = open(
        &server
            .url()
            .replace(&port(server.port()), &port(proxy.port())),
    )
    .await;
    let before = proxy.stats().connections;
    let names: Vec<_> = (0..100).map(|number| key(&format!("n{number}"))).collect();
    join_all(names.iter().map(async |name| {
        store.observe(name, &Slot::Value).await.unwrap();
    }))
    .await;
    let opened = proxy.stats().connections - before;
    assert!(opened < 10, "{opened}");
}

/// The server ends sessions that are idle: those without a job, which are replaced, and none that listens.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_idle_sessions_ends_no_listener() {
    let server = PostgresServer::start();
    server.run(&[
        "ALTER ROLE testkit SET idle_session_timeout = '3s'",
        "ALTER ROLE testkit SET idle_in_transaction_session_timeout = '3s'",
    ]);
    let url = server.url();
    let [holder, waiter] = StoreClient::two_listening([&url, &url]).await;
    for client in [&holder, &waiter] {
        until_wakeup(&*client.store, WakeupMode::Grants).await;
    }
    holder.acquire("a", 1).await;
    assert_eq!(waiter.wait("a", 1).await, 0);
    let only_listeners = "SELECT bool_and(state_change < now() - interval '4 s') FROM pg_stat_activity \
                          WHERE application_name LIKE 'leasehold%'";
    eventually_async(SOON, async || server.run(&[only_listeners]) == "t").await;
    holder.release("a", 1).await;
    waiter.granted("a", 1).await;
}

/// The clients of a store whose connection has ended do not listen, whatever their tables say.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_is_dead_is_passed_over() {
    let server = PostgresServer::start();
    let [near, far, next] = [0; 3].map(|_| server.url());
    let holder = StoreClient::on(&open(&near).await, 1);
    let dead = StoreClient::listening(&open(&far).await, 2).await;
    let next = StoreClient::listening(&open(&next).await, 3).await;
    holder.acquire("a", 1).await;
    assert_eq!(dead.wait("a", 1).await, 0);
    assert_eq!(next.wait("a", 1).await, 1);
    let id = dead.id;
    drop(dead);
    let is_free = format!("SELECT leasehold.is_free(leasehold.key('', '', '{id}', 3))");
    eventually_async(SOON, async || server.run(&[&is_free]) == "t").await;
    holder.release("a", 1).await;
    next.granted("a", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_a_certain_failure() {
    let server = PostgresServer::start();
    let store = open(&server.url()).await;
    works(&*store).await;
    let text = server.url();
    drop(server);
    let error = rejected(&*store, acquire("a", 1)).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert_eq!((error.lock(), error.store()), (Some("a"), Some(&*text)));
    until_wakeup(&*store, WakeupMode::Nothing).await;
}

/// Without room for data, new locks are refused and leases are renewed in the pages that there are. Without room for the
/// log, the server ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_a_clear_error_and_a_loss_in_time() {
    let mut server = PostgresServer::start_with_disk();
    let store = open(&server.url()).await;
    let client = Client::builder().ttl(Duration::from_secs(6));
    let client = client.connect(&server.url()).await.unwrap();
    let guard = client.mutex("held").unwrap().lock().await.unwrap();
    granted(&*store, acquire("a", 1)).await;
    server.set_full(true);
    let names: Vec<_> = (0..1_000).map(|number| format!("n{number}")).collect();
    let replies = store
        .apply(names.iter().map(|name| acquire(name, 1)).collect())
        .await;
    for (name, reply) in names.iter().zip(replies) {
        let Reply::Rejected(error) = reply else {
            panic!("{name}: {reply:?}");
        };
        assert_error(&error, ErrorKind::Store, &["make room"]);
        let text = store.to_string();
        assert_eq!((error.lock(), error.store()), (Some(&**name), Some(&*text)));
    }
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    server.set_full(false);
    works(&*store).await;

    server.set_full(true);
    let switch = "SELECT pg_switch_wal(), txid_current()";
    let mut lost = pin!(timeout(SOON, guard.lost()));
    loop {
        let mut psql = server.psql();
        psql.args(["-c", switch]);
        // The server that is about to end may take longer for it than the lease lasts.
        let switched = tokio::task::spawn_blocking(move || psql.output());
        tokio::select! {
            lost = &mut lost => {
                assert!(lost.is_ok(), "not within {SOON:?}");
                break;
            }
            switched = switched => drop(switched.unwrap().unwrap()),
        }
    }
    assert!(guard.time_left() > Duration::ZERO);
    let error = rejected_or_unknown(&*store, acquire("refused", 1)).await;
    assert_eq!(error.lock(), Some("refused"), "{error}");
    assert_eq!(error.store(), Some(&*store.to_string()), "{error}");
    server.set_full(false);
    server.restart();
    until_works(&*store, "works").await;
    let next = client.mutex("held").unwrap().lock_timeout(SOON).await;
    assert!(next.unwrap().unwrap().token() > guard.token());
}

/// After a promotion, leases that the standby has are held. One that it does not have is lost, or was not granted.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_standby_keeps_what_it_has() {
    for synchronous in [true, false] {
        let mut pair = PostgresPair::start(synchronous);
        let client = Client::connect(pair.url()).await.unwrap();
        let kept = client.mutex("kept").unwrap().lock().await.unwrap();
        pair.until_in_sync();
        pair.stop_stream();
        let missing = client.mutex("missing").unwrap();
        let limit = match synchronous {
            true => Duration::from_secs(1),
            false => SOON,
        };
        let missing = missing.lock_timeout(limit).await;
        let missing = missing.ok().flatten();
        assert_eq!(missing.is_some(), !synchronous);
        pair.fail_over(None, || ());

        let before = kept.deadline();
        eventually_async(SOON, async || kept.deadline() > before).await;
        let other = Client::connect(pair.url()).await.unwrap();
        let held = other.mutex("kept").unwrap().try_lock().await.unwrap();
        assert!(held.is_none() && kept.state().is_held());
        if let Some(missing) = missing {
            eventually_async(SOON, async || missing.state().is_lost()).await;
        }
        let next = other.mutex("missing").unwrap().lock_timeout(SOON).await;
        assert!(next.unwrap().is_some());
    }
}

/// The server commits without the standby, and warns.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_wait_for_the_standby_was_ended_is_requested_again() {
    let mut pair = PostgresPair::start(true);
    let client = Client::connect(pair.url()).await.unwrap();
    let mutex = client.mutex("a").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    pair.stop_stream();
    let waiting = tokio::spawn(async move { mutex.lock().await });
    for _ in 0..3 {
        eventually_async(SOON, async || pair.end_waits()).await;
    }
    assert!(!waiting.is_finished());
    pair.fail_over(None, || ());
    assert!(waiting.await.unwrap().unwrap().state().is_held());
}

/// Nobody knows whether the waiter was granted the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_and_an_observer_ask_again_after_a_commit_without_the_standby() {
    let mut pair = PostgresPair::start(true);
    let store = open(&pair.url()).await;
    let holder = StoreClient::on(&store, 1);
    let waiter = StoreClient::listening(&store, 2).await;
    holder.acquire("a", 1).await;
    assert_eq!(waiter.wait("a", 1).await, 0);
    let observation = store.observe(&key("a"), &Slot::Value).await.unwrap();
    pair.stop_stream();
    let reply = holder.send(release("a", 1));
    let ended = eventually_async(SOON, async || pair.end_waits());
    let (reply, ()) = tokio::join!(reply, ended);
    assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
    let interrupted = Event::Interrupted(EventScope::Record(key("a")));
    waiter.until_event(&interrupted).await;
    noticed(observation).await;
}

/// The repeated request finds its record.
#[tokio::test(flavor = "multi_thread")]
async fn a_completion_whose_wait_for_the_standby_was_ended_is_not_forgotten() {
    let mut pair = PostgresPair::start(true);
    let client = Client::connect(pair.url()).await.unwrap();
    let once = client.once("migrate", "v1").unwrap();
    let Ran::Now(run) = once.lock().await.unwrap() else {
        panic!("it was run before");
    };
    pair.stop_stream();
    let completing = tokio::spawn(run.complete());
    for _ in 0..3 {
        eventually_async(SOON, async || pair.end_waits()).await;
    }
    assert!(!completing.is_finished());
    pair.fail_over(None, || ());
    completing.await.unwrap().unwrap();
    let other = Client::connect(pair.url()).await.unwrap();
    let again = other.once("migrate", "v1").unwrap().lock().await;
    assert!(matches!(again.unwrap(), Ran::Before(_)));
}

/// The standby does not have its registration.
#[tokio::test(flavor = "multi_thread")]
async fn an_observer_is_registered_again_at_the_next_primary() {
    let mut pair = PostgresPair::start(false);
    let store = open(&pair.url()).await;
    let observer = StoreClient::listening(&store, 1).await;
    works(&*store).await;
    pair.until_in_sync();
    pair.stop_stream();
    let observe = async || store.observe(&key("observed"), &Slot::Value).await;
    observe().await.unwrap();
    pair.fail_over(None, || ());
    until_wakeup(&*observer.store, WakeupMode::Grants).await;
    let observation = observe().await.unwrap();
    let other = open(&pair.url()).await;
    granted(&*other, acquire("observed", 1)).await;
    noticed(observation).await;
}
