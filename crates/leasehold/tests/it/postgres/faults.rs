//! Connections that end, and servers.

use leasehold::__private::store::WakeupMode;
use leasehold_core::Outcome;

use super::*;

/// Ends all connections of clients.
const TERMINATE: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

async fn until_notified(client: &StoreClient) {
    let is_notified = async || client.store.capabilities().wakeup == WakeupMode::Grants;
    eventually_async(SOON, is_notified).await;
}

/// A request that finds a connection ended is sent on another one, because nothing was applied.
#[tokio::test(flavor = "multi_thread")]
async fn terminated_connections_lose_no_request() {
    let server = PostgresServer::start();
    let [holder, waiter] = [open(&server.url()).await, open(&server.url()).await];
    let holder = StoreClient::listening(&holder, 1).await;
    let waiter = StoreClient::listening(&waiter, 2).await;
    let mut last = 0;
    for round in 1..20 {
        let token = holder.acquire("a", round).await;
        assert!(token > last);
        last = token;
        server.run(&[TERMINATE]);
        holder.release("a", round).await;
    }
    // Both are told that they may have missed something, and can wait again.
    for client in [&holder, &waiter] {
        until_notified(client).await;
        client.events();
    }
    passes_on(&holder, &waiter, "b").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_survive_a_restart_of_the_server() {
    let mut server = PostgresServer::start();
    let store = open(&server.url()).await;
    let holder = StoreClient::listening(&store, 1).await;
    let token = holder.acquire("a", 1).await;
    server.restart();
    let other = open(&server.url()).await;
    let waiter = StoreClient::listening(&other, 2).await;
    assert_eq!(waiter.wait("a", 1).await, 0);
    assert_eq!(holder.apply(renew("a", 1)).await, Outcome::Kept);
    until_notified(&holder).await;
    holder.release("a", 1).await;
    let grant = waiter.granted("a", 1).await;
    assert!(grant.first.get() > token);
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
    let polls = async || store.capabilities().wakeup == WakeupMode::Nothing;
    eventually_async(SOON, polls).await;
}
