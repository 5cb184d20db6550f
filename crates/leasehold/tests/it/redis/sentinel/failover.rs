//! A failover while locks are held and waited for.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, ErrorKind, Owner, StateKind};

use super::*;
use crate::waiters::soon;

const LOCKS: usize = 50;

/// Each failover is over long before a lease of this ttl is given up.
const TTL: Duration = Duration::from_secs(60);

/// The number of failovers of each kind; `LEASEHOLD_FAILOVERS` changes it.
fn rounds() -> usize {
    let rounds = std::env::var("LEASEHOLD_FAILOVERS").ok();
    rounds.map_or(1, |rounds| rounds.parse().unwrap())
}

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

/// Waits until a lease is held again, after it was in doubt, or is lost.
async fn settled(guard: &Guard, since: leasehold::Instant) -> State {
    let mut state = guard.state();
    eventually_async(FAILOVER, async || {
        state = guard.state();
        // Confirmed by a request that was sent after the failover had begun.
        let renewed = matches!(state, State::Held { until } if until > since.after(TTL / 2));
        renewed || state.is_lost()
    })
    .await;
    state
}

/// The lease in the record of a lock.
fn recorded(server: &RedisServer, name: &str) -> String {
    server.cli(&["GET", &record(name)])
}

/// After an ordered failover, too: `doctor::allowed`.
#[tokio::test(flavor = "multi_thread")]
async fn locks_are_held_over_a_crash_of_the_master() {
    for _ in 0..rounds() {
        let (mut set, client) = set_and_client().await;
        let guards = lock_all(&client, 0..LOCKS).await;
        set.until_in_sync();
        let begun = BootClock.now();
        let old = set.kill_master();
        let new = set.master_after(old);
        for guard in guards {
            let decided = async || !matches!(guard.state(), State::Jeopardy { .. });
            eventually_async(FAILOVER, decided).await;
            guard.ensure(TTL / 2).await.unwrap();
            assert!(is_held(&guard), "{:?}", guard.state());
            let lease = recorded(&set.servers()[new], guard.name());
            assert_eq!(lease, guard.lease_id().to_string());
            guard.release().await.unwrap();
        }
        let took = BootClock.now().since(begun);
        println!("all held {took:?} after the failover began");
        assert_eq!(records(&set.servers()[new]), Vec::<String>::new());
    }
}

/// A lease is in jeopardy from the end of the connection until the new master has confirmed it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_in_jeopardy_while_there_is_no_master() {
    let (mut set, client) = set_and_client().await;
    let guard = lock(&client, "0").await;
    set.until_in_sync();
    let mut states = guard.states();
    assert!(states.next().await.unwrap().is_held());
    let old = set.kill_master();
    let jeopardy = states.next().await.unwrap();
    let expected = StateKind::Jeopardy(Cause::Unreachable);
    assert_eq!(jeopardy.kind(), expected);
    let held = tokio::time::timeout(FAILOVER, states.next()).await;
    assert!(held.unwrap().unwrap().is_held());
    assert_ne!(set.master(), old);
}

/// A grant that was not replicated in time is forgotten: its lease is lost, and is not restored.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_the_new_master_does_not_know_is_lost() {
    for _ in 0..rounds() {
        let (mut set, client) = set_and_client().await;
        let known = lock_all(&client, 0..LOCKS / 2).await;
        set.until_in_sync();
        cut_replication(&set);
        let unknown = lock_all(&client, LOCKS / 2..LOCKS).await;
        let begun = BootClock.now();
        let old = set.kill_master();
        let new = set.master_after(old);
        for guard in &unknown {
            let state = settled(guard, begun.after(TTL)).await;
            assert_eq!(state, State::Lost(Cause::Deleted));
            assert_eq!(recorded(&set.servers()[new], guard.name()), "");
        }
        for guard in &known {
            guard.ensure(TTL / 2).await.unwrap();
            assert_eq!(
                recorded(&set.servers()[new], guard.name()),
                guard.lease_id().to_string()
            );
        }
    }
}

/// The holder of a forgotten lock writes with its token until it notices. The resource refuses it
/// as soon as the next holder has written.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_forgotten_grant_the_token_keeps_the_old_holder_out() {
    let resource = AtomicU64::new(0);
    let writes = |guard: &Guard| {
        let token = guard.token().get();
        resource.fetch_max(token, Ordering::SeqCst) <= token
    };
    let (mut set, a) = set_and_client().await;
    let b = client_at(&set.url(), TTL).await;
    set.until_in_sync();
    cut_replication(&set);
    let old = lock(&a, "7").await;
    assert!(writes(&old));
    let waiter = tokio::spawn({
        let mutex = b.mutex("7").unwrap();
        async move { mutex.lock().await.unwrap() }
    });
    set.kill_master();
    let new = soon(waiter).await;
    assert!(writes(&new));
    assert!(!writes(&old));
    // It is checked at once, not at its next renewal, which is 20 s away.
    eventually_async(SOON, async || old.state().is_lost()).await;
    assert!(new.state().is_held(), "{:?}", new.state());
    assert!(writes(&new));
}

/// A re-entry into a lease that the new master has forgotten is granted another lease, and the first hold is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_re_entry_on_the_new_master_revives_nothing() {
    let (mut set, client) = set_and_client().await;
    let mutex = client.mutex("a").unwrap().owned_by(&Owner::new());
    set.until_in_sync();
    cut_replication(&set);
    let first = mutex.lock().await.unwrap();
    let old = set.kill_master();
    let second = tokio::time::timeout(FAILOVER, mutex.lock()).await.unwrap();
    // The store may have been unreachable: the hold is then released again.
    let second = match second {
        Ok(second) => second,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
            eventually_async(FAILOVER, async || first.state().is_lost()).await;
            mutex.lock().await.unwrap()
        }
    };
    assert_eq!(first.state(), State::Lost(Cause::Deleted));
    assert_ne!(first.lease_id(), second.lease_id());
    assert!(first.token() < second.token());
    let new = set.master_after(old);
    assert_eq!(
        recorded(&set.servers()[new], "a"),
        second.lease_id().to_string()
    );
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
