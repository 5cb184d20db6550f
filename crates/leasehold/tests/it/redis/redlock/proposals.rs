//! The token that an acquisition proposes: taken by a majority, it saves the second phase.

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

/// Five masters whose clients have been granted a lock, and which count requests from now on.
async fn counting() -> (Proxied, Client) {
    let far = Proxied::start(5);
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
    let (far, client) = counting().await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_whose_counters_are_ahead_costs_a_second_phase() {
    let (far, client) = counting().await;
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
