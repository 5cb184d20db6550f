//! Two clients contend for a lock while minorities of the masters fail.

use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use leasehold::Token;
use leasehold::fence::Gate;

/// The least number of failures.
const FAULTS: usize = 4;

/// The least number of grants to each client; `LEASEHOLD_TEST_ROUNDS` changes it, in hundreds.
fn grants() -> usize {
    let rounds = std::env::var("LEASEHOLD_TEST_ROUNDS").ok();
    100 * rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// The protected resource, and its believed holders.
#[derive(Default)]
struct Resource {
    gate: Gate,
    /// The believed holder, and the largest token so far.
    believed: StdMutex<(Option<Token>, Option<Token>)>,
    grants: AtomicUsize,
}

impl Resource {
    /// Uses it under a lock.
    async fn use_with(&self, guard: Guard, hold: Duration) {
        let token = guard.token();
        let older = {
            let mut believed = self.believed.lock().unwrap();
            let (holder, last) = *believed;
            assert!(last < Some(token), "{token} after {last:?}");
            if guard.state().is_lost() {
                return;
            }
            assert_eq!(holder, None, "{token} beside it");
            assert!(self.gate.admit(token).is_ok(), "{token} is refused");
            *believed = (Some(token), Some(token));
            last
        };
        self.grants.fetch_add(1, Ordering::Relaxed);
        tokio::select! {
            cause = guard.lost() => panic!("{cause:?}: a majority was there all the time"),
            () = tokio::time::sleep(hold) => {}
        }
        if let Some(older) = older {
            assert!(
                self.gate.admit(older).is_err(),
                "{older} is admitted after {token}"
            );
        }
        assert!(self.gate.admit(token).is_ok());
        self.believed.lock().unwrap().0 = None;
        // A majority of the masters that granted it need not be there any more.
        if let Err(error) = guard.release().await {
            assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
        }
    }
}

/// Has minorities fail and come back, at random, until the end.
fn fail_at_random(masters: &mut Masters, seed: u64, failed: &AtomicUsize, over: &AtomicBool) {
    let count = masters.servers().len();
    let mut random = fastrand::Rng::with_seed(seed);
    while !over.load(Ordering::Relaxed) {
        let first = random.usize(..count);
        let gone: Vec<_> = (0..=random.usize(..count / 2))
            .map(|nth| (first + nth) % count)
            .collect();
        let failure = Failure::ALL[random.usize(..2)];
        gone.iter().for_each(|nth| failure.begin(masters, *nth));
        std::thread::sleep(Duration::from_millis(random.u64(..400)));
        gone.iter().for_each(|nth| failure.end(masters, *nth));
        std::thread::sleep(Duration::from_millis(random.u64(..400)));
        // Each has to be admitted before the next may fail, or a majority is away.
        settled(masters, over);
        failed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until all masters are admitted by the clients that use them.
fn settled(masters: &Masters, over: &AtomicBool) {
    leasehold_testkit::eventually(LONG, || {
        over.load(Ordering::Relaxed)
            || masters
                .servers()
                .iter()
                .all(|server| is_admitted(server, "leasehold"))
    });
}

async fn contended(count: usize, seed: u64) {
    println!("seed {seed}");
    let mut masters = Masters::aged(count);
    let url = short(&masters);
    let clients = two_clients(&url).await;
    lock(&clients[0], "a").await.release().await.unwrap();
    let resource = Arc::new(Resource::default());
    let over = Arc::new(AtomicBool::new(false));
    let failed = Arc::new(AtomicUsize::new(0));
    let faults = std::thread::spawn({
        let (failed, over) = (Arc::clone(&failed), Arc::clone(&over));
        move || {
            fail_at_random(&mut masters, seed, &failed, &over);
            masters
        }
    });
    let takers = clients.into_iter().enumerate().map(|(nth, client)| {
        let (resource, failed) = (Arc::clone(&resource), Arc::clone(&failed));
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed + 1 + nth as u64);
            let mut taken = 0;
            while taken < grants() || failed.load(Ordering::Relaxed) < FAULTS {
                taken += 1;
                let guard = lock(&client, "a").await;
                let hold = Duration::from_millis(random.u64(..20));
                resource.use_with(guard, hold).await;
            }
        })
    });
    let takers: Vec<_> = takers.collect();
    for taker in takers {
        taker.await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let masters = tokio::task::block_in_place(|| faults.join().unwrap());
    assert!(resource.grants.load(Ordering::Relaxed) >= 2 * grants());
    eventually_async(LONG, async || records(&all(&masters), "a") == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_three() {
    contended(3, 0x5eed_0003).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_five() {
    contended(5, 0x5eed_0005).await;
}
