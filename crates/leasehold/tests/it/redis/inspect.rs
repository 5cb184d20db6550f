//! Inspection and listings of foreign and damaged keys.

use leasehold::__private::store::ClientInfo;
use leasehold_core::Name;

use super::*;
use crate::store_ext::StoreExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_counter_or_expiry_is_shown_and_a_foreign_one_is_an_error() {
    let (server, store) = server_and_store().await;
    granted(&*store, acquire("a", 1)).await;
    let info = ClientInfo::default();
    let space = space();
    applied(&*store, info.describe(&space, lease(1).client, TTL * 2)).await;
    let client = format!("app:client:{}", lease(1).client);
    let left: u64 = server.cli(&["PTTL", &client]).parse().unwrap();
    assert!((55_000..=60_000).contains(&left));
    // An unreadable client info hides no lock.
    server.cli(&["SET", &client, "x"]);
    server.cli(&["DEL", "app:{t:a}:token"]);
    server.cli(&["PERSIST", "app:{t:a}"]);
    let entry = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!((entry.token, entry.client), (None, None));
    assert_eq!(entry.time_left, Ttl::MAX.as_duration());
    assert_eq!(store.held(&space).await.unwrap().len(), 1);
    server.cli(&["SET", "app:{t:a}", "somebody"]);
    let error = store.inspect(&key("a")).await.unwrap_err();
    assert_error(&error, ErrorKind::Store, &[r#"lock "a" at redis://"#]);
}

/// Nor does a queue that the user may not read.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreadable_queue_hides_no_lock() {
    let (server, store) = server_and_store().await;
    granted(&*store, acquire("a", 1)).await;
    let waiters = async |store: &dyn Store| {
        let entry = store.inspect(&key("a")).await.unwrap().unwrap();
        let waiters = entry.waiters.iter().map(|waiter| waiter.lease);
        waiters.collect::<Vec<_>>()
    };
    server.cli(&["SET", QUEUE, "x"]);
    assert_eq!(waiters(&*store).await, []);
    server.cli(&["DEL", QUEUE]);
    let waiting = lease(2).to_string();
    let asked = format!("{waiting} 30000 1");
    server.cli(&["RPUSH", QUEUE, "odd", "odd", &asked, &waiting, "odd"]);
    assert_eq!(waiters(&*store).await, [lease(2)]);
    let store = open_without(&server, "lrange").await;
    assert_eq!(waiters(&*store).await, []);
    assert_eq!(store.held(&space()).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyspace_is_listed_by_name_and_without_foreign_keys() {
    let (server, store) = server_and_store().await;
    let names = ["b", "a", "a:token", "x", "[*?]\\", "昼/夜"];
    let mut batch: Vec<_> = names.iter().map(|name| acquire(name, 1)).collect();
    for tenant in ["u", "tt"] {
        let key = keyspace("app", tenant).key(Name::parse("elsewhere").unwrap());
        batch.push(Request::new(key, acquire("a", 1).op));
    }
    store.apply(batch).await;
    let lease = lease(1).to_string();
    server.cli(&["SET", "app:{t:string}", "1"]);
    server.cli(&["HSET", "app:{t:foreign}", &lease, "1"]);
    server.cli(&["SET", "app:{t:count}", &format!("{lease} many")]);
    server.cli(&["SET", "app:{t:two}", &format!("{lease} 1 x")]);
    server.cli(&["SET", "app:{t:bra}ce}", &lease]);
    server.cli(&["SET", "app:{t:}", &lease]);
    server.cli(&["DEBUG", "POPULATE", "3000"]);

    let listed = store.held(&space()).await.unwrap();
    let mut expected: Vec<_> = names.iter().map(|name| key(name)).collect();
    expected.sort();
    let keys: Vec<_> = listed.iter().map(|entry| entry.key.clone()).collect();
    assert_eq!(keys, expected);
    assert!(listed.iter().all(|entry| entry.token.is_some()));
}

/// The server closes a connection with subscriptions whose replies exceed a limit: by default 32 MB.
#[tokio::test(flavor = "multi_thread")]
async fn a_listing_of_many_waiters_is_read_in_parts() {
    let server = RedisServer::start();
    let client = StoreClient::connect(&server.url(), 1).await;
    let names: Vec<_> = (0..256).map(|nth| format!("{nth}")).collect();
    let batch = names.iter().map(|name| client.own(acquire(name, 1)));
    client.store.apply(batch.collect()).await;
    for name in &names {
        queue_dead(&server, name, 0..100);
    }
    let limit = "pubsub 1048576 0 0";
    server.cli(&["CONFIG", "SET", "client-output-buffer-limit", limit]);
    let listed = client.store.held(&space()).await.unwrap();
    assert_eq!(listed.len(), names.len());
    assert!(listed.iter().all(|lock| lock.waiters.len() == 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_read_gets_an_error_with_the_remedy() {
    let server = RedisServer::start();
    server.cli(&[
        "ACL", "SETUSER", "alice", "on", ">pw", "~app:*", "+eval", "+evalsha", "+time",
    ]);
    let store = open(&server.url_of("alice", "pw")).await;
    let advice = "leasehold doctor prints";
    for error in [
        store.held(&space()).await.unwrap_err(),
        store.inspect(&key("a")).await.unwrap_err(),
    ] {
        assert_error(&error, ErrorKind::Unauthorized, &[advice]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inspection_reads_four_keys_and_a_leader_is_read_by_three_commands() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let election = client.election("b").unwrap();
    commands(&server);
    assert!(election.leader().await.unwrap().is_none());
    assert_eq!(commands(&server), "get:2 pttl:1");
    let guard = lock(&client, "a").await;
    let mutex = client.mutex("a").unwrap();
    commands(&server);
    let lock = mutex.inspect().await.unwrap();
    assert_eq!(lock.map(|lock| lock.lease), Some(guard.lease_id()));
    // The record, the counter and the client info of the holder; the queue.
    let inspected = commands(&server);
    assert!(inspected.contains("get:3 lrange:1"), "{inspected}");
}
