//! What stands in the server for those who wait, and what others do to it.

use leasehold::ErrorKind;
use leasehold_testkit::RedisServer;

use super::event_log::{Asker, lasting, wait};
use super::*;

const RECORD: &str = "app:{t:a}";
const QUEUE: &str = "app:{t:a}:queue";

/// A server with a lock that somebody holds, and two who may ask for it.
async fn held() -> (RedisServer, Asker, Asker) {
    let server = RedisServer::start();
    let [a, b] = [
        Asker::connect(&server.url(), 1).await,
        Asker::connect(&server.url(), 2).await,
    ];
    a.take("a", 1).await;
    (server, a, b)
}

fn ttl_of(server: &RedisServer, key: &str) -> i64 {
    server.cli(&["PTTL", key]).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_a_list_of_those_who_asked_and_expires() {
    let (server, _a, b) = held().await;
    b.wait("a", 5).await;
    b.ask(lasting(wait("a", 6), 10_000)).await;
    let [first, second] = [5, 6].map(|number| b.lease(number));
    let list = server.cli(&["LRANGE", QUEUE, "0", "-1"]);
    assert_eq!(
        list,
        format!("{first} 30000 1\n{first}\n{second} 10000 1\n{second}")
    );
    // Two ttls of the longest question and a second; shorter ones change nothing.
    assert!((60_000..=61_000).contains(&ttl_of(&server, QUEUE)));
    server.cli(&["PEXPIRE", QUEUE, "30000"]);
    b.ask(lasting(wait("a", 6), 10_000)).await;
    assert!((29_000..=30_000).contains(&ttl_of(&server, QUEUE)));
    b.wait("a", 5).await;
    assert!((60_000..=61_000).contains(&ttl_of(&server, QUEUE)));
    // Whoever asks for another time keeps the place and what it asked for at first.
    b.ask(lasting(wait("a", 5), 9_000)).await;
    assert_eq!(server.cli(&["LRANGE", QUEUE, "0", "-1"]), list);
    b.ask(release("a", 5, 0)).await;
    b.ask(release("a", 6, 0)).await;
    assert_eq!(server.cli(&["EXISTS", QUEUE]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_wait_is_not_in_it() {
    let (server, _a, b) = held().await;
    let refused = b.ask(acquire("a", 1)).await;
    assert!(
        matches!(
            refused,
            Outcome::Refused {
                queue_position: None,
                ..
            }
        ),
        "{refused:?}"
    );
    assert_eq!(server.cli(&["EXISTS", QUEUE]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn something_else_under_its_key_spoils_one_lock_only() {
    for foreign in [&["SET", QUEUE, "x"][..], &["RPUSH", QUEUE, "x", "y"]] {
        let (server, a, b) = held().await;
        server.cli(foreign);
        if foreign[0] == "SET" {
            refused_for(&b, wait("a", 1), "delete that key").await;
        }
        // Who does not wait does not look.
        let refused = b.ask(acquire("a", 1)).await;
        assert!(
            matches!(
                refused,
                Outcome::Refused {
                    queue_position: None,
                    ..
                }
            ),
            "{refused:?}"
        );
        assert_eq!(a.ask(renew("a", 1)).await, Outcome::Renewed);
        // The holder can let go, whoever comes next is told why he gets nothing.
        a.release("a", 1).await;
        assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
        let batch = vec![
            b.own(acquire("b", 1)),
            b.own(acquire("a", 1)),
            b.own(acquire("c", 1)),
        ];
        let replies = b.store.apply(batch).await;
        for good in [0, 2] {
            let reply = &replies[good];
            let granted = matches!(
                reply,
                Reply::Applied {
                    outcome: Outcome::Granted { .. },
                    ..
                }
            );
            assert!(granted, "{reply:?}");
        }
        assert!(
            matches!(&replies[1], Reply::Rejected(_)),
            "{:?}",
            replies[1]
        );
        refused_for(&b, acquire("a", 1), "delete that key").await;
        assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
        server.cli(&["DEL", QUEUE]);
        b.take("a", 1).await;
    }
}

/// Checks that a request is rejected with an error that names the queue.
async fn refused_for(asker: &Asker, request: Request, advice: &str) {
    let error = rejected(&*asker.store, asker.own(request)).await;
    assert_eq!(error.kind(), ErrorKind::Store);
    let message = error.to_string();
    assert!(
        message.contains(QUEUE) && message.contains(advice),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_queues_nobody_but_grants_to_who_waits() {
    let (server, a, b) = held().await;
    b.wait("a", 1).await;
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    refused_for(&b, wait("a", 2), "raise its maxmemory").await;
    a.release("a", 1).await;
    b.granted("a", 1).await;
    assert_eq!(server.cli(&["EXISTS", QUEUE]), "0");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    b.take("b", 2).await;
    a.wait("b", 2).await;
    // Who finds it free cannot grant it, for want of memory, and who waits goes on waiting.
    server.cli(&["DEL", "app:{t:b}"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = rejected(&*b.store, b.own(acquire("b", 3))).await;
    assert!(error.to_string().contains("raise its maxmemory"), "{error}");
    assert_eq!(server.cli(&["EXISTS", "app:{t:b}"]), "0");
    assert_eq!(server.cli(&["LLEN", "app:{t:b}:queue"]), "2");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(b.ask(renew("b", 3)).await, Outcome::Lost(Loss::TakenOver));
    a.granted("b", 2).await;
}

/// The counter ends: nobody is granted anything, and the queue stays as it is.
#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_nobody_is_granted_the_lock() {
    let (server, a, b) = held().await;
    b.wait("a", 1).await;
    let max = ((1_u64 << 53) - 1).to_string();
    for bad in [&*max, "x"] {
        server.cli(&["SET", "app:{t:a}:token", bad]);
        a.ask(release("a", 1, 0)).await;
        assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
        assert_eq!(a.ask(acquire("a", 2)).await, Outcome::Exhausted);
        assert_eq!(b.ask(wait("a", 1)).await, Outcome::Exhausted);
        assert_eq!(server.cli(&["LLEN", QUEUE]), "2");
    }
    server.cli(&["DEL", "app:{t:a}:token"]);
    assert_eq!(a.ask(renew("a", 1)).await, Outcome::Lost(Loss::TakenOver));
    b.granted("a", 1).await;
}

/// What a lock costs that nobody else wants: the commands that the server runs for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_uncontended_lock_costs_two_calls_and_few_commands() {
    let server = RedisServer::start();
    let a = Asker::connect(&server.url(), 1).await;
    a.take("a", 1).await;
    a.release("a", 1).await;
    server.cli(&["CONFIG", "RESETSTAT"]);
    a.take("a", 2).await;
    a.release("a", 2).await;
    let stats = server.cli(&["INFO", "commandstats"]);
    let mut counts: Vec<_> = stats
        .lines()
        .filter_map(|line| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((command, rest.split(',').next()?.parse::<u32>().ok()?))
        })
        // Not the administrator's own, and not how the server is made to watch, which comes later.
        .filter(|(command, _)| {
            let others = ["auth", "config|resetstat", "info", "client|caching", "hget"];
            !others.contains(command)
        })
        .collect();
    counts.sort_unstable();
    let of_the_script = [
        ("get", 1),
        ("hdel", 2),
        ("hset", 1),
        ("lindex", 2),
        ("pexpire", 1),
        ("pttl", 1),
        ("set", 1),
        ("time", 2),
    ];
    let mut expected = vec![("evalsha", 2)];
    expected.extend(of_the_script);
    expected.sort_unstable();
    assert_eq!(counts, expected);
}
