//! The key of the queue: its format, foreign changes, and a server without memory.

use leasehold::{Job, LeaseOptions, Ran};

use super::*;
use crate::kinds::Kind;

/// A server with a lock, its holder, and another client.
async fn held() -> (RedisServer, StoreClient, StoreClient) {
    let server = RedisServer::start();
    let [a, b] = StoreClient::two(&server.url()).await;
    a.acquire("a", 1).await;
    (server, a, b)
}

fn ttl_of(server: &RedisServer, key: &str) -> i64 {
    server.cli(&["PTTL", key]).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_a_list_of_waiting_leases_that_expires() {
    let (server, _a, b) = held().await;
    b.wait("a", 5).await;
    b.apply(lasting(wait("a", 6), Duration::from_secs(10)))
        .await;
    let [first, second] = [5, 6].map(|number| b.lease(number));
    let list = server.cli(&["LRANGE", QUEUE, "0", "-1"]);
    assert_eq!(
        list,
        format!("{first} 30000 1\n{first}\n{second} 10000 1\n{second}")
    );
    // Two ttls of the longest request and a second; shorter ones change nothing.
    assert!((56_000..=61_000).contains(&ttl_of(&server, QUEUE)));
    server.cli(&["PEXPIRE", QUEUE, "30000"]);
    b.apply(lasting(wait("a", 6), Duration::from_secs(10)))
        .await;
    assert!((25_000..=30_000).contains(&ttl_of(&server, QUEUE)));
    b.wait("a", 5).await;
    assert!((56_000..=61_000).contains(&ttl_of(&server, QUEUE)));
    // A repetition with another ttl keeps the position and the first ttl.
    b.apply(lasting(wait("a", 5), Duration::from_secs(9))).await;
    assert_eq!(server.cli(&["LRANGE", QUEUE, "0", "-1"]), list);
    b.apply(release("a", 5)).await;
    b.apply(release("a", 6)).await;
    assert_eq!(server.cli(&["EXISTS", QUEUE]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_value_under_its_key_affects_one_lock_only() {
    for foreign in [&["SET", QUEUE, "x"][..], &["RPUSH", QUEUE, "x", "y"]] {
        let (server, a, b) = held().await;
        server.cli(foreign);
        if foreign[0] == "SET" {
            refused_for(&b, wait("a", 1), "delete that key").await;
        }
        b.is_not_queued(acquire("a", 1)).await;
        assert_eq!(a.apply(renew("a", 1)).await, Outcome::Kept);
        // The holder can release, and the next request gets the reason for its refusal.
        a.release("a", 1).await;
        assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
        let batch = [acquire("b", 1), acquire("a", 1), acquire("c", 1)];
        let batch = batch.map(|request| b.own(request));
        let replies = b.store.apply(batch.into()).await;
        assert_eq!(words(&replies), "granted rejected granted");
        refused_for(&b, acquire("a", 1), "delete that key").await;
        assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
        server.cli(&["DEL", QUEUE]);
        b.acquire("a", 1).await;
    }
}

/// Checks that a request is rejected with an error that names the queue.
async fn refused_for(client: &StoreClient, request: Request, advice: &str) {
    let error = client.rejected(request).await;
    assert_error(&error, ErrorKind::Store, &[QUEUE, advice]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_grants_to_waiters_only() {
    let (server, a, b) = held().await;
    b.wait("a", 1).await;
    server.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let advice = "raise its maxmemory";
    refused_for(&b, wait("a", 2), advice).await;
    let error = b.rejected(acquire("free", 1)).await;
    assert_error(&error, ErrorKind::Store, &[advice]);
    assert_eq!(server.cli(&["KEYS", "app:{t:free}*"]), "");
    assert_eq!(a.apply(renew("a", 1)).await, Outcome::Kept);
    for fails in [enter("a", 1, 2), release_after("a", 1)] {
        let error = a.rejected(fails).await;
        assert!(error.to_string().contains(advice), "{error}");
    }
    a.release("a", 1).await;
    b.granted("a", 1).await;
    assert_eq!(server.cli(&["EXISTS", QUEUE]), "0");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    b.acquire("b", 2).await;
    a.wait("b", 2).await;
    // Without memory the free lock is not granted, and its waiter remains.
    server.cli(&["DEL", "app:{t:b}"]);
    server.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = b.rejected(acquire("b", 3)).await;
    assert!(error.to_string().contains(advice), "{error}");
    assert_eq!(server.cli(&["EXISTS", "app:{t:b}"]), "0");
    assert_eq!(server.cli(&["LLEN", "app:{t:b}:queue"]), "2");
    server.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(b.apply(renew("b", 3)).await, TAKEN_OVER);
    a.granted("b", 2).await;
}

/// The counter is exhausted: nothing is granted, and the queue remains.
#[tokio::test(flavor = "multi_thread")]
async fn without_tokens_no_lease_is_granted_the_lock() {
    let (server, a, b) = held().await;
    b.wait("a", 1).await;
    let max = ((1_u64 << 53) - 1).to_string();
    for bad in [&*max, "x"] {
        server.cli(&["SET", "app:{t:a}:token", bad]);
        a.apply(release("a", 1)).await;
        assert_eq!(server.cli(&["EXISTS", RECORD]), "0");
        assert_eq!(a.apply(acquire("a", 2)).await, Outcome::Exhausted);
        assert_eq!(b.apply(wait("a", 1)).await, Outcome::Exhausted);
        assert_eq!(server.cli(&["LLEN", QUEUE]), "2");
    }
    server.cli(&["DEL", "app:{t:a}:token"]);
    assert_eq!(a.apply(renew("a", 1)).await, TAKEN_OVER);
    b.granted("a", 1).await;

    // There is a token, but not as many as the waiter needs.
    assert_eq!(a.join(block(wait("a", 3), 2)).await, 0);
    let last_but_one = ((1_u64 << 53) - 2).to_string();
    server.cli(&["SET", "app:{t:a}:token", &last_but_one]);
    b.apply(release("a", 1)).await;
    assert_eq!(b.apply(acquire("a", 4)).await, Outcome::Exhausted);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncontended_lock_costs_two_calls_and_few_commands() {
    let server = RedisServer::start();
    let a = StoreClient::connect(&server.url(), 1).await;
    a.acquire("a", 1).await;
    a.release("a", 1).await;
    commands(&server);
    a.acquire("a", 2).await;
    a.release("a", 2).await;
    let expected = "del:2 evalsha:2 exists:2 get:2 set:2 time:1";
    assert_eq!(commands(&server), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_lock_is_acquired_by_one_call_and_a_set_by_one_for_each_stripe() {
    const STRIPES: u64 = 4;
    let server = RedisServer::start();
    let client = client_at(&server.url(), LONG).await;
    let mutexes = (0..64).map(|nth| client.mutex(format!("set/{nth}")).unwrap());
    let set = client.all(mutexes.map(|mutex| mutex.for_lock())).unwrap();
    // The first calls load the scripts.
    set.lock().await.unwrap().release().await.unwrap();
    let reader = Kind::Reader.lock(&client, "loads", LeaseOptions::new());
    reader.await.unwrap().release().await.unwrap();
    for kind in [Kind::Mutex, Kind::Permit, Kind::Reader, Kind::Writer] {
        let name = format!("{kind:?}");
        server.cli(&["CONFIG", "RESETSTAT"]);
        let held = kind.lock(&client, &name, LeaseOptions::new()).await;
        let held = held.unwrap();
        assert_eq!(script_calls(&server), 1, "{kind:?}");
        held.release().await.unwrap();
    }
    server.cli(&["CONFIG", "RESETSTAT"]);
    let guards = set.lock().await.unwrap();
    assert_eq!(script_calls(&server), STRIPES);
    guards.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncontended_run_costs_two_calls_and_one_that_is_complete_a_single_call() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.unwrap();
    let run = async |job: &Job| {
        let work = job.run(async |_| Ok::<_, leasehold::Error>(())).await;
        matches!(work.unwrap(), Ran::Now(()))
    };
    let once = |key| client.once("migrate", key).unwrap();
    assert!(run(&once("v0")).await);
    // The client registers itself in the background when it has its first lease.
    let registration = format!("leasehold:client:{}", client.id());
    let registered = async || server.cli(&["EXISTS", &registration]) == "1";
    eventually_async(SOON, registered).await;
    let daily = client.job("migrate", Duration::from_secs(86_400)).unwrap();
    for job in [once("v1"), daily] {
        commands(&server);
        assert!(run(&job).await);
        let expected = "del:2 evalsha:2 get:4 lindex:2 set:3 time:2";
        assert_eq!(commands(&server), expected);
        assert!(!run(&job).await);
        assert_eq!(commands(&server), "evalsha:1 get:2 lindex:2 time:1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_a_new_client_costs_few_commands() {
    let server = RedisServer::start();
    let run = async |key| {
        let client = Client::connect(&server.url()).await.unwrap();
        let once = client.once("migrate", key).unwrap();
        let work = once.run(async |_| Ok::<_, leasehold::Error>(())).await;
        assert_eq!(work.unwrap(), Ran::Now(()));
        client.shutdown(SOON).await.unwrap();
    };
    // The first one loads the script.
    run("v1").await;
    commands(&server);
    run("v2").await;
    let counts = commands(&server);
    let calls = counts
        .split([' ', ':'])
        .filter_map(|word| word.parse::<u32>().ok());
    assert!(calls.sum::<u32>() <= 26, "{counts}");
}
