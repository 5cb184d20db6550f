//! Latches in a server: their keys, foreign values in them, and users who lack rights.

use leasehold::ErrorKind;
use leasehold::store::{ArrivalId, LatchCount, LatchStatus, Op};

use super::*;
use crate::readings::{Arrival, Beside as _, Readings as _};

const RECORD: &str = "app:{t:a}";

async fn arrive(store: &dyn Store, id: &str, count: u32) -> Result<LatchStatus, Error> {
    let arrival = Arrival {
        id: ArrivalId::parse(id).unwrap(),
        count: LatchCount::new(count).unwrap(),
        ttl: TTL,
    };
    store.arrive(&key("a"), &arrival).await
}

/// As docs/redis.md describes it, so that other programs can read it.
#[tokio::test(flavor = "multi_thread")]
async fn a_latch_is_a_hash_in_the_key_of_the_record_that_expires() {
    let (server, store) = server_and_store().await;
    for id in ["b c", "latch 9 9", "b c"] {
        arrive(&*store, id, 3).await.unwrap();
    }
    assert_eq!(server.cli(&["HKEYS", RECORD]), ":b c\n.\n:latch 9 9");
    assert_eq!(server.cli(&["HGET", RECORD, "."]), "latch 2 3");
    assert_eq!(server.cli(&["KEYS", "*"]), RECORD);
    let time_left: u64 = server.cli(&["PTTL", RECORD]).parse().unwrap();
    assert!((29_000..=30_000).contains(&time_left), "{time_left}");
    // One without an expiry, as nothing here leaves it, gets one.
    server.cli(&["PERSIST", RECORD]);
    assert!(arrive(&*store, "d", 3).await.unwrap().is_open());
    let time_left: u64 = server.cli(&["PTTL", RECORD]).parse().unwrap();
    assert!((29_000..=30_000).contains(&time_left), "{time_left}");
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
        for error in [
            arrive(&*store, "b", 3).await.unwrap_err(),
            store.reset_latch(&key("a")).await.unwrap_err(),
            store.watch_latch(&key("a")).await.map(drop).unwrap_err(),
            rejected(&*store, acquire("a", 1)).await,
            store.inspect(&key("a")).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Store, "{error}");
            let message = error.to_string();
            assert!(message.contains(r#"lock "a" at redis://"#), "{message}");
            assert!(message.contains(RECORD), "{message}");
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
        let rights = ["~app:*", "&*", "+@all", &format!("-{command}")];
        server.cli(
            &[
                &["ACL", "SETUSER", "bob", "reset", "on", ">pw"],
                &rights[..],
            ]
            .concat(),
        );
        let store = open(&server.url_of("bob", "pw")).await;
        let error = arrive(&*store, "b", 3).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{command}: {error}");
        let words = command.to_uppercase();
        assert!(error.to_string().contains(&words), "{command}: {error}");
        assert_eq!(server.cli(&["EXISTS", RECORD]), "0", "{command}");
    }
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let store = open(&server.url()).await;
    let error = arrive(&*store, "b", 3).await.unwrap_err();
    assert!(error.to_string().contains("maxmemory"), "{error}");
    assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
}

/// The time that the server needs for arrivals at a latch where none or many have arrived before, in microseconds.
async fn cost(server: &RedisServer, store: &dyn Store, before: u32) -> u64 {
    const ARRIVALS: u32 = 200;
    const COUNT: u32 = 10_000;
    let keys: Vec<_> = (0..ARRIVALS)
        .map(|nth| format!("app:{{t:a/{before}/{nth}}}"))
        .collect();
    let ids: Vec<_> = (0..before)
        .flat_map(|nth| [format!(":{nth}"), String::new()])
        .collect();
    let status = format!("latch {before} {COUNT}");
    for key in keys.iter().filter(|_| before > 0) {
        let mut fields = vec!["HSET", key, ".", &status];
        fields.extend(ids.iter().map(String::as_str));
        server.cli(&fields);
        server.cli(&["PEXPIRE", key, "60000"]);
    }
    let arrivals = (0..ARRIVALS).map(|nth| {
        let op = Op::Arrive {
            id: ArrivalId::parse("last").unwrap(),
            count: LatchCount::new(COUNT).unwrap(),
            keep: TTL,
        };
        Request::new(key(&format!("a/{before}/{nth}")), op)
    });
    server.cli(&["CONFIG", "RESETSTAT"]);
    let replies = store.apply(arrivals.collect()).await;
    let arrived = |reply: &Reply| matches!(outcome(reply), Some(Outcome::Arrived(status)) if status.arrived == before + 1);
    assert!(replies.iter().all(arrived), "{replies:?}");
    ["evalsha", "eval"]
        .map(|command| usecs(server, command))
        .iter()
        .sum()
}

fn usecs(server: &RedisServer, command: &str) -> u64 {
    let stats = info(server, "commandstats", &format!("cmdstat_{command}"));
    let stats = stats.unwrap_or_default();
    let usecs = stats
        .split_once("usec=")
        .and_then(|(_, rest)| rest.split_once(','));
    usecs.map_or(0, |(usecs, _)| usecs.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_arrival_costs_the_same_however_many_have_arrived() {
    let (server, store) = server_and_store().await;
    // The first call loads the script.
    cost(&server, &*store, 0).await;
    let mut costs = [0, 9_999].map(|before| (before, Vec::new()));
    for round in 0..3 {
        for (before, costs) in &mut costs {
            server.cli(&["FLUSHALL"]);
            let cost = cost(&server, &*store, *before).await;
            costs.push((cost, round));
        }
    }
    let [first, last] = costs.map(|(_, costs)| costs.iter().min().unwrap().0);
    assert!(last <= 2 * first, "{first} µs, {last} µs");
}
