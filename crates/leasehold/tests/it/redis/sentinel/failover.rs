//! A failover while locks are held and waited for.

use std::time::Instant;

use leasehold::{Cause, StateKind};

use super::*;

const LOCKS: usize = 50;

/// Each failover is over long before a lease of this ttl is given up.
const TTL: Duration = Duration::from_secs(60);

async fn set_and_client() -> (SentinelSet, Client) {
    let set = SentinelSet::start();
    let client = client_at(&set.url(), TTL).await;
    (set, client)
}

async fn lock_all(client: &Client, names: std::ops::Range<usize>) -> Vec<Guard> {
    let mut guards = Vec::new();
    for name in names {
        guards.push(lock(client, &name.to_string()).await);
    }
    guards
}

/// The lease in the record of a lock.
fn recorded(server: &RedisServer, name: &str) -> String {
    server.cli(&["GET", &record(name)])
}

/// Also after an ordered failover: `doctor::allowed`. A lease is in jeopardy from the end of the connection until the
/// new master has confirmed it.
#[tokio::test(flavor = "multi_thread")]
async fn locks_are_held_over_a_crash_of_the_master() {
    for _ in 0..failovers() {
        let (mut set, client) = set_and_client().await;
        let guards = lock_all(&client, 0..LOCKS).await;
        set.until_in_sync();
        let mut states = guards[0].states();
        assert!(states.next().await.unwrap().is_held());
        let begun = Instant::now();
        let old = set.kill_master();
        let jeopardy = states.next().await.unwrap();
        let expected = StateKind::Jeopardy(Cause::Unreachable);
        assert_eq!(jeopardy.kind(), expected);
        let new = set.master_after(old);
        for guard in guards {
            let decided = async || !matches!(guard.state(), State::Jeopardy { .. });
            eventually_async(LONG, decided).await;
            guard.ensure(TTL / 2).await.unwrap();
            until_held(&guard).await;
            let lease = guard.lease_id().to_string();
            assert_eq!(recorded(&set.servers()[new], guard.name()), lease);
            guard.release().await.unwrap();
        }
        println!("all held after {:?}", begun.elapsed());
        assert_eq!(records(&set.servers()[new]), Vec::<String>::new());
    }
}

/// A grant that was not replicated in time is forgotten: its lease is lost, and is not restored.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_the_new_master_does_not_know_is_lost() {
    let (mut set, client) = set_and_client().await;
    let known = lock_all(&client, 0..LOCKS / 2).await;
    set.until_in_sync();
    cut_replication(&set);
    let unknown = lock_all(&client, LOCKS / 2..LOCKS).await;
    let old = set.kill_master();
    let new = set.master_after(old);
    let recorded = |guard: &Guard| recorded(&set.servers()[new], guard.name());
    for guard in &unknown {
        // At once, not at the next renewal, which is 20 s away.
        eventually_async(SOON / 2, async || guard.state().is_lost()).await;
        assert_eq!(guard.state(), State::Lost(Cause::Deleted));
        assert_eq!(recorded(guard), "");
    }
    for guard in &known {
        guard.ensure(TTL / 2).await.unwrap();
        assert_eq!(recorded(guard), guard.lease_id().to_string());
    }
}

/// Ends the replication to all replicas, which can still be promoted.
fn cut_replication(set: &SentinelSet) {
    let master = set.master();
    for (nth, server) in set.servers().iter().enumerate() {
        if nth != master {
            server.cli(&["CONFIG", "SET", "masterauth", "wrong"]);
        }
    }
    set.servers()[master].cli(&["CLIENT", "KILL", "TYPE", "replica"]);
}
