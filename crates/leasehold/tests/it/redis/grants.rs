//! Grants by message: dead waiters and new connections. The rules are in `differential`.

use futures_util::future::join_all;
use leasehold::__private::store::Event;
use leasehold_core::{Notice, Op};

use super::*;

/// Three clients with a connection each.
async fn clients(server: &RedisServer) -> [StoreClient; 3] {
    let url = server.url();
    let [a, b, c] = [1, 2, 3].map(|number| StoreClient::connect(&url, number));
    let clients: [_; 3] = tokio::join!(a, b, c).into();
    for client in &clients {
        client.settle().await;
    }
    clients
}

/// Waits until so many connections have a subscription.
async fn until_subscribed(server: &RedisServer, connections: usize) {
    eventually_async(SOON, async || {
        let clients = server.cli(&["CLIENT", "LIST"]);
        let subscribed = clients.lines().filter(|line| !line.contains(" sub=0 "));
        subscribed.count() == connections
    })
    .await;
}

fn is_queued(server: &RedisServer, queue: &str) -> bool {
    server.cli(&["EXISTS", queue]) == "1"
}

fn server_with_user(user: &str) -> RedisServer {
    let options = RedisServer::options();
    options.acl(user, "pw", "~app:* &app:* +@all").start()
}

/// Its connection was cut or closed, or its listener was dropped.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_without_connection_or_listener_is_passed_over_at_once() {
    let server = server_with_user("cut");
    let [a, b, _c] = clients(&server).await;
    let cut = StoreClient::connect(&server.url_of("cut", "pw"), 10).await;
    let closed = StoreClient::connect(&server.url(), 11).await;
    let dropped = StoreClient::connect(&server.url(), 12).await;
    a.acquire("a", 1).await;
    for (position, client) in (0..).zip([&cut, &closed, &dropped, &b]) {
        assert_eq!(client.wait("a", 1).await, position);
    }
    server.cli(&["CLIENT", "KILL", "USER", "cut"]);
    drop(closed);
    // The next batch of its connection notices this.
    let StoreClient {
        store, event_log, ..
    } = dropped;
    drop(event_log);
    StoreClient::listening(&store, 14).await.unsubscribe();
    until_subscribed(&server, 3).await;
    a.release("a", 1).await;
    b.granted("a", 1).await;
    assert!(!is_queued(&server, QUEUE));
    cut.until_interrupted().await;
}

/// `PUBLISH` counts subscriptions to patterns as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_to_all_channels_does_not_make_killed_waiters_alive() {
    let server = RedisServer::start();
    let monitor = redis::Client::open(server.url()).unwrap();
    let mut monitor = monitor.get_async_pubsub().await.unwrap();
    monitor.psubscribe("*").await.unwrap();
    let [a, b, c] = clients(&server).await;
    a.acquire("a", 1).await;
    let mut killed = Vec::new();
    for number in 10..20 {
        if number == 18 {
            assert_eq!(b.wait("a", 1).await, 8);
        }
        let client = StoreClient::connect(&server.url(), number).await;
        client.wait("a", 1).await;
        killed.push(client);
    }
    assert_eq!(c.wait("a", 1).await, 11);
    drop(killed);
    until_subscribed(&server, 3).await;
    a.release("a", 1).await;
    b.granted("a", 1).await;
    // The next living waiter is to notice a grant that is not accepted.
    let (lease, ttl) = (c.lease(1), ttl(3_000));
    let next = Notice::Next { lease, ttl };
    c.until_event(&Event::Notice(key("a"), next)).await;
    assert_eq!(c.wait("a", 1).await, 0);
    b.release("a", 1).await;
    c.granted("a", 1).await;
    assert!(!is_queued(&server, QUEUE));
}

/// The server does nothing else during a script.
#[tokio::test(flavor = "multi_thread")]
async fn many_dead_waiters_are_passed_over_in_many_short_calls() {
    let server = RedisServer::start();
    let [a, b, c] = clients(&server).await;
    a.acquire("a", 1).await;
    queue_dead(&server, "a", 0..3_000);
    assert_eq!(b.wait("a", 1).await, 3_000);
    queue_dead(&server, "a", 3_000..5_000);
    assert_eq!(c.wait("a", 1).await, 5_001);
    server.cli(&["CONFIG", "RESETSTAT"]);
    a.release("a", 1).await;
    b.granted_behind_dead("a", 1, &a).await;
    // A notified grant lasts for a few seconds.
    b.apply(renew("a", 1)).await;
    // The same holds for the notice to the one behind it, but only a client whose call has ended too early continues.
    for _ in 0..SOON.as_secs() {
        let next = |event: &Event| matches!(event, Event::Notice(_, Notice::Next { .. }));
        let noticed = eventually_async(SOON, async || c.events().iter().any(next));
        let noticed = tokio::time::timeout(Duration::from_secs(1), noticed).await;
        if noticed.is_ok() {
            break;
        }
        a.store.apply(vec![Request::new(key("a"), Op::Serve)]).await;
    }
    assert_eq!(c.wait("a", 1).await, 0);
    let scripts = script_calls(&server);
    assert!((5..50).contains(&scripts), "{scripts}");
    for command in ["set", "publish", "pubsub|numsub"] {
        let calls = calls(&server, command);
        assert!(calls < 300, "{command}: {calls}");
    }
    b.release("a", 1).await;
    c.granted("a", 1).await;
    assert!(!is_queued(&server, QUEUE));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_behind_many_dead_waiters_is_granted() {
    let server = RedisServer::start();
    let [a, b, _] = clients(&server).await;
    for name in ["a", "b"] {
        queue_dead(&server, name, 0..3_000);
    }
    // A living client may wait behind the remaining ones, so this one joins the queue.
    a.wait("a", 1).await;
    a.granted_behind_dead("a", 1, &b).await;
    a.acquire("a", 1).await;
    let refused = Outcome::Refused {
        queue_position: None,
        time_left: None,
    };
    assert_eq!(b.apply(acquire("b", 1)).await, refused);
    eventually_async(SOON, async || is_granted(&b.send(acquire("b", 1)).await)).await;
    assert!(!is_queued(&server, QUEUE) && !is_queued(&server, "app:{t:b}:queue"));
}

/// Although all of them send a request at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_subscribes_each_client_once() {
    let server = server_with_user("cut");
    let [a, ..] = clients(&server).await;
    a.acquire("a", 1).await;
    let store = open(&server.url_of("cut", "pw")).await;
    let waiters: Vec<_> = (10..60)
        .map(|number| StoreClient::on(&store, number))
        .collect();
    for _ in 0..2 {
        let before = calls(&server, "subscribe");
        join_all(waiters.iter().map(|waiter| waiter.wait("a", 1))).await;
        assert_eq!(calls(&server, "subscribe") - before, 50);
        server.cli(&["CLIENT", "KILL", "USER", "cut"]);
        for waiter in &waiters {
            waiter.until_interrupted().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_subscribes_before_its_first_request() {
    let server = server_with_user("cut");
    let [a, ..] = clients(&server).await;
    let b = StoreClient::connect(&server.url_of("cut", "pw"), 10).await;
    a.acquire("a", 1).await;
    b.wait("a", 1).await;
    for _ in 0..3 {
        server.cli(&["CLIENT", "KILL", "USER", "cut"]);
        b.until_interrupted().await;
        // No other request has come meanwhile, so it is still in the queue.
        assert_eq!(b.wait("a", 1).await, 0);
    }
    a.release("a", 1).await;
    b.granted("a", 1).await;
}
