//! Keys that others wrote, and requests that fail one by one.

use leasehold::ErrorKind;

use super::*;

const RECORD: &str = "app:{t:a}";
const COUNTER: &str = "app:{t:a}:token";

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_are_as_the_script_documents() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let token = granted(&*store, acquire("a", 42)).await;
    let field = format!("{}:42", "07".repeat(16));
    assert_eq!(server.cli(&["GET", RECORD]), field);
    assert_eq!(server.cli(&["GET", COUNTER]), token.to_string());
    let ttl = |key| server.cli(&["PTTL", key]).parse::<u64>().unwrap();
    assert!((29_000..=30_000).contains(&ttl(RECORD)));
    let day = leasehold_core::token::RETENTION_MS;
    assert!((day - 1_000..=day).contains(&ttl(COUNTER)));
    applied(&*store, release("a", 42, 0)).await;
    assert_eq!(server.cli(&["KEYS", "*"]), COUNTER);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_key_affects_no_other_request_of_its_batch() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    server.cli(&["SET", RECORD, "x"]);
    server.cli(&["RPUSH", "app:{t:c}:token", "x"]);
    let batch = vec![
        acquire("before", 1),
        acquire("a", 1),
        renew("a", 1),
        release("a", 1, 0),
        release("a", 1, 1),
        revoke("a"),
        acquire("c", 1),
        acquire("after", 1),
    ];
    let replies = store.apply(batch).await;
    assert!(
        is_granted(&replies[0]) && is_granted(&replies[7]),
        "{replies:?}"
    );
    for (nth, reply) in replies[1..7].iter().enumerate() {
        let Reply::Rejected(error) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Store);
        let (key, lock) = match nth {
            5 => ("app:{t:c}:token", "c"),
            _ => (RECORD, "a"),
        };
        let message = error.to_string();
        let store = format!("lock {lock:?} at {}: ", server.url());
        assert!(message.starts_with(&store), "{message}");
        assert!(message.contains(&format!("{key:?}")), "{message}");
        assert!(message.contains("delete that key"), "{message}");
    }
    assert_eq!(server.cli(&["GET", RECORD]), "x");
    assert_eq!(server.cli(&["EXISTS", "app:{t:c}"]), "0");
    let error = store.inspect(&key("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store);
}

/// Earlier versions kept the holder in a hash.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_an_earlier_layout_is_named_and_left_unchanged() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    server.cli(&["HSET", RECORD, &lease(1).to_string(), "1"]);
    for request in [
        acquire("a", 1),
        wait("a", 1),
        renew("a", 1),
        release("a", 1, 0),
        release("a", 1, 1),
        revoke("a"),
    ] {
        let message = rejected(&*store, request).await.to_string();
        let named = message.contains(r#"lock "a""#) && message.contains(&format!("{RECORD:?}"));
        assert!(named && message.contains("of this version"), "{message}");
    }
    assert_eq!(server.cli(&["HGETALL", RECORD]), format!("{}\n1", lease(1)));
    assert_eq!(server.cli(&["KEYS", "*"]), RECORD);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_without_expiry_is_held_until_it_is_revoked() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let other = format!("{}:1", "0".repeat(32));
    server.cli(&["SET", RECORD, &other]);
    let left = Ttl::MAX.as_duration();
    assert_eq!(
        applied(&*store, acquire("a", 1)).await,
        Outcome::Refused {
            time_left: left,
            queue_position: None
        }
    );
    assert_eq!(
        applied(&*store, renew("a", 1)).await,
        Outcome::Lost(Loss::TakenOver)
    );
    assert_eq!(
        applied(&*store, release("a", 1, 0)).await,
        Outcome::Lost(Loss::TakenOver)
    );
    assert_eq!(server.cli(&["GET", RECORD]), other);
    server.cli(&["PEXPIRE", RECORD, "5000"]);
    let Outcome::Refused {
        time_left: left, ..
    } = applied(&*store, acquire("a", 1)).await
    else {
        panic!("granted over a foreign record");
    };
    assert!(left <= std::time::Duration::from_secs(5));
    assert_eq!(
        applied(&*store, revoke("a")).await,
        Outcome::Revoked {
            cut_off: Some(other.parse().unwrap())
        }
    );
    granted(&*store, acquire("a", 1)).await;

    // A lease whose expiry was removed is still held, and a renewal sets it again.
    server.cli(&["PERSIST", RECORD]);
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Renewed);
    assert_ne!(server.cli(&["PTTL", RECORD]), "-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_counter_grants_no_token() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let max = (1_u64 << 53) - 1;
    let beyond = (max + 1).to_string();
    for bad in [
        "",
        "x",
        "-1",
        "1.5",
        "1e3",
        "0x10",
        " 1",
        "nan",
        "inf",
        &beyond,
        "99999999999999999999999",
    ] {
        server.cli(&["SET", COUNTER, bad]);
        assert_eq!(
            applied(&*store, acquire("a", 1)).await,
            Outcome::Exhausted,
            "{bad:?}"
        );
        assert_eq!(server.cli(&["EXISTS", RECORD]), "0", "{bad:?}");
        assert_eq!(server.cli(&["GET", COUNTER]), bad);
    }
    // The last token, and the same again for its holder.
    server.cli(&["SET", COUNTER, &(max - 1).to_string()]);
    assert_eq!(granted(&*store, acquire("a", 1)).await, max);
    assert_eq!(granted(&*store, acquire("a", 1)).await, max);
    assert_eq!(server.cli(&["GET", COUNTER]), max.to_string());
    applied(&*store, release("a", 1, 0)).await;
    assert_eq!(applied(&*store, acquire("a", 2)).await, Outcome::Exhausted);
    // For a holder, too: no token is better than a wrong one.
    server.cli(&["DEL", COUNTER]);
    granted(&*store, acquire("a", 2)).await;
    for bad in ["x", &beyond, "99999999999999999999999"] {
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
    assert_eq!(error.kind(), ErrorKind::Store);
    let advice = "connect to its master";
    assert!(error.to_string().contains(advice), "{error}");
    granted(&*open(&master.url()).await, acquire("a", 1)).await;
    // No request is confirmed because more time is left than it wants.
    master.cli(&["PEXPIRE", RECORD, "90000"]);
    leasehold_testkit::eventually(SOON, || {
        replica.cli(&["PTTL", RECORD]).parse::<i64>().unwrap() > 60_000
    });
    for request in [
        renew("a", 1),
        release("a", 1, 0),
        acquire("a", 1),
        release("a", 1, 2),
        revoke("a"),
    ] {
        let error = rejected(&*store, request).await;
        assert!(error.to_string().contains(advice), "{error}");
    }
    let entry = store.inspect(&key("a")).await.unwrap().unwrap();
    assert_eq!(entry.lease, lease(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_grants_nothing_but_releases() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    granted(&*store, acquire("held", 1)).await;
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = rejected(&*store, acquire("a", 1)).await;
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("raise its maxmemory"), "{error}");
    assert_eq!(server.cli(&["KEYS", "app:{t:a}*"]), "");
    assert_eq!(applied(&*store, renew("held", 1)).await, Outcome::Renewed);
    assert_eq!(
        applied(&*store, release("held", 1, 0)).await,
        Outcome::Released { count: 0 }
    );
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    works(&*store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_enough_replicas_is_named() {
    let server = RedisServer::options()
        .config("min-replicas-to-write 1")
        .start();
    let store = open(&server.url()).await;
    let error = rejected(&*store, acquire("a", 1)).await;
    assert_eq!(error.kind(), ErrorKind::Store);
    let setting = "min-replicas-to-write";
    assert!(error.to_string().contains(setting), "{error}");
}
