//! Two clients want one lock while masters come and go, never a majority at once.

use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use leasehold::Token;
use leasehold::fence::Gate;
use leasehold_testkit::Restart;

use super::*;

/// How many times masters fail at least.
const FAULTS: usize = 4;

/// How many grants each client takes at least: more by `LEASEHOLD_TEST_ROUNDS`, in hundreds.
fn grants() -> usize {
    let rounds = std::env::var("LEASEHOLD_TEST_ROUNDS").ok();
    100 * rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// Random numbers that a seed repeats.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        // As in G. Marsaglia, "Xorshift RNGs" (2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
    }
}

/// What the lock protects, and who has believed in it.
#[derive(Default)]
struct Resource {
    gate: Gate,
    /// Who believes in it now, and the largest token so far.
    book: StdMutex<(Option<Token>, Option<Token>)>,
    grants: AtomicUsize,
}

impl Resource {
    /// One holds it, for as long as it can tell.
    async fn use_it(&self, guard: Guard, pause: Duration) {
        let token = guard.token();
        let older = {
            let mut book = self.book.lock().unwrap();
            let (holder, last) = *book;
            assert!(last < Some(token), "{token} after {last:?}");
            if guard.state().is_lost() {
                return;
            }
            assert_eq!(holder, None, "{token} beside it");
            // Under the lock of the data, as it is to be.
            assert!(self.gate.admit(token).is_ok(), "{token} is refused");
            *book = (Some(token), Some(token));
            last
        };
        self.grants.fetch_add(1, Ordering::Relaxed);
        tokio::select! {
            cause = guard.lost() => panic!("{cause:?}: a majority was there all the time"),
            () = tokio::time::sleep(pause) => {}
        }
        if let Some(older) = older {
            assert!(
                self.gate.admit(older).is_err(),
                "{older} is admitted after {token}"
            );
        }
        assert!(self.gate.admit(token).is_ok());
        self.book.lock().unwrap().0 = None;
        // Where it was granted a majority need not be any more: who was away then has nothing of it.
        if let Err(error) = guard.release().await {
            assert_eq!(error.kind(), ErrorKind::NoQuorum, "{error}");
        }
    }
}

/// Lets a minority fail and come back, at random, until it is told to end.
fn faults(masters: &mut Masters, seed: u64, failed: &AtomicUsize, over: &AtomicBool) {
    let count = masters.servers().len();
    let mut random = Random(seed);
    while !over.load(Ordering::Relaxed) {
        let first = random.below(count);
        let gone: Vec<_> = (0..=random.below(count / 2))
            .map(|nth| (first + nth) % count)
            .collect();
        let killed = random.below(2) == 0;
        for nth in &gone {
            match killed {
                true => masters.server_mut(*nth).kill9(),
                false => masters.server(*nth).stop(),
            }
        }
        let pause = |random: &mut Random, most: usize| {
            let millis = u64::try_from(random.below(most)).unwrap();
            std::thread::sleep(Duration::from_millis(millis));
        };
        pause(&mut random, 400);
        for nth in &gone {
            match killed {
                true => masters.server_mut(*nth).restart(Restart::Kept),
                false => masters.server(*nth).cont(),
            }
        }
        // It has to be admitted before the next may go, or a majority is away.
        pause(&mut random, 400);
        settled(masters, over);
        failed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until all of them are there and admitted, by the clients that use them.
fn settled(masters: &Masters, over: &AtomicBool) {
    leasehold_testkit::eventually(LONG, || {
        over.load(Ordering::Relaxed)
            || masters.servers().iter().all(|server| {
                let info = server.cli(&["INFO", "replication"]);
                let run = server.cli(&["HGET", "leasehold:master", "run"]);
                !run.is_empty() && info.contains(&format!("master_replid:{run}"))
            })
    });
}

async fn contended(count: usize, seed: u64) {
    println!("seed {seed}");
    let mut masters = Masters::aged(count);
    let url = short(&masters);
    let clients = [client(&url, TTL).await, client(&url, TTL).await];
    lock(&clients[0], "a").await.release().await.unwrap();
    let resource = Arc::new(Resource::default());
    let over = Arc::new(AtomicBool::new(false));
    let failed = Arc::new(AtomicUsize::new(0));
    let fault_mode = std::thread::spawn({
        let (failed, over) = (Arc::clone(&failed), Arc::clone(&over));
        move || {
            faults(&mut masters, seed, &failed, &over);
            masters
        }
    });
    let takers = clients.into_iter().enumerate().map(|(nth, client)| {
        let (resource, failed) = (Arc::clone(&resource), Arc::clone(&failed));
        tokio::spawn(async move {
            let mut random = Random(seed + 1 + u64::try_from(nth).unwrap());
            let mut taken = 0;
            while taken < grants() || failed.load(Ordering::Relaxed) < FAULTS {
                taken += 1;
                let guard = lock(&client, "a").await;
                let pause = Duration::from_millis(u64::try_from(random.below(20)).unwrap());
                resource.use_it(guard, pause).await;
            }
        })
    });
    let takers: Vec<_> = takers.collect();
    for taker in takers {
        taker.await.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    let masters = tokio::task::block_in_place(|| fault_mode.join().unwrap());
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
