//! A failover while locks are held and waited for.

use std::sync::atomic::{AtomicU64, Ordering};

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, Client, ErrorKind, Guard, Owner, State};
use leasehold_testkit::eventually_async;

use super::*;
use crate::waiters::soon;

const LOCKS: usize = 50;

/// Each failover is over long before a lease of this ttl is given up.
const TTL: Duration = Duration::from_secs(60);

/// How often each failover is done: once, or as often as a campaign says.
fn rounds() -> usize {
    let rounds = std::env::var("LEASEHOLD_FAILOVERS").ok();
    rounds.map_or(1, |rounds| rounds.parse().unwrap())
}

async fn client(set: &SentinelSet) -> Client {
    Client::builder()
        .ttl(TTL)
        .connect(&set.url())
        .await
        .unwrap()
}

async fn take(client: &Client, names: impl Iterator<Item = usize>) -> Vec<Guard> {
    let mut guards = Vec::new();
    for name in names {
        guards.push(
            client
                .mutex(name.to_string())
                .unwrap()
                .lock()
                .await
                .unwrap(),
        );
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

/// The lease that has a lock by what the server says.
fn recorded(server: &RedisServer, name: &str) -> String {
    let record = server.cli(&["HKEYS", &format!("leasehold:{{default:{name}}}")]);
    record.lines().next().unwrap_or_default().to_owned()
}

/// Locks that the new master knows are held there after it, whoever fails over and how.
async fn are_held_over(fails: impl Fn(&mut SentinelSet) -> usize) {
    for _ in 0..rounds() {
        let mut set = SentinelSet::start();
        let client = client(&set).await;
        let guards = take(&client, 0..LOCKS).await;
        set.until_in_sync();
        let begun = BootClock.now();
        let old = fails(&mut set);
        let new = set.master_after(old);
        for guard in &guards {
            eventually_async(FAILOVER, async || {
                !matches!(guard.state(), State::Jeopardy { .. })
            })
            .await;
            guard.ensure(TTL / 2).await.unwrap();
            let state = guard.state();
            assert!(state.is_held(), "{state:?}");
            assert_eq!(
                recorded(&set.servers()[new], guard.name()),
                guard.lease_id().to_string()
            );
        }
        println!(
            "all held {:?} after the failover began",
            BootClock.now().since(begun)
        );
        for guard in guards {
            guard.release().await.unwrap();
        }
        assert_eq!(records(&set.servers()[new]), Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_held_over_a_crash_of_the_master() {
    are_held_over(SentinelSet::kill_master).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_are_held_over_a_failover_that_was_ordered() {
    are_held_over(|set| set.order_failover()).await;
}

/// A lease is in jeopardy from the end of the connection until the new master has confirmed it.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_in_jeopardy_while_there_is_no_master() {
    let mut set = SentinelSet::start();
    let client = client(&set).await;
    let guard = take(&client, 0..1).await.remove(0);
    set.until_in_sync();
    let mut states = guard.states();
    assert!(states.next().await.unwrap().is_held());
    let old = set.kill_master();
    let jeopardy = states.next().await.unwrap();
    assert!(
        matches!(
            jeopardy,
            State::Jeopardy {
                cause: Cause::Unreachable,
                ..
            }
        ),
        "{jeopardy:?}"
    );
    let held = tokio::time::timeout(FAILOVER, states.next())
        .await
        .unwrap()
        .unwrap();
    assert!(held.is_held(), "{held:?}");
    assert_ne!(set.master(), old);
}

/// What was granted and not copied in time is forgotten: its holder is told, and does not get it
/// back silently.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_new_master_does_not_know_is_lost() {
    for _ in 0..rounds() {
        let mut set = SentinelSet::start();
        let client = client(&set).await;
        let known = take(&client, 0..LOCKS / 2).await;
        set.until_in_sync();
        cut_replication(&set);
        let unknown = take(&client, LOCKS / 2..LOCKS).await;
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

/// The holder of a forgotten lock writes with its token until it is told. What is protected refuses it
/// as soon as the next holder has written.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_forgotten_grant_the_token_keeps_the_old_holder_out() {
    let resource = AtomicU64::new(0);
    let writes = |guard: &Guard| {
        let token = guard.token().get();
        resource.fetch_max(token, Ordering::SeqCst) <= token
    };
    let mut set = SentinelSet::start();
    let (a, b) = (client(&set).await, client(&set).await);
    set.until_in_sync();
    cut_replication(&set);
    let old = take(&a, 7..8).await.remove(0);
    assert!(writes(&old));
    let waiter = tokio::spawn({
        let mutex = b.mutex("7").unwrap();
        async move { mutex.lock().await.unwrap() }
    });
    set.kill_master();
    let new = soon(waiter).await;
    assert!(writes(&new));
    assert!(!writes(&old));
    // It was asked at once, not at its next renewal, which is 20 s away.
    eventually_async(SOON, async || old.state().is_lost()).await;
    assert!(new.state().is_held(), "{:?}", new.state());
    assert!(writes(&new));
}

/// Who enters again a lease that the new master has forgotten gets another lease, and the first hold is
/// lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_re_entry_on_the_new_master_revives_nothing() {
    let mut set = SentinelSet::start();
    let client = client(&set).await;
    let mutex = client.mutex("a").unwrap().owned_by(&Owner::new());
    set.until_in_sync();
    cut_replication(&set);
    let first = mutex.lock().await.unwrap();
    let old = set.kill_master();
    let second = tokio::time::timeout(FAILOVER, mutex.lock()).await.unwrap();
    // The store may have been away when it was asked: the hold is then left again.
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

/// Lets the replicas hear nothing more from the master, and remain good enough to be promoted.
fn cut_replication(set: &SentinelSet) {
    let master = set.master();
    for (place, server) in set.servers().iter().enumerate() {
        if place != master {
            server.cli(&["CONFIG", "SET", "masterauth", "wrong"]);
        }
    }
    set.servers()[master].cli(&["CLIENT", "KILL", "TYPE", "replica"]);
}
