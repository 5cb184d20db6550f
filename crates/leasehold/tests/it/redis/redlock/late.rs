//! A master answers after its time: nobody holds what it granted then, and nothing is left of it.

use leasehold_testkit::{Proxy, Way};

use super::*;

/// Longer than all that is waited for here: no record ends by itself.
const NEVER: Duration = Duration::from_secs(55);

/// What the others granted is given back where it was granted late.
#[tokio::test(flavor = "multi_thread")]
async fn a_minority_answers_late() {
    for (count, late) in [(3, &[2][..]), (5, &[0, 1][..])] {
        let far = Far::start(count);
        let client = client(&far.url(), NEVER).await;
        lock(&client, "a").await.release().await.unwrap();
        far.is_gone("a").await;
        for way in [Way::There, Way::Back] {
            let asked = Instant::now();
            late.iter().for_each(|nth| far.proxies[*nth].hold(way));
            let guard = lock(&client, "a").await;
            assert!(asked.elapsed() < NEVER / 20, "{:?}", asked.elapsed());
            guard.release().await.unwrap();
            late.iter().for_each(|nth| far.proxies[*nth].go_on());
            far.is_gone("a").await;
        }
    }
}

/// A majority granted it too late: that is no grant, and all of it is given back.
#[tokio::test(flavor = "multi_thread")]
async fn a_majority_answers_late() {
    for way in [Way::There, Way::Back] {
        let far = Far::start(3);
        let client = client(&far.url(), NEVER).await;
        lock(&client, "a").await.release().await.unwrap();
        far.is_gone("a").await;
        far.proxies[..2].iter().for_each(|proxy| proxy.hold(way));
        let error = client.mutex("a").unwrap().try_lock().await.unwrap_err();
        assert_eq!(error.kind(), leasehold::ErrorKind::NoQuorum, "{error}");
        far.proxies[..2].iter().for_each(Proxy::go_on);
        far.is_gone("a").await;
        let guard = lock(&client, "a").await;
        guard.release().await.unwrap();
        far.is_gone("a").await;
    }
}

/// The token was not written in time by a majority.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_phase_is_late() {
    let far = Far::start(3);
    let client = client(&far.url(), NEVER).await;
    lock(&client, "a").await.release().await.unwrap();
    far.is_gone("a").await;
    far.proxies[1..]
        .iter()
        .for_each(|proxy| proxy.hold_requests("fence", 1));
    let error = client.mutex("a").unwrap().try_lock().await.unwrap_err();
    assert_eq!(error.kind(), leasehold::ErrorKind::NoQuorum, "{error}");
    far.proxies[1..].iter().for_each(Proxy::deliver);
    far.is_gone("a").await;
    lock(&client, "a").await.release().await.unwrap();
}

/// Whoever took it and died without a word blocks nobody for longer than its ttl.
#[tokio::test(flavor = "multi_thread")]
async fn a_stray_grant_ends_with_its_ttl() {
    const SHORT: Duration = Duration::from_secs(2);
    let masters = Masters::aged(3);
    let stray = open(&masters.url()).await;
    let ttl = Ttl::checked(SHORT).unwrap();
    let key = leasehold::store::Keyspace::new(
        ScopeName::parse("leasehold").unwrap(),
        ScopeName::parse("default").unwrap(),
    )
    .key(Name::parse("a").unwrap());
    // With so short a ttl a busy machine has no time for some.
    let (mut number, mut begun) = (0, Instant::now());
    eventually_async(LONG, async || {
        number += 1;
        begun = Instant::now();
        let request = |request: Request| Request::new(key.clone(), request.op);
        let mut acquire = request(acquire("a", number));
        if let Op::Acquire { ttl: asked, .. } = &mut acquire.op {
            *asked = ttl;
        }
        let outcome = match send(&*stray, acquire).await {
            Reply::Applied { outcome, .. } => Some(outcome),
            _ => None,
        };
        let granted = matches!(outcome, Some(Outcome::Granted { .. }));
        if !granted {
            drop(send(&*stray, request(release("a", number, 0))).await);
        }
        granted
    })
    .await;
    let client = client(&masters.url(), TTL).await;
    let guard = lock(&client, "a").await;
    let took = begun.elapsed();
    assert!(took >= SHORT && took < SHORT + TTL, "{took:?}");
    guard.release().await.unwrap();
    eventually_async(LONG, async || records(&all(&masters), "a") == 0).await;
}

/// A stopped master has a backlog when it goes on, in which grants stand before their releases.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_leaves_nothing() {
    let masters = Masters::aged(3);
    let client = client(&masters.url(), NEVER).await;
    lock(&client, "a").await.release().await.unwrap();
    masters.server(0).stop();
    for _ in 0..200 {
        lock(&client, "a").await.release().await.unwrap();
    }
    let guard = lock(&client, "kept").await;
    masters.server(0).cont();
    eventually_async(LONG, async || records(&all(&masters), "a") == 0).await;
    // And whoever takes it then has it everywhere, soon.
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
