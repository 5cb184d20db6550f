//! A master comes back and has forgotten what it granted: it is kept out until that has ended.

use leasehold_testkit::{Restart, free_port};

use super::*;

/// The longest ttl, so that a master is not kept out for long.
const LONGEST: Duration = Duration::from_secs(3);

fn short(masters: &Masters) -> String {
    format!("{}?longest-ttl={}ms", masters.url(), LONGEST.as_millis())
}

/// What a master keeps of itself: a field of its mark.
fn mark(server: &RedisServer, field: &str) -> String {
    server.cli(&["HGET", "app:master", field])
}

pub(super) fn is_admitted(server: &RedisServer) -> bool {
    let info = server.cli(&["INFO", "replication"]);
    let run = mark(server, "run");
    !run.is_empty() && info.contains(&format!("master_replid:{run}"))
}

pub(super) fn lasting(mut request: Request, longest: Duration) -> Request {
    if let Op::Acquire { ttl, .. } | Op::Renew { ttl, .. } = &mut request.op {
        *ttl = Ttl::checked(longest).unwrap();
    }
    request
}

/// A grant, or nothing if it is held or there is no majority.
pub(super) async fn asked(store: &dyn Store, request: Request) -> Option<u64> {
    match send(store, request).await {
        Reply::Applied {
            outcome: Outcome::Granted { first },
            ..
        } => Some(first.get()),
        Reply::Applied {
            outcome: Outcome::Refused { .. },
            ..
        } => None,
        Reply::Unknown(error) | Reply::Rejected(error) if error.kind() == ErrorKind::NoQuorum => {
            None
        }
        other => panic!("{other:?}"),
    }
}

/// Asks with a new lease each time until it is granted, and gives back what was not.
pub(super) async fn eventually_asked(
    store: &dyn Store,
    name: &str,
    longest: Duration,
) -> (u64, u64) {
    let mut number = 100;
    let mut token = 0;
    eventually_async(LONG, async || {
        number += 1;
        match asked(store, lasting(acquire(name, number), longest)).await {
            Some(first) => token = first,
            None => drop(send(store, release(name, number, 0)).await),
        }
        token > 0
    })
    .await;
    (number, token)
}

/// How the second master forgets.
#[derive(Clone, Copy)]
enum Forgets {
    Restarted,
    Flushed,
}

/// The schedule that repeats a token and has two holders, if a master that forgot is used at once: A
/// holds the lock at the first and the second; the second forgets; B asks the second and the third.
async fn two_majorities_by_one_that_forgets(how: Forgets) {
    let mut masters = Masters::aged(3);
    let store = open(&short(&masters)).await;
    works_again(&*store, LONGEST).await;
    let floor = masters.servers().iter().map(|server| mark(server, "high"));
    let floor = floor
        .map(|high| high.parse::<u64>().unwrap())
        .max()
        .unwrap();

    // A sees no third master, B no first: neither can tell it of the other.
    let ports: Vec<_> = masters.servers().iter().map(RedisServer::port).collect();
    let at = |ports: [u16; 3]| {
        let [a, b, c] = ports;
        let longest = LONGEST.as_millis();
        format!("redlock://127.0.0.1:{a},127.0.0.1:{b},127.0.0.1:{c}?longest-ttl={longest}ms")
    };
    let a = open(&at([ports[0], ports[1], free_port()])).await;
    let b = open(&at([free_port(), ports[1], ports[2]])).await;
    let (_, first) = eventually_asked(&*a, "a", LONGEST).await;
    let granted_at = Instant::now();
    assert!(first > floor);
    let record = |masters: &Masters| masters.server(1).cli(&["KEYS", "*:a}"]);
    assert_ne!(record(&masters), "");
    match how {
        Forgets::Restarted => masters.server_mut(1).restart(Restart::Empty),
        Forgets::Flushed => drop(masters.server(1).cli(&["FLUSHALL"])),
    }
    assert_eq!(record(&masters), "");
    let mut number = 1_000;
    while granted_at.elapsed() < LONGEST {
        number += 1;
        let second = asked(&*b, lasting(acquire("a", number), LONGEST)).await;
        let late = granted_at.elapsed() >= LONGEST;
        assert!(second.is_none() || late, "two holders: {second:?}");
        drop(send(&*b, release("a", number, 0)).await);
        assert!(!is_admitted(masters.server(1)) || late);
    }
    // A majority of the others has to tell its tokens: B alone cannot take it in.
    eventually_admitted(&*store, masters.server(1), LONGEST).await;
    let kept: u64 = mark(masters.server(1), "floor").parse().unwrap();
    assert!(kept >= first, "{kept} is below {first}");
    let (_, second) = eventually_asked(&*b, "a", LONGEST).await;
    assert!(second > first, "{second} after {first}");
}

/// Sends requests until a master is admitted: a master that refuses one is inspected.
pub(super) async fn eventually_admitted(
    store: &dyn Store,
    master: &RedisServer,
    longest: Duration,
) {
    eventually_async(LONG, async || {
        works_again(store, longest).await;
        is_admitted(master)
    })
    .await;
}

/// Takes a lock and gives it back, with those that are there.
pub(super) async fn works_again(store: &dyn Store, longest: Duration) {
    let (number, _) = eventually_asked(store, "works", longest).await;
    drop(send(store, release("works", number, 0)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_comes_back_empty_repeats_no_token() {
    two_majorities_by_one_that_forgets(Forgets::Restarted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_is_flushed_repeats_no_token() {
    two_majorities_by_one_that_forgets(Forgets::Flushed).await;
}

/// The lease goes on with the two others, and comes back to the third when that is taken in.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_does_not_notice() {
    let mut masters = Masters::aged(3);
    let client = client(&short(&masters), LONGEST).await;
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

/// Nobody knows what was granted by masters before they were started.
#[tokio::test(flavor = "multi_thread")]
async fn new_masters_are_kept_out_until_what_they_may_have_granted_has_ended() {
    let begun = Instant::now();
    let masters = Masters::start(3);
    let store = open(&short(&masters)).await;
    let error = rejected_or_unknown(&*store, lasting(acquire("a", 1), LONGEST)).await;
    assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
    assert!(error.to_string().contains("not long ago"), "{error}");
    let (_, token) = eventually_asked(&*store, "a", LONGEST).await;
    assert!(begun.elapsed() >= LONGEST, "{:?}", begun.elapsed());
    assert!(token > 0);
    assert!(
        masters
            .servers()
            .iter()
            .filter(|server| is_admitted(server))
            .count()
            >= 2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn masters_that_have_run_for_long_are_used_at_once() {
    let masters = Masters::aged(5);
    let store = open(&format!("{}?longest-ttl=24h", masters.url())).await;
    works(&*store).await;
    assert!(masters.servers().iter().all(is_admitted));
}

async fn rejected_or_unknown(store: &dyn Store, request: Request) -> Error {
    match send(store, request).await {
        Reply::Rejected(error) | Reply::Unknown(error) => error,
        other => panic!("{other:?}"),
    }
}
