//! The script follows the rule of `leasehold_core::mutex`.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::store::{OpenOptions, RedisStore};
use leasehold_core::mutex::{self, Record};
use leasehold_testkit::RedisServer;

use super::*;

/// How far apart the server's readings of its clock in one script may be, when the machine is busy.
const GRAIN: Duration = Duration::from_millis(200);

/// How near the end of a lease two readings may disagree on whether it has ended.
const EDGE: Duration = Duration::from_millis(50);

/// Random histories, in batches, on a server whose clock is moved: every outcome is the one that
/// the rule gives for the server's time in the same reply. A seed that fails is in the message.
#[tokio::test(flavor = "multi_thread")]
async fn the_script_is_the_rule() {
    let server = RedisServer::options().clock_shim().start();
    let store = open(&server.url()).await;
    let mut seen = HashMap::new();
    'histories: for seed in 0..20 {
        let mut random = Random(seed + 1);
        let mut records: HashMap<Key, Record> = HashMap::new();
        for _ in 0..30 {
            let batch: Vec<_> = (0..=random.below(6))
                .map(|_| random.request(seed))
                .collect();
            let replies = store.apply(batch.clone()).await;
            for (request, reply) in batch.iter().zip(replies) {
                let Reply::Applied { outcome, now } = reply else {
                    panic!("seed {seed}: {request:?}: {reply:?}");
                };
                let record = records.entry(request.key.clone()).or_default();
                if on_the_edge(record, now) {
                    continue 'histories;
                }
                let expected = mutex::apply(record, &request.op, now, |_| false);
                assert!(
                    alike(outcome, expected),
                    "seed {seed}: {request:?}: {outcome:?}, {expected:?}"
                );
                *seen.entry(std::mem::discriminant(&outcome)).or_insert(0) += 1;
            }
            // Steps of half seconds and ttls a quarter off them: nearly nothing ends on an edge.
            server.step_clock(500 * i64::from(random.below(4)));
        }
        for (key, record) in records {
            let entry = store.inspect(&key).await.unwrap();
            let held = record.hold.map(|hold| (hold.lease, hold.count.get()));
            // The clock has moved on: the record may have ended since.
            if let Some(entry) = entry {
                assert_eq!(Some((entry.lease, entry.count)), held, "seed {seed}");
                assert_eq!(entry.token, record.last_token, "seed {seed}");
            }
        }
    }
    assert!(
        seen.len() >= 6 && seen.values().all(|count| *count > 20),
        "{seen:?}"
    );
}

/// Whether a lease ends about now, so that one reading of the clock may see it and another not.
fn on_the_edge(record: &Record, now: StoreTime) -> bool {
    let end = record.hold.map(|hold| hold.expires_at);
    end.is_some_and(|end| end.until(now).max(now.until(end)) < EDGE)
}

fn alike(outcome: Outcome, expected: Outcome) -> bool {
    match (outcome, expected) {
        (Outcome::Refused { left: a, .. }, Outcome::Refused { left: b, .. }) => {
            a.abs_diff(b) <= GRAIN
        }
        _ => outcome == expected,
    }
}

/// A generator of Marsaglia's xorshift family: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 11) % u64::from(end)).unwrap()
    }

    fn request(&mut self, seed: u64) -> Request {
        let lease = lease(u64::from(self.below(3)));
        let ttl = ttl(u64::from(self.below(3)) * 1_000 + 1_250);
        let count = self.below(3);
        let op = match self.below(10) {
            0..=3 => Op::Acquire {
                lease,
                count: NonZeroU32::new(count + 1).unwrap(),
                ttl,
                tokens: TokenCount::new(self.below(300) + 1).unwrap(),
                wait: false,
            },
            4..=5 => Op::Renew { lease, ttl },
            6..=8 => Op::Release { lease, count, ttl },
            _ => Op::Revoke,
        };
        let name = format!("{seed}/{}", self.below(2));
        Request {
            key: key(&name),
            op,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_requests_are_one_batch() {
    let server = RedisServer::start();
    let options = OpenOptions::default();
    let store = RedisStore::open(&server.url(), &options).await.unwrap();
    let before = store.calls();
    let batch: Vec<_> = (0..1_000)
        .map(|n| acquire(&format!("lock {n}"), n))
        .collect();
    let replies = store.apply(batch).await;
    assert_eq!(replies.len(), 1_000);
    for reply in replies {
        assert!(
            matches!(
                reply,
                Reply::Applied {
                    outcome: Outcome::Granted { .. },
                    ..
                }
            ),
            "{reply:?}"
        );
    }
    assert_eq!(store.calls() - before, 4);
    assert_eq!(server.cli(&["DBSIZE"]), "2000");
    // In order, also over the bounds of a call, and with the script forgotten.
    server.cli(&["SCRIPT", "FLUSH"]);
    let rounds = (0..1_000).map(|n| match n % 2 {
        0 => acquire("one", n),
        _ => release("one", n - 1, 0),
    });
    let mut last = 0;
    for (n, reply) in store.apply(rounds.collect()).await.into_iter().enumerate() {
        match reply {
            Reply::Applied {
                outcome: Outcome::Granted { first },
                ..
            } if n % 2 == 0 => {
                assert!(first.get() > last);
                last = first.get();
            }
            Reply::Applied {
                outcome: Outcome::Released { count: 0 },
                ..
            } if n % 2 == 1 => {}
            other => panic!("{n}: {other:?}"),
        }
    }
    assert!(store.apply(Vec::new()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_when_the_servers_clock_says_so() {
    let server = RedisServer::options().clock_shim().start();
    let store = open(&server.url()).await;
    granted(&*store, acquire("a", 1)).await;
    server.step_clock(20_000);
    let Outcome::Refused { left, .. } = applied(&*store, acquire("a", 2)).await else {
        panic!("granted too early");
    };
    assert!(left <= Duration::from_secs(10), "{left:?}");
    server.step_clock(10_001);
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Lost);
    assert_eq!(applied(&*store, release("a", 1, 0)).await, Outcome::Lost);
    granted(&*store, acquire("a", 2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_without_the_counter_and_against_the_clock() {
    let server = RedisServer::options().clock_shim().start();
    let store = open(&server.url()).await;
    let mut last = 0;
    for round in 0..12 {
        match round % 3 {
            0 => drop(server.cli(&["DEL", "app:{t:a}:token"])),
            1 => server.step_clock(-3_600_000),
            // The counter is ahead of the clock now. Once it is not, either alone is enough.
            _ => server.step_clock(3_600_000),
        }
        let token = granted(&*store, acquire("a", round)).await;
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        applied(&*store, release("a", round, 0)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_of_tokens_is_reserved_once() {
    let server = RedisServer::start();
    let store = open(&server.url()).await;
    let block = |number, tokens| {
        let mut request = acquire("a", number);
        if let Op::Acquire { tokens: place, .. } = &mut request.op {
            *place = TokenCount::new(tokens).unwrap();
        }
        request
    };
    let first = granted(&*store, block(1, 256)).await;
    assert_eq!(granted(&*store, block(1, 256)).await, first);
    assert_eq!(
        server.cli(&["GET", "app:{t:a}:token"]),
        (first + 255).to_string()
    );
    applied(&*store, release("a", 1, 0)).await;
    assert!(granted(&*store, block(2, u32::MAX)).await > first + 255);
}
