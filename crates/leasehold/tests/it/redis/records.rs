//! Keys that others wrote, and requests that fail one by one.

use leasehold::Cause;

use super::annotations::VALUE;
use super::*;
use crate::store_ext::StoreExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_are_as_the_script_documents() {
    let (server, store) = server_and_store().await;
    let token = granted(&*store, acquire("a", 42)).await;
    let field = format!("{}:42", "07".repeat(16));
    assert_eq!(server.cli(&["GET", RECORD]), field);
    assert_eq!(server.cli(&["GET", COUNTER]), token.to_string());
    let ttl = |key| server.cli(&["PTTL", key]).parse::<u64>().unwrap();
    assert!((25_000..=30_000).contains(&ttl(RECORD)));
    let day = leasehold_core::token::RETENTION_MS;
    assert!((day - 5_000..=day).contains(&ttl(COUNTER)));
    applied(&*store, release("a", 42)).await;
    assert_eq!(server.cli(&["KEYS", "*"]), COUNTER);
}

/// Earlier versions kept the holder in a hash.
#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_key_affects_no_other_request_of_its_batch() {
    let (server, store) = server_and_store().await;
    let holder = lease(1).to_string();
    for foreign in [&["SET", RECORD, "x"][..], &["HSET", RECORD, &holder, "1"]] {
        server.cli(&["FLUSHALL"]);
        server.cli(foreign);
        server.cli(&["RPUSH", "app:{t:c}:token", "x"]);
        let before = server.cli(&["DUMP", RECORD]);
        let batch = vec![
            acquire("before", 1),
            acquire("a", 1),
            wait("a", 1),
            renew("a", 1),
            release("a", 1),
            enter("a", 1, 1),
            revoke("a"),
            acquire("c", 1),
            acquire("after", 1),
        ];
        let replies = store.apply(batch).await;
        let rejected = ["rejected"; 7].join(" ");
        assert_eq!(words(&replies), format!("granted {rejected} granted"));
        for (nth, reply) in replies[1..8].iter().enumerate() {
            let error = error(reply);
            assert_eq!(error.kind(), ErrorKind::Store);
            let (key, lock) = match nth {
                6 => ("app:{t:c}:token", "c"),
                _ => (RECORD, "a"),
            };
            let message = error.to_string();
            let store = format!("lock {lock:?} at {}: ", server.url());
            assert!(message.starts_with(&store), "{message}");
            for part in [&*format!("{key:?}"), "of this version", "delete that key"] {
                assert!(message.contains(part), "{message}");
            }
        }
        assert_eq!(server.cli(&["DUMP", RECORD]), before);
        assert_eq!(server.cli(&["EXISTS", COUNTER, "app:{t:c}"]), "0");
        let error = store.inspect(&key("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_names_no_lease_is_not_revoked() {
    let (server, store) = server_and_store().await;
    let foreign = format!("{}:1", "z".repeat(32));
    for record in ["", foreign.as_str()] {
        server.cli(&["SET", RECORD, record]);
        let replies = store.apply(vec![revoke("a"), acquire("after", 1)]).await;
        assert_eq!(words(&replies), "rejected granted");
        let message = error(&replies[0]).to_string();
        assert!(message.contains("delete that key"), "{message}");
        assert_eq!(server.cli(&["EXISTS", RECORD]), "1");
        assert_eq!(server.cli(&["GET", RECORD]), record);
    }
}

/// A waiter for a run that nobody can have asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_queue_affects_no_other_request_of_its_batch() {
    let (server, store) = server_and_store().await;
    let waiter = StoreClient::listening(&store, 1).await;
    let push = |tokens: &str| {
        let lease = waiter.lease(9).to_string();
        let entry = format!("{lease} 30000 {tokens} x");
        server.cli(&["RPUSH", "app:{t:a}:queue", &entry, &lease]);
    };
    push("1");
    let batch = vec![acquire("a", 1), acquire("after", 1)];
    assert_eq!(words(&store.apply(batch).await), "rejected granted");

    server.cli(&["DEL", "app:{t:a}:queue"]);
    let permit = |number| permits(acquire("a", number), 1, 2);
    granted(&*store, permit(1)).await;
    push("1x1");
    let batch = vec![permit(2), renew("a", 1), acquire("last", 1)];
    let replies = store.apply(batch).await;
    assert_eq!(words(&replies), "rejected applied granted");
    let message = error(&replies[0]).to_string();
    assert!(message.contains("app:{t:a}:queue"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_expiry_is_held_until_it_is_revoked() {
    let (server, store) = server_and_store().await;
    let other = format!("{}:1", "0".repeat(32));
    server.cli(&["SET", RECORD, &other]);
    let left = Ttl::MAX.as_duration();
    let refused = Outcome::Refused {
        time_left: Some(left),
        queue_position: None,
    };
    assert_eq!(applied(&*store, acquire("a", 1)).await, refused);
    assert_eq!(applied(&*store, renew("a", 1)).await, TAKEN_OVER);
    assert_eq!(applied(&*store, release("a", 1)).await, TAKEN_OVER);
    assert_eq!(server.cli(&["GET", RECORD]), other);
    server.cli(&["PEXPIRE", RECORD, "5000"]);
    let Outcome::Refused {
        time_left: Some(left),
        ..
    } = applied(&*store, acquire("a", 1)).await
    else {
        panic!("granted over a foreign record");
    };
    assert!(left <= std::time::Duration::from_secs(5));
    let revoked = Outcome::Revoked(vec![other.parse().unwrap()]);
    assert_eq!(applied(&*store, revoke("a")).await, revoked);
    let mark = format!("{RECORD}:revoked");
    assert_eq!(server.cli(&["GET", &mark]), other);
    let kept: u64 = server.cli(&["PTTL", &mark]).parse().unwrap();
    assert!(kept <= 60_000, "{kept}");
    granted(&*store, acquire("a", 1)).await;

    // A lease whose expiry was removed is still held, and a renewal sets it again.
    server.cli(&["PERSIST", RECORD]);
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    assert_ne!(server.cli(&["PTTL", RECORD]), "-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_counter_grants_no_token() {
    let (server, store) = server_and_store().await;
    let max = (1_u64 << 53) - 1;
    let beyond = (max + 1).to_string();
    let large = "99999999999999999999999";
    let bad = ["", "x", "-1", "1.5", "1e3", "0x10", " 1", "nan", "inf"];
    for bad in bad.into_iter().chain([&*beyond, large]) {
        server.cli(&["SET", COUNTER, bad]);
        let outcome = applied(&*store, acquire("a", 1)).await;
        assert_eq!(outcome, Outcome::Exhausted, "{bad:?}");
        assert_eq!(server.cli(&["EXISTS", RECORD]), "0", "{bad:?}");
        assert_eq!(server.cli(&["GET", COUNTER]), bad);
    }
    // The last token, and the same again for its holder.
    server.cli(&["SET", COUNTER, &(max - 1).to_string()]);
    assert_eq!(granted(&*store, acquire("a", 1)).await, max);
    assert_eq!(granted(&*store, acquire("a", 1)).await, max);
    assert_eq!(server.cli(&["GET", COUNTER]), max.to_string());
    applied(&*store, release("a", 1)).await;
    assert_eq!(applied(&*store, acquire("a", 2)).await, Outcome::Exhausted);
    // Also for a holder: no token is better than a wrong one.
    server.cli(&["DEL", COUNTER]);
    granted(&*store, acquire("a", 2)).await;
    for bad in ["x", &beyond, large] {
        server.cli(&["SET", COUNTER, bad]);
        let again = applied(&*store, acquire("a", 2)).await;
        assert_eq!(again, Outcome::Exhausted, "{bad}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_replica_grants_nothing() {
    let master = RedisServer::start();
    let replica = RedisServer::options().replica_of(&master).start();
    let store = open(&replica.url()).await;
    let error = rejected(&*store, acquire("a", 1)).await;
    let advice = "connect to its master";
    assert_error(&error, ErrorKind::Store, &[advice]);
    granted(&*open(&master.url()).await, acquire("a", 1)).await;
    // No request is confirmed because more time is left than it wants.
    master.cli(&["PEXPIRE", RECORD, "90000"]);
    leasehold_testkit::eventually(SOON, || {
        replica.cli(&["PTTL", RECORD]).parse::<i64>().unwrap() > 60_000
    });
    for request in [
        renew("a", 1),
        release("a", 1),
        acquire("a", 1),
        enter("a", 1, 2),
        revoke("a"),
    ] {
        let error = rejected(&*store, request).await;
        assert!(error.to_string().contains(advice), "{error}");
    }
    // Its data may be old, so nobody observes them.
    let error = store.observe(&key("a"), &VALUE).await.unwrap_err();
    let parts = [advice, r#"lock "a" at redis://"#];
    assert_error(&error, ErrorKind::Store, &parts);
    let entry = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(entry.lease, lease(1));
}

/// A server whose disk is full, or that cannot write its file for another reason, refuses all writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_save_renews_and_grants_nothing() {
    let options = RedisServer::options().config("enable-protected-configs yes");
    let server = options.config("save 3600 1").start();
    let holder = client_at(&server.url(), Duration::from_secs(6)).await;
    let guard = lock(&holder, "held").await;
    let others = client_at(&server.url(), LONG).await;
    server.cli(&["CONFIG", "SET", "dir", "/proc"]);
    server.cli(&["BGSAVE"]);
    let failed = async || info(&server, "persistence", "rdb_last_bgsave_status").unwrap() == "err";
    eventually_async(LONG, failed).await;
    let error = others.mutex("free").unwrap().try_lock().await.unwrap_err();
    assert_error(&error, ErrorKind::Store, &["check its disk"]);
    let lost = tokio::time::timeout(LONG, guard.lost());
    assert_eq!(lost.await.unwrap(), Cause::Unreachable);
}
