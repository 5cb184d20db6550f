//! Latches in a server: their keys, foreign values in them, and users who lack rights.

use super::*;
use crate::store_ext::StoreExt as _;

/// As docs/redis.md describes it, so that other programs can read it.
#[tokio::test(flavor = "multi_thread")]
async fn a_latch_is_a_hash_in_the_key_of_the_record_that_expires() {
    let (server, store) = server_and_store().await;
    for id in ["b c", "latch 9 9", "b c"] {
        store.arrive(&key("a"), id, 3).await.unwrap();
    }
    assert_eq!(server.cli(&["HKEYS", RECORD]), ":b c\n.\n:latch 9 9");
    assert_eq!(server.cli(&["HGET", RECORD, "."]), "latch 2 3");
    assert_eq!(server.cli(&["KEYS", "*"]), RECORD);
    let time_left: u64 = server.cli(&["PTTL", RECORD]).parse().unwrap();
    assert!((25_000..=30_000).contains(&time_left), "{time_left}");
    // One without an expiry, as nothing here leaves it, gets one.
    server.cli(&["PERSIST", RECORD]);
    assert!(store.arrive(&key("a"), "d", 3).await.unwrap().is_open());
    let time_left: u64 = server.cli(&["PTTL", RECORD]).parse().unwrap();
    assert!((25_000..=30_000).contains(&time_left), "{time_left}");
    assert!(store.reset_latch(&key("a")).await.unwrap());
    assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_value_is_an_error_and_is_left_unchanged() {
    let (server, store) = server_and_store().await;
    for command in [
        &["SET", RECORD, "somebody"][..],
        &["RPUSH", RECORD, "latch 1 3"],
        &["HSET", RECORD, "latch", "3"],
        &["HSET", RECORD, ".", "barrier 2"],
        &["SADD", RECORD, "x"],
    ] {
        server.cli(command);
        let before = server.cli(&["DUMP", RECORD]);
        let mut errors = vec![
            store.arrive(&key("a"), "b", 3).await.unwrap_err(),
            store.reset_latch(&key("a")).await.unwrap_err(),
            rejected(&*store, acquire("a", 1)).await,
            store.inspect(&key("a")).await.unwrap_err(),
        ];
        match store.watch_latch(&key("a")).await {
            Err(error) => errors.push(error),
            // Only the field of its status is read.
            Ok(status) => assert!(command[0] == "HSET" && status.is_none()),
        }
        let parts = [r#"lock "a" at redis://"#, RECORD];
        for error in errors {
            assert_error(&error, ErrorKind::Store, &parts);
        }
        assert_eq!(server.cli(&["DUMP", RECORD]), before);
        server.cli(&["DEL", RECORD]);
    }
}

/// Nothing is stored without an expiry, and the error names the right. The rights of locks are enough otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_lacks_a_right_gets_an_error_and_changes_nothing() {
    let server = RedisServer::start();
    for command in ["hget", "exists", "pttl", "pexpire", "hset"] {
        let store = open_without(&server, command).await;
        let error = store.arrive(&key("a"), "b", 3).await.unwrap_err();
        assert_error(&error, ErrorKind::Unauthorized, &[&command.to_uppercase()]);
        assert_eq!(server.cli(&["EXISTS", RECORD]), "0", "{command}");
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let store = open(&server.url()).await;
    let error = store.arrive(&key("a"), "b", 3).await.unwrap_err();
    assert!(error.to_string().contains("maxmemory"), "{error}");
    assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
}

/// The commands of an arrival at a latch where so many have arrived before.
async fn commands_of_arrival(server: &RedisServer, store: &dyn Store, before: u32) -> String {
    let ids: Vec<_> = (0..before)
        .flat_map(|nth| [format!(":{nth}"), String::new()])
        .collect();
    let status = format!("latch {before} 10000");
    if before > 0 {
        let mut fields = vec!["HSET", RECORD, ".", &status];
        fields.extend(ids.iter().map(String::as_str));
        server.cli(&fields);
        server.cli(&["PEXPIRE", RECORD, "60000"]);
    }
    commands(server);
    let status = store.arrive(&key("a"), "last", 10_000).await.unwrap();
    assert_eq!(status.arrived, before + 1);
    commands(server)
}

/// The time of each of these commands does not depend on the size of the hash.
#[tokio::test(flavor = "multi_thread")]
async fn an_arrival_costs_the_same_however_many_have_arrived() {
    let (server, store) = server_and_store().await;
    store
        .arrive(&key("a"), "loads the script", 1)
        .await
        .unwrap();
    for (before, expected) in [
        (0, "evalsha:1 exists:2 hget:1 hset:1 pexpire:1 pttl:1"),
        (9_999, "evalsha:1 hexists:1 hget:1 hset:1 pttl:1"),
    ] {
        server.cli(&["FLUSHALL"]);
        let commands = commands_of_arrival(&server, &*store, before).await;
        assert_eq!(commands, expected);
    }
}
