//! The script follows the rule of `leasehold_core::mutex`.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::store::{Event, OpenOptions, RedisStore};
use leasehold_core::Notice;
use leasehold_core::mutex::{self, Record};
use leasehold_testkit::RedisServer;

use super::event_log::Asker;
use super::*;

/// How far apart the server's readings of its clock in one script may be, when the machine is busy.
const GRAIN: Duration = Duration::from_millis(200);

/// How near the end of a lease two readings may disagree on whether it has ended.
const EDGE: Duration = Duration::from_millis(50);

/// Random histories, in batches, on a server whose clock is moved: every outcome is the one that
/// the rule gives for the server's time in the same reply, and the clients that can be told are told
/// the grants that the rule tells. A seed that fails is in the message.
#[tokio::test(flavor = "multi_thread")]
async fn the_script_is_the_rule() {
    let server = RedisServer::options().clock_shim().start();
    let store = open(&server.url()).await;
    let mut event_logs = Vec::new();
    for client in CLIENTS.filter(|client| hears(*client)) {
        let asker = Asker::connect(&server.url(), client).await;
        asker.settle().await;
        event_logs.push(asker);
    }
    let mut seen = Seen::default();
    for seed in 0..60 {
        let mut history = History {
            seed,
            random: Random(seed + 1),
            records: HashMap::new(),
            told: Vec::new(),
        };
        let compared = history.play(&server, &*store, &mut seen).await;
        for asker in &event_logs {
            // If it ends on an edge, the rest of its batch told what nobody compares.
            let settle = compared.then_some(&history.told);
            heard(asker, settle, seed).await;
        }
        if compared {
            history.check_end(&*store).await;
        }
    }
    let often = |count: &usize| *count > 20;
    assert!(seen.outcomes.len() >= 6, "{seen:?}");
    assert!(seen.outcomes.values().all(often), "{seen:?}");
    assert!(
        [seen.told, seen.passed_over, seen.behind].iter().all(often),
        "{seen:?}"
    );
}

/// Two that are connected and two that are not.
const CLIENTS: std::ops::Range<u8> = 1..5;

fn hears(client: u8) -> bool {
    client < 3
}

/// How often something happened that is to be compared.
#[derive(Debug, Default)]
struct Seen {
    outcomes: HashMap<std::mem::Discriminant<Outcome>, usize>,
    /// Grants to those who could be told.
    told: usize,
    /// Waiters that could not.
    passed_over: usize,
    /// Waiters that were not the head.
    behind: usize,
}

/// The server's records as the rule has them, under two names of their own.
struct History {
    seed: u64,
    random: Random,
    records: HashMap<Key, Record>,
    told: Vec<(Key, Notice)>,
}

impl History {
    /// Plays it to its end. `false` if it came so near the end of a lease or queue that nobody knows
    /// on which side the server saw it.
    async fn play(&mut self, server: &RedisServer, store: &dyn Store, seen: &mut Seen) -> bool {
        for _ in 0..30 {
            let batch: Vec<_> = (0..=self.random.below(6))
                .map(|_| self.random.request(self.seed))
                .collect();
            let replies = store.apply(batch.clone()).await;
            for (request, reply) in batch.iter().zip(replies) {
                let Reply::Applied { outcome, now } = reply else {
                    panic!("seed {}: {request:?}: {reply:?}", self.seed);
                };
                if !self.compare(request, outcome, now, seen) {
                    return false;
                }
            }
            server.step_clock(STEP_MS * i64::from(self.random.below(5)));
        }
        true
    }

    fn compare(
        &mut self,
        request: &Request,
        outcome: Outcome,
        now: StoreTime,
        seen: &mut Seen,
    ) -> bool {
        let record = self.records.entry(request.key.clone()).or_default();
        if on_the_edge(record, now) {
            return false;
        }
        let expected = mutex::apply(record, &request.op, now, |notice| {
            let reached = CLIENTS
                .clone()
                .any(|client| hears(client) && notice.lease().client == id(client));
            let granted = matches!(notice, Notice::Granted(_));
            if reached {
                self.told.push((request.key.clone(), *notice));
                seen.told += usize::from(granted);
            } else {
                seen.passed_over += usize::from(granted);
            }
            reached
        });
        let seed = self.seed;
        assert!(
            alike(outcome, expected),
            "seed {seed}: {request:?}: {outcome:?}, {expected:?}"
        );
        if let Outcome::Refused {
            queue_position: place,
            ..
        } = outcome
        {
            seen.behind += usize::from(place > Some(0));
        }
        let count = seen.outcomes.entry(std::mem::discriminant(&outcome));
        *count.or_default() += 1;
        true
    }

