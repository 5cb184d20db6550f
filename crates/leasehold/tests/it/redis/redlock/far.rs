//! Masters that are far away: the number of round trips counts.

use std::ops::{AddAssign, Range};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use leasehold_testkit::Way;
use redis::aio::MultiplexedConnection;

use super::*;

const EACH_WAY: Duration = Duration::from_millis(5);

/// A grant and the writing of its token: twice there and back.
const PAIR: Duration = EACH_WAY.saturating_mul(4);

/// The number of acquisitions in a row, with all masters or with one less.
const BLOCK: usize = 15;

/// The number of such rows of each kind, in alternation, so that other load affects both alike.
const BLOCKS: usize = 4;

/// With this ttl a phase may take a quarter of a second.
const PATIENT: Duration = Duration::from_secs(60);

/// Times of acquisitions, and of two round trips to a majority meanwhile.
#[derive(Default)]
struct Times {
    took: Vec<Duration>,
    pairs: Vec<Duration>,
}

impl Times {
    /// The quickest acquisition, in pairs: a busy machine makes most slower, and none quicker.
    fn in_pairs(&self) -> f64 {
        let quickest = |times: &[Duration]| times.iter().min().copied().unwrap_or_default();
        let (took, pair) = (quickest(&self.took), quickest(&self.pairs));
        println!("an acquisition {took:?}, a pair {pair:?}");
        took.as_secs_f64() / pair.max(PAIR).as_secs_f64()
    }
}

impl AddAssign for Times {
    fn add_assign(&mut self, other: Self) {
        self.took.extend(other.took);
        self.pairs.extend(other.pairs);
    }
}

/// The time of two short round trips to a majority of five.
async fn pair(lines: &[MultiplexedConnection]) -> Duration {
    let begun = Instant::now();
    for _ in 0..2 {
        let asked = lines.iter().cloned().map(|mut line| async move {
            let answer: String = redis::cmd("PING").query_async(&mut line).await.unwrap();
            answer
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        for _ in 0..3 {
            asked.next().await.unwrap();
        }
    }
    begun.elapsed()
}

async fn take(mutex: &leasehold::Mutex, lines: &[MultiplexedConnection]) -> Times {
    let mut times = Times::default();
    for _ in 0..BLOCK {
        times.pairs.push(pair(lines).await);
        let begun = Instant::now();
        let guard = mutex.lock().await.unwrap();
        times.took.push(begun.elapsed());
        guard.release().await.unwrap();
    }
    times
}

/// The acquisitions that were sent to each master.
fn asked(far: &Proxied) -> Vec<usize> {
    let proxies = far.proxies.iter();
    proxies.map(|proxy| proxy.counted("acquire")).collect()
}

/// Checks that every acquisition since then was sent to each of these masters, and hardly ever twice.
async fn are_asked_once(far: &Proxied, some: Range<usize>, since: &[usize]) {
    let rounds = || -> Vec<_> {
        let counted = asked(far).into_iter().zip(since);
        let rounds: Vec<_> = counted.map(|(now, since)| now - since).collect();
        rounds[some.clone()].to_vec()
    };
    // A majority is enough to go on.
    eventually_async(LONG, async || rounds().iter().all(|asked| *asked >= BLOCK)).await;
    let rounds = rounds();
    let few = BLOCK + BLOCK / 10;
    assert!(rounds.iter().all(|asked| *asked <= few), "{rounds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_takes_a_grant_and_a_writing_also_with_a_dead_master() {
    let far = Proxied::start(5);
    let client = client_at(&far.url(), PATIENT).await;
    let mutex = client.mutex("far").unwrap();
    let mut lines = Vec::new();
    for proxy in &far.proxies[1..] {
        let client = redis::Client::open(proxy.url()).unwrap();
        lines.push(client.get_multiplexed_async_connection().await.unwrap());
    }
    for proxy in &far.proxies {
        proxy.delay(Way::Both, EACH_WAY..=EACH_WAY);
        proxy.count("acquire");
    }
    mutex.lock().await.unwrap().release().await.unwrap();
    let (mut all, mut less) = (Times::default(), Times::default());
    for _ in 0..BLOCKS {
        let before = asked(&far);
        all += take(&mutex, &lines).await;
        are_asked_once(&far, 0..5, &before).await;

        // As if it was killed.
        far.proxies[0].refuse();
        far.proxies[0].cut();
        let before = asked(&far);
        less += take(&mutex, &lines).await;
        are_asked_once(&far, 1..5, &before).await;
        far.proxies[0].go_on();
        // Until it is used again.
        eventually_async(LONG, async || {
            let before = far.proxies[0].counted("acquire");
            mutex.lock().await.unwrap().release().await.unwrap();
            far.proxies[0].counted("acquire") > before
        })
        .await;
    }
    let (all, less) = (all.in_pairs(), less.in_pairs());
    // A third round trip would make it 1.5.
    assert!(all < 1.4, "{all}");
    assert!(less < 1.4, "{less}");
}
