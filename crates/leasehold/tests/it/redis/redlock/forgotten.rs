//! A master that has forgotten grants is not admitted until they have ended.

use leasehold_testkit::free_port;

use super::*;

/// The longest ttl: several times what the steps of a test take on a busy machine.
pub(super) const LONGEST: Duration = Duration::from_secs(8);

/// A field of the admission record of a master.
fn admission(server: &RedisServer, field: &str) -> String {
    server.cli(&["HGET", "app:master", field])
}

/// The token of a grant. `None`: the lock is held, or there is no majority.
pub(super) async fn try_acquire(store: &dyn Store, request: Request) -> Option<u64> {
    let reply = send(store, request).await;
    match (outcome(&reply), reply) {
        (Some(Outcome::Granted { first, .. }), _) => Some(first.get()),
        (Some(Outcome::Refused { .. }), _) => None,
        (_, Reply::Unknown(error) | Reply::Rejected(error)) => {
            assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
            None
        }
        (_, other) => panic!("{other:?}"),
    }
}

/// Tries to acquire a lock under new lease ids until it is granted, and releases the others. Returns the number of the
/// lease and the token.
pub(super) async fn eventually_acquire(store: &dyn Store, name: &str) -> (u64, u64) {
    let mut number = 100;
    let mut token = 0;
    eventually_async(LONG, async || {
        number += 1;
        match try_acquire(store, lasting(acquire(name, number), LONGEST)).await {
            Some(first) => token = first,
            None => drop(send(store, release(name, number)).await),
        }
        token > 0
    })
    .await;
    (number, token)
}

/// The URL of three masters.
pub(super) fn url(ports: [u16; 3]) -> String {
    format!("{}?longest-ttl={}ms", at(&ports), LONGEST.as_millis())
}

/// Until the lease has ended, no other client is granted the lock `a`, and a master that may have forgotten is not
/// admitted.
pub(super) async fn kept_out(store: &dyn Store, master: &RedisServer, held_since: Instant) {
    let over = || held_since.elapsed() >= LONGEST;
    let mut number = 1_000;
    while !over() {
        number += 1;
        let other = try_acquire(store, lasting(acquire("a", number), LONGEST)).await;
        assert!(other.is_none() || over(), "two holders: {other:?}");
        drop(send(store, release("a", number)).await);
        assert!(!is_admitted(master, "app") || over());
    }
}

/// The schedule that repeats a token and has two holders if a master that forgot is used immediately: A
/// holds the lock at the first and the second; the second forgets; B requests it from the second and the third.
async fn two_majorities_by_one_that_forgets(restarted: bool) {
    let mut masters = Masters::aged(3);
    let ports = [0, 1, 2].map(|nth| masters.server(nth).port());
    let store = open(&url(ports)).await;
    works_again(&*store).await;
    let floors = masters.servers().iter();
    let floors = floors.map(|server| admission(server, "high").parse::<u64>().unwrap());
    let floor = floors.max().unwrap();

    // A has no third master and B no first, so neither can inform it of the other.
    let a = open(&url([ports[0], ports[1], free_port()])).await;
    let b = open(&url([free_port(), ports[1], ports[2]])).await;
    let (mut number, mut first) = eventually_acquire(&*a, "a").await;
    // The largest token is set ahead. This one must be larger than what was known before.
    while first <= floor {
        drop(send(&*a, release("a", number)).await);
        (number, first) = eventually_acquire(&*a, "a").await;
    }
    let granted_at = Instant::now();
    let record = |masters: &Masters| masters.server(1).cli(&["KEYS", "*:a}"]);
    assert_ne!(record(&masters), "");
    match restarted {
        true => masters.server_mut(1).restart(Restart::Empty),
        false => drop(masters.server(1).cli(&["FLUSHALL"])),
    }
    assert_eq!(record(&masters), "");
    kept_out(&*b, masters.server(1), granted_at).await;
    // A majority of the others has to reply: B alone cannot admit it.
    eventually_admitted(&*store, masters.server(1)).await;
    let kept: u64 = admission(masters.server(1), "floor").parse().unwrap();
    assert!(kept >= first, "{kept} is below {first}");
    let (_, second) = eventually_acquire(&*b, "a").await;
    assert!(second > first, "{second} after {first}");
}

/// Sends requests until a master is admitted: a master that refuses one is inspected.
pub(super) async fn eventually_admitted(store: &dyn Store, master: &RedisServer) {
    eventually_async(LONG, async || {
        works_again(store).await;
        is_admitted(master, "app")
    })
    .await;
}

/// Acquires and releases a lock.
pub(super) async fn works_again(store: &dyn Store) {
    let (number, _) = eventually_acquire(store, "works").await;
    drop(send(store, release("works", number)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_restarts_empty_or_is_flushed_repeats_no_token() {
    for restarted in [true, false] {
        two_majorities_by_one_that_forgets(restarted).await;
    }
}

/// The lease continues at the two others, and is repeated at the third after its admission.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_keeps_its_lease() {
    let mut masters = Masters::aged(3);
    let client = client_at(&short(&masters), LONGEST).await;
    let guard = lock(&client, "a").await;
    let first = guard.token();
    masters.server_mut(2).restart(Restart::Empty);
    let back = [masters.server(2)];
    eventually_async(LONG, async || {
        assert!(!guard.state().is_lost(), "{:?}", guard.state());
        records(&back, "a") == 1
    })
    .await;
    guard.release().await.unwrap();
    assert!(lock(&client, "a").await.token() > first);
}
