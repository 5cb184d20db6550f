//! The Redis store against real servers.

mod annotations;
mod cluster;
mod connect;
mod faults;
mod grants;
mod inspect;
mod latches;
mod losses;
mod observing;
mod queue;
mod records;
mod redlock;
mod refused;
mod replicas;
mod rights;
mod rule;
mod semaphores;
mod sentinel;
mod transient;
mod wakeup;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::store::{Key, OpenOptions, Reply, Request, Store};
use leasehold::{Client, Error, ErrorKind, Guard, State};
use leasehold_core::{Name, Outcome, Ttl};
use leasehold_testkit::{RedisServer, eventually_async};

use crate::store_client::*;
use crate::waiters::SOON;

/// Longer than a failover takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

// The keys of the lock `a` in the keyspace of a `StoreClient`.
const RECORD: &str = "app:{t:a}";
const COUNTER: &str = "app:{t:a}:token";
const QUEUE: &str = "app:{t:a}:queue";

/// A server, and a store on it.
async fn server_and_store() -> (RedisServer, Arc<dyn Store>) {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    (server, store)
}

/// A connection of another client, whose timeout of 500 ms a busy machine would miss.
pub(crate) async fn connection(url: &str) -> redis::aio::MultiplexedConnection {
    let config = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(Some(LONG))
        .set_response_timeout(Some(LONG));
    let client = redis::Client::open(url).unwrap();
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    connected.await.unwrap()
}

/// The key of a lock of a client with default settings.
fn default_key(name: &str) -> Key {
    keyspace("leasehold", "default").key(Name::parse(name).unwrap())
}

/// The key of its record.
fn record(name: &str) -> String {
    crate::leftovers::record_key(&default_key(name))
}

/// A client. On a busy machine the first replies may be too late.
async fn client_at(url: &str, ttl: Duration) -> Client {
    let mut client = None;
    eventually_async(LONG, async || {
        client = Client::builder().ttl(ttl).connect(url).await.ok();
        client.is_some()
    })
    .await;
    client.unwrap()
}

async fn lock(client: &Client, name: &str) -> Guard {
    let mutex = client.mutex(name).unwrap();
    let locked = tokio::time::timeout(LONG, mutex.lock());
    locked.await.expect("the lock in time").unwrap()
}

/// The number of failovers in a test; `LEASEHOLD_FAILOVERS` changes it, to measure them.
fn failovers() -> usize {
    let failovers = std::env::var("LEASEHOLD_FAILOVERS").ok();
    failovers.map_or(2, |failovers| failovers.parse().unwrap())
}

/// Waits until it is held. On a busy machine any renewal may be late.
async fn until_held(guard: &Guard) {
    eventually_async(LONG, async || {
        assert!(!guard.state().is_lost(), "{:?}", guard.state());
        guard.state().is_held()
    })
    .await;
}

/// Retries a request until the connection is restored.
async fn eventually_applied(store: &dyn Store, request: Request) -> Outcome {
    let mut last = None;
    eventually_async(LONG, async || {
        last = outcome(&send(store, request.clone()).await);
        last.is_some()
    })
    .await;
    last.unwrap()
}

/// A store as a user who has all rights in the namespace but one command.
async fn open_without(server: &RedisServer, command: &str) -> Arc<dyn Store> {
    let denied = format!("-{}", command.to_lowercase());
    let rights = ["on", ">pw", "~app:*", "&app:*", "+@all", &denied];
    server.cli(&[&["ACL", "SETUSER", "bob", "reset"], &rights[..]].concat());
    open(&server.url_of("bob", "pw")).await
}

/// The field of a section of `INFO`.
fn info(server: &RedisServer, section: &str, field: &str) -> Option<String> {
    let info = server.cli(&["INFO", section]);
    let field = format!("{field}:");
    let value = info.lines().find_map(|line| line.strip_prefix(&field));
    value.map(|value| value.trim().to_owned())
}

/// The number of calls of each command, also by scripts.
fn all_calls(server: &RedisServer) -> BTreeMap<String, u64> {
    let stats = server.cli(&["INFO", "commandstats"]);
    let calls = stats.lines().filter_map(|line| {
        let (command, stats) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), stats.split(',').next()?.parse().ok()?))
    });
    calls.collect()
}

/// The number of calls of one command.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let calls = all_calls(server).get(command).copied();
    calls.unwrap_or_default()
}

/// The calls since the last time, without those of the test and of key tracking. The latter come later: a `CLIENT CACHING`
/// and a `GET` for each key.
fn commands(server: &RedisServer) -> String {
    let mut calls = all_calls(server);
    server.cli(&["CONFIG", "RESETSTAT"]);
    let tracked = calls.remove("client|caching").unwrap_or_default();
    if let Some(reads) = calls.get_mut("get") {
        *reads = reads.saturating_sub(tracked);
    }
    calls.retain(|command, calls| {
        !["auth", "config|resetstat", "info"].contains(&&**command) && *calls > 0
    });
    let calls = calls.iter();
    let calls: Vec<_> = calls
        .map(|(command, calls)| format!("{command}:{calls}"))
        .collect();
    calls.join(" ")
}

fn script_calls(server: &RedisServer) -> u64 {
    calls(server, "evalsha") + calls(server, "eval")
}

/// Waits until the server tracks this number of keys. Changes the key of [`works`] first, which may still be tracked for a
/// connection that has ended.
async fn until_tracked(server: &RedisServer, keys: u64) {
    const CHANGE: &str = "redis.call('SET', KEYS[1], '') redis.call('DEL', KEYS[1])";
    let is_tracked = async || {
        server.cli(&["EVAL", CHANGE, "1", "app:{t:works}"]);
        tracked(server) == keys
    };
    eventually_async(SOON, is_tracked).await;
}

fn tracked(server: &RedisServer) -> u64 {
    let keys = info(server, "stats", "tracking_total_items");
    keys.unwrap().parse().unwrap()
}

/// Puts leases of clients that never existed into a queue.
fn queue_dead(server: &RedisServer, name: &str, numbers: std::ops::Range<u64>) {
    let queue = format!("app:{{t:{name}}}:queue");
    for numbers in numbers.collect::<Vec<_>>().chunks(500) {
        let mut push = vec!["RPUSH".to_owned(), queue.clone()];
        for number in numbers {
            let lease = format!("{:032x}:{number}", number + 1_000);
            // It waits for some tokens.
            push.push(format!("{lease} 30000 {}", number % 7 + 1));
            push.push(lease);
        }
        let push: Vec<_> = push.iter().map(String::as_str).collect();
        server.cli(&push);
    }
    server.cli(&["PEXPIRE", &queue, "60000"]);
}
