//! Masters that are far away: the number of round trips counts.

use std::ops::Range;

use leasehold_testkit::Way;

use super::*;

const EACH_WAY: Duration = Duration::from_millis(50);

const ROUND_TRIP: Duration = EACH_WAY.saturating_mul(2);

/// The number of acquisitions in a row, with all masters or with one less.
const BLOCK: usize = 10;

/// The number of such rows of each kind.
const BLOCKS: usize = 3;

/// The shortest time of so many acquisitions: a busy machine makes most slower, and none faster.
async fn shortest(mutex: &leasehold::Mutex) -> Duration {
    let mut shortest = Duration::MAX;
    for _ in 0..BLOCK {
        let begun = Instant::now();
        let guard = mutex.lock().await.unwrap();
        shortest = shortest.min(begun.elapsed());
        guard.release().await.unwrap();
    }
    shortest
}

/// Checks that every acquisition since then was sent to each of these masters, and hardly ever twice.
async fn are_sent_once(far: &Proxied, some: Range<usize>, since: &[usize]) {
    let rounds = || -> Vec<_> {
        let counted = far.counted("propose").into_iter().zip(since);
        let rounds: Vec<_> = counted.map(|(now, since)| now - since).collect();
        rounds[some.clone()].to_vec()
    };
    // A majority is enough to go on.
    eventually_async(LONG, async || rounds().iter().all(|count| *count >= BLOCK)).await;
    let rounds = rounds();
    let few = BLOCK + BLOCK / 2;
    assert!(rounds.iter().all(|count| *count <= few), "{rounds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_takes_one_round_trip_also_with_a_dead_master() {
    let far = Proxied::start(5);
    let client = client_at(&far.url(), LONG_TTL).await;
    let mutex = client.mutex("far").unwrap();
    for proxy in &far.proxies {
        proxy.delay(Way::Both, EACH_WAY..=EACH_WAY);
        proxy.count("propose");
        proxy.count("set_token");
    }
    mutex.lock().await.unwrap().release().await.unwrap();
    let (mut all, mut less) = (Duration::MAX, Duration::MAX);
    for _ in 0..BLOCKS {
        let before = far.counted("propose");
        all = all.min(shortest(&mutex).await);
        are_sent_once(&far, 0..5, &before).await;

        // As if it was killed.
        far.proxies[0].refuse();
        far.proxies[0].cut();
        let before = far.counted("propose");
        less = less.min(shortest(&mutex).await);
        are_sent_once(&far, 1..5, &before).await;
        far.proxies[0].go_on();
        // Until it is used again.
        eventually_async(LONG, async || {
            let before = far.proxies[0].counted("propose");
            mutex.lock().await.unwrap().release().await.unwrap();
            far.proxies[0].counted("propose") > before
        })
        .await;
    }
    // On a busy machine a proposal may be late.
    let written = far.counted("set_token");
    assert!(
        written
            .iter()
            .all(|requests| *requests <= BLOCK * BLOCKS / 2),
        "{written:?}"
    );
    // A second round trip would make it 2.
    assert!(all < ROUND_TRIP * 18 / 10, "{all:?}");
    assert!(less < ROUND_TRIP * 18 / 10, "{less:?}");
}