    async fn check_end(&self, store: &dyn Store) {
        let seed = self.seed;
        for (key, record) in &self.records {
            let held = record.hold.map(|hold| (hold.lease, hold.count.get()));
            // The clock has moved on: the record may have ended since.
            if let Some(entry) = store.inspect(key).await.unwrap() {
                assert_eq!(Some((entry.lease, entry.count)), held, "seed {seed}");
                assert_eq!(entry.token, record.last_token, "seed {seed}");
            }
        }
    }
}

/// Checks what a client heard in a history. `None`: anything.
async fn heard(asker: &Asker, told: Option<&Vec<(Key, Notice)>>, seed: u64) {
    // What was published before this answer was heard before it.
    asker.settle().await;
    let mut heard = asker.event_log.take();
    // Hints that a lock is lost.
    heard.retain(|event| matches!(event, Event::Notice(..)));
    let Some(told) = told else {
        return;
    };
    let own = |(_, notice): &&(Key, Notice)| notice.lease().client == asker.lease(0).client;
    let told = told.iter().filter(own);
    let told = told.map(|(key, notice)| Event::Notice(key.clone(), *notice));
    assert_eq!(heard, told.collect::<Vec<_>>(), "seed {seed}");
}

/// Whether a lease or a queue ends about now, so that one reading of the clock may see it and
/// another not.
fn on_the_edge(record: &Record, now: StoreTime) -> bool {
    let hold = record.hold.map(|hold| hold.expires_at);
    let queue = (!record.queue.is_empty()).then(|| record.queue.until());
    let mut ends = hold.into_iter().chain(queue);
    ends.any(|end| end.until(now).max(now.until(end)) < EDGE)
}

fn alike(outcome: Outcome, expected: Outcome) -> bool {
    match (outcome, expected) {
        (
            Outcome::Refused {
                time_left: a,
                queue_position: place,
            },
            Outcome::Refused {
                time_left: b,
                queue_position: expected,
            },
        ) => a.abs_diff(b) <= GRAIN && place == expected,
        _ => outcome == expected,
    }
}

/// By what the clock is moved, and the ttls, so chosen that nearly nothing ends about when it is
/// looked at: neither a ttl, nor two and a second, nor three seconds are near a multiple of the step.
const STEP_MS: i64 = 400;
const TTLS_MS: [u64; 3] = [1_350, 2_150, 3_350];

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
        let client = CLIENTS.start + u8::try_from(self.below(4)).unwrap();
        let lease = LeaseId {
            client: id(client),
            number: u64::from(self.below(2)),
        };
        let ttl = ttl(TTLS_MS[usize::try_from(self.below(3)).unwrap()]);
        let count = self.below(3);
        let op = match self.below(12) {
            0..=5 => Op::Acquire {
                lease,
                count: NonZeroU32::new(count + 1).unwrap(),
                ttl,
                tokens: TokenCount::new(self.below(300) + 1).unwrap(),
                wait: self.below(4) > 0,
            },
            6..=7 => Op::Renew { lease, ttl },
            8..=10 => Op::Release {
                lease,
                count: count.saturating_sub(1),
                ttl,
            },
            _ => Op::Revoke,
        };
        let name = format!("{seed}/{}", self.below(2));
        Request::new(key(&name), op)
    }
}

fn id(client: u8) -> ClientId {
    ClientId::from_random([client; 16])
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
    let Outcome::Refused {
        time_left: left, ..
    } = applied(&*store, acquire("a", 2)).await
    else {
        panic!("granted too early");
    };
    assert!(left <= Duration::from_secs(10), "{left:?}");
    server.step_clock(10_001);
    assert_eq!(
        applied(&*store, renew("a", 1)).await,
        Outcome::Lost(Loss::Gone)
    );
    assert_eq!(
        applied(&*store, release("a", 1, 0)).await,
        Outcome::Lost(Loss::Gone)
    );
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
