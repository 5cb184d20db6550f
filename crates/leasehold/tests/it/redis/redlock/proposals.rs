//! The token that an acquisition proposes: taken by a majority, it saves the second phase.

use leasehold_core::Op;

use super::*;

const ACQUISITIONS: usize = 20;

/// The counter of a record at a master.
fn counter(server: &RedisServer, record: &str) -> u64 {
    let counter = server.cli(&["GET", &format!("{record}:token")]);
    counter.parse().unwrap_or_default()
}

/// Sets the counter of a lock an hour ahead of the clock. Returns it.
pub(super) fn set_ahead(server: &RedisServer, name: &str) -> u64 {
    let micros = server.cli(&["TIME"]).lines().next().map(str::to_owned);
    let ahead = (micros.unwrap().parse::<u64>().unwrap() + 3_600) * 1_000_000;
    let key = format!("{}:token", record(name));
    assert_eq!(server.cli(&["SET", &key, &ahead.to_string()]), "OK");
    ahead
}

/// Masters whose clients have been granted a lock, and which count requests from now on.
async fn counting(count: usize) -> (Proxied, Client) {
    let far = Proxied::start(count);
    let client = client_at(&far.url(), LONG_TTL).await;
    far.lock_and_release(&client).await;
    for proxy in &far.proxies {
        for word in ["propose", "set_token", "release"] {
            proxy.count(word);
        }
    }
    (far, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_is_one_call_of_each_master() {
    let (far, client) = counting(5).await;
    for _ in 0..ACQUISITIONS {
        lock(&client, "a").await.release().await.unwrap();
    }
    let each = |requests: &usize| *requests >= ACQUISITIONS;
    eventually_async(LONG, async || far.counted("release").iter().all(each)).await;
    // On a busy machine a proposal may be late, and a reply may miss its time.
    let proposed = far.counted("propose");
    let repeated = |requests: &usize| each(requests) && *requests < ACQUISITIONS * 5 / 4;
    assert!(proposed.iter().all(repeated), "{proposed:?}");
    let written = far.counted("set_token");
    let few = ACQUISITIONS / 2;
    assert!(
        written.iter().all(|requests| *requests <= few),
        "{written:?}"
    );
    for server in far.masters.servers() {
        let high: u64 = server
            .cli(&["HGET", "leasehold:master", "high"])
            .parse()
            .unwrap();
        assert!(high >= counter(server, &record("a")));
    }
}

/// The others take the proposal, unless they are late.
#[tokio::test(flavor = "multi_thread")]
async fn a_counter_that_is_ahead_does_not_spread() {
    let (far, client) = counting(5).await;
    let mut spread = 0;
    for nth in 0..ACQUISITIONS {
        let name = format!("ahead/{nth}");
        let ahead = set_ahead(far.masters.server(nth % 5), &name);
        let guard = lock(&client, &name).await;
        spread += usize::from(guard.token().get() > ahead);
        guard.release().await.unwrap();
    }
    assert!(spread < ACQUISITIONS / 2, "{spread}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_whose_counters_are_ahead_costs_a_second_phase() {
    let (far, client) = counting(5).await;
    let mut ahead = 0;
    for nth in 1..4 {
        ahead = set_ahead(far.masters.server(nth), "b").max(ahead);
    }
    let mut last = ahead;
    for _ in 0..3 {
        let guard = lock(&client, "b").await;
        assert!(guard.token().get() > last, "{} after {last}", guard.token());
        last = guard.token().get();
        guard.release().await.unwrap();
    }
    let written = far.counted("set_token");
    let masters = written.iter().filter(|requests| **requests > 0);
    assert!(masters.count() >= 3, "{written:?}");
    // Of another name nothing is ahead.
    assert!(lock(&client, "a").await.token().get() < ahead);
}

/// With more tokens and holds than one.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_is_proposed() {
    let (far, client) = counting(3).await;
    drop(client);
    let store = open(&far.url()).await;
    let mut last = 0;
    for number in 1..=10 {
        let mut request = lasting(acquire("a", number), LONG_TTL);
        let block = 256;
        let Op::Acquire(acquire) = &mut request.op else {
            unreachable!()
        };
        acquire.tokens = block.try_into().unwrap();
        acquire.count = 2.try_into().unwrap();
        let Some(Outcome::Granted { first, .. }) = outcome(&send(&*store, request).await) else {
            panic!("not granted");
        };
        assert!(first.get() > last, "{first} after {last}");
        last = first.get() + u64::from(block) - 1;
        let ends = far.masters.servers().iter();
        let ends = ends
            .filter(|server| counter(server, "app:{t:a}") == last)
            .count();
        assert!(ends >= 2, "{ends}");
        drop(send(&*store, release("a", number)).await);
    }
}
