//! A master replies too late: no client holds its grant, which is released.

use leasehold::LeaseOptions;
use leasehold_testkit::Way;

use super::*;
use crate::fixture::with_options;
use crate::leftovers::record_key;

/// Longer than every wait here: no record expires.
const NEVER: Duration = Duration::from_secs(55);

/// The late grant is released with the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_minority_replies_too_late() {
    for (count, late) in [(3, &[2][..]), (5, &[0, 1][..])] {
        let far = Proxied::start(count);
        let client = client_at(&far.url(), NEVER).await;
        far.lock_and_release(&client).await;
        for way in [Way::ToServer, Way::ToClient] {
            let begun = Instant::now();
            late.iter().for_each(|nth| far.proxies[*nth].hold(way));
            let guard = lock(&client, "a").await;
            assert!(begun.elapsed() < NEVER / 5, "{:?}", begun.elapsed());
            guard.release().await.unwrap();
            late.iter().for_each(|nth| far.proxies[*nth].go_on());
            far.until_free("a").await;
        }
    }
}

/// All grants are released.
#[tokio::test(flavor = "multi_thread")]
async fn a_majority_replies_too_late() {
    for way in [Way::ToServer, Way::ToClient] {
        let far = Proxied::start(3);
        let client = client_at(&far.url(), NEVER).await;
        far.lock_and_release(&client).await;
        far.proxies[..2].iter().for_each(|proxy| proxy.hold(way));
        let error = client.mutex("a").unwrap().try_lock().await.unwrap_err();
        assert_eq!(error.kind(), leasehold::ErrorKind::NoQuorum, "{error}");
        far.proxies[..2].iter().for_each(Proxy::go_on);
        far.until_free("a").await;
        far.lock_and_release(&client).await;
    }
}

/// The token was not written in time by a majority.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_phase_is_late() {
    let far = Proxied::start(3);
    let client = client_at(&far.url(), NEVER).await;
    far.lock_and_release(&client).await;
    for server in far.masters.servers() {
        proposals::set_ahead(server, "a");
    }
    far.proxies[1..]
        .iter()
        .for_each(|proxy| proxy.hold_requests("set_token", 1));
    let error = client.mutex("a").unwrap().try_lock().await.unwrap_err();
    assert_eq!(error.kind(), leasehold::ErrorKind::NoQuorum, "{error}");
    far.proxies[1..].iter().for_each(Proxy::deliver);
    far.until_free("a").await;
    lock(&client, "a").await.release().await.unwrap();
}

/// A master misses the release that begins a minimum hold. It keeps the lease of the holder, and the others the name.
#[tokio::test(flavor = "multi_thread")]
async fn a_minority_misses_the_begin_of_a_minimum_hold() {
    let duration = Duration::from_secs(8);
    let far = Proxied::start(3);
    let [client, other] = [
        client_at(&far.url(), NEVER).await,
        client_at(&far.url(), NEVER).await,
    ];
    far.lock_and_release(&client).await;
    let mutex = client.mutex("a").unwrap();
    let mutex = with_options(&mutex, LeaseOptions::new().min_hold(duration));
    let begun = Instant::now();
    let guard = mutex.lock().await.unwrap();
    far.proxies[2].hold(Way::ToServer);
    guard.release().await.unwrap();
    let other = other.mutex("a").unwrap();
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(other.inspect().await.unwrap().unwrap().min_hold);
    let next = other.lock().await.unwrap();
    assert!(
        (duration..NEVER / 2).contains(&begun.elapsed()),
        "{:?}",
        begun.elapsed()
    );
    next.release().await.unwrap();
    far.proxies[2].go_on();
    far.until_free("a").await;
    let error = mutex
        .with(LeaseOptions::new().min_hold(NEVER * 2))
        .unwrap_err();
    assert!(error.to_string().contains("?longest-ttl="), "{error}");
}

/// The requests to a stopped master are applied when it continues, grants before their releases.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_leaves_nothing() {
    let masters = Masters::aged(3);
    let client = client_at(&masters.url(), NEVER).await;
    lock(&client, "a").await.release().await.unwrap();
    masters.server(0).stop();
    for _ in 0..200 {
        // A release that is too late on a busy machine is repeated.
        if let Err(error) = lock(&client, "a").await.release().await {
            assert!(error.is_transient(), "{error}");
        }
    }
    let guard = lock(&client, "kept").await;
    masters.server(0).cont();
    eventually_async(LONG, async || records(&all(&masters), "a") == 0).await;
    // Later grants are at all masters, soon.
    eventually_async(LONG, async || {
        let guard = lock(&client, "a").await;
        let everywhere = records(&all(&masters), "a") == 3;
        guard.release().await.unwrap();
        everywhere
    })
    .await;
    guard.release().await.unwrap();
    eventually_async(LONG, async || records(&all(&masters), "kept") == 0).await;
}

/// A master has forgotten the lease, and the lease is released before a majority has replied to its renewal.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_restores_no_lease_that_was_released() {
    let far = Proxied::start(3);
    let store = StoreClient::connect(&far.url(), 1).await;
    let [record, later] = ["a", "b"].map(|name| record_key(&key(name)));
    let exists = |nth: usize| far.masters.server(nth).cli(&["EXISTS", &record]) == "1";
    // On a busy machine a majority may reply too late; a repetition has the effect of one request.
    eventually_async(LONG, async || {
        is_granted(&store.send(acquire("a", 1)).await)
    })
    .await;
    eventually_async(LONG, async || (0..3).all(exists)).await;
    // Then all of them know the script.
    eventually_async(LONG, async || {
        outcome(&store.send(renew("a", 1)).await) == Some(Outcome::Kept)
    })
    .await;
    far.masters.server(2).cli(&["DEL", &record]);
    // Less than the ttl of the renewal.
    let short = 20_000;
    for (nth, proxy) in far.proxies[..2].iter().enumerate() {
        let master = far.masters.server(nth);
        master.cli(&["PEXPIRE", &record, &short.to_string()]);
        proxy.hold(Way::ToClient);
    }
    let is_renewed = |nth: usize| {
        let left = far.masters.server(nth).cli(&["PTTL", &record]);
        left.parse::<i32>().unwrap() > short
    };
    let renewed = store.apply(renew("a", 1));
    let released = async {
        // It goes over the connections of the renewal, and may overtake it before that is sent.
        eventually_async(LONG, async || (0..2).all(is_renewed)).await;
        store.apply(release("a", 1)).await
    };
    let both_are_applied = async {
        eventually_async(LONG, async || !exists(0) && !exists(1)).await;
        far.proxies[..2].iter().for_each(Proxy::go_on);
    };
    let (renewed, _, ()) = tokio::join!(biased; renewed, released, both_are_applied);
    assert_eq!(renewed, Outcome::Kept);
    // What restores the lease would have been sent before this.
    eventually_async(LONG, async || {
        is_granted(&store.send(acquire("b", 2)).await)
    })
    .await;
    let last = far.masters.server(2);
    eventually_async(LONG, async || last.cli(&["EXISTS", &later]) == "1").await;
    assert!(!exists(2));
}
