//! What people see: inspect, list and announce.

use std::time::{Duration, UNIX_EPOCH};

use leasehold::ErrorKind;
use leasehold::store::{ClientInfo, Keyspace};
use leasehold_core::{ClientId, ScopeName};
use leasehold_testkit::{RedisServer, eventually_async};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_held_lock_is_shown_with_all_that_is_known() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    assert_eq!(store.inspect(&key("a")).await.unwrap(), None);
    let token = granted(&*store, acquire("a", 1)).await;
    applied(&*store, release("a", 1, 3)).await;
    let entry = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(entry.key, key("a"));
    assert_eq!((entry.lease, entry.count), (lease(1), 3));
    assert_eq!(entry.token.map(|token| token.get()), Some(token));
    assert!(
        entry.time_left > Duration::from_secs(29) && entry.time_left <= Duration::from_secs(30)
    );
    assert_eq!(entry.client, None);

    let mut info = ClientInfo::default();
    info.host = "böx".to_owned();
    info.pid = 4_711;
    info.program = "/usr/bin/worker".to_owned();
    info.since = UNIX_EPOCH + Duration::from_millis(1_800_000_000_123);
    let ttl = Duration::from_millis(60_000);
    store
        .register_client(&space(), lease(1).client, &info, ttl)
        .await
        .unwrap();
    let entry = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(entry.client, Some(info.clone()));
    let place = format!("app:client:{}", lease(1).client);
    let left: u64 = server.cli(&["PTTL", &place]).parse().unwrap();
    assert!((59_000..=60_000).contains(&left));

    // Announced again it lasts longer; not announced any more it is forgotten.
    store
        .register_client(&space(), lease(1).client, &info, Duration::MAX)
        .await
        .unwrap();
    store
        .register_client(&space(), lease(1).client, &info, Duration::ZERO)
        .await
        .unwrap();
    eventually_async(SOON, async || {
        let entry = store.inspect(&key("a")).await.unwrap().unwrap();
        entry.client.is_none()
    })
    .await;

    server.cli(&["DEL", "app:{t:a}:token"]);
    server.cli(&["PERSIST", "app:{t:a}"]);
    let entry = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(
        (entry.token, entry.time_left),
        (None, Ttl::MAX.as_duration())
    );
    server.cli(&["HSET", "app:{t:a}", "somebody", "1"]);
    let error = store.inspect(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(
        error.to_string().contains(r#"lock "a" at redis://"#),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_space_is_listed_by_name_and_without_what_is_not_ours() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let names = [
        "b",
        "a",
        "a:token",
        "x}y".trim_end_matches("}y"),
        "[*?]\\",
        "昼/夜",
    ];
    let mut batch: Vec<_> = names.iter().map(|name| acquire(name, 1)).collect();
    for scope in ["u", "tt"] {
        let tenant = ScopeName::parse(scope).unwrap();
        let other = Keyspace::new(space().namespace().clone(), tenant);
        let key = other.key(Name::parse("elsewhere").unwrap());
        batch.push(Request::new(key, acquire("a", 1).op));
    }
    store.apply(batch).await;
    server.cli(&["SET", "app:{t:string}", "1"]);
    server.cli(&["HSET", "app:{t:foreign}", "somebody", "1"]);
    server.cli(&["HSET", "app:{t:count}", &lease(1).to_string(), "many"]);
    server.cli(&["HSET", "app:{t:two}", &lease(1).to_string(), "1", "x", "1"]);
    server.cli(&["HSET", "app:{t:bra}ce}", &lease(1).to_string(), "1"]);
    server.cli(&["HSET", "app:{t:}", &lease(1).to_string(), "1"]);

    let listed = store.list(&space()).await.unwrap();
    let mut expected: Vec<_> = names.iter().map(|name| key(name)).collect();
    expected.sort();
    let keys: Vec<_> = listed.iter().map(|entry| entry.key.clone()).collect();
    assert_eq!(keys, expected);
    assert!(listed.iter().all(|entry| entry.token.is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_list_is_whole_and_knows_its_clients() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let client = |number: u8| ClientId::from_random([number; 16]);
    let batch = (0..2_500_u64).map(|n| {
        let mut request = acquire(&format!("{n:04}"), n);
        if let Op::Acquire { lease, .. } = &mut request.op {
            lease.client = client(u8::try_from(n % 3).unwrap());
        }
        request
    });
    store.apply(batch.collect()).await;
    server.cli(&["DEBUG", "POPULATE", "3000"]);
    for number in 0..2 {
        let mut info = ClientInfo::default();
        info.pid = u32::from(number);
        store
            .register_client(&space(), client(number), &info, SOON)
            .await
            .unwrap();
    }
    // A client's hash that is none is no reason to show nothing.
    server.cli(&["SET", &format!("app:client:{}", client(2)), "x"]);
    let listed = store.list(&space()).await.unwrap();
    assert_eq!(listed.len(), 2_500);
    for (n, entry) in (0..2_500_u64).zip(listed) {
        assert_eq!(entry.lease.number, n);
        let pid = entry.client.map(|info| u64::from(info.pid));
        assert_eq!(pid, Some(n % 3).filter(|client| *client < 2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_look_is_told_so() {
    let server = RedisServer::start();
    server.cli(&[
        "ACL", "SETUSER", "alice", "on", ">pw", "~app:*", "+eval", "+evalsha", "+time",
    ]);
    let store = open(&server.url_of("alice", "pw")).await;
    for error in [
        store.list(&space()).await.unwrap_err(),
        store.inspect(&key("a")).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
        assert!(error.to_string().contains("allow it"), "{error}");
    }
}
