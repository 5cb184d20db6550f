//! The layer on documents in memory: what the clocks of its clients may do, and what a store may reply.

mod calendar;
mod contention;
mod damage;
mod garbage;
mod notices;
mod readings;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use leasehold_core::{Acquire, ClientId, LeaseId, Loss, Name, Op, Outcome, Ttl};

use super::documents::{Document, Documents, Replaced, Version, Write};
use super::*;
use crate::clock::ManualClock;
use crate::store::api::fixture::key;
use crate::store::api::{Parts, Request, Store, StoreKind, View};
use crate::store::records::ListPart;
use crate::store::rule_store::RuleStore;

const TTL: Duration = Duration::from_secs(10);

type Texts = BTreeMap<Key, (u64, String)>;

/// Documents in memory, which several clients share.
#[derive(Clone, Debug, Default)]
struct InMemory {
    texts: Arc<Mutex<Texts>>,
    fault: Arc<Mutex<Option<WriteFault>>>,
    held_back: Arc<Mutex<Vec<Write>>>,
    /// Whether reads fail.
    is_unreadable: Arc<Mutex<bool>>,
    /// Whether a document that is not known is written without being read.
    is_guessed: bool,
    /// Which documents are removed.
    garbage: Garbage,
    /// How many names a part of a list has, if not all.
    page: Option<usize>,
    /// How long each document takes, or only this one.
    delay: Duration,
    slow: Option<Key>,
    /// How long the reply to a write takes after it is applied.
    reply_delay: Duration,
    /// Whether clients are notified. All are alive then, but these.
    has_messages: bool,
    dead: Arc<Mutex<HashSet<ClientId>>>,
    /// The bytes of the longest read.
    longest_read: Arc<AtomicUsize>,
    /// How many writes have arrived.
    writes: Arc<AtomicUsize>,
    /// The receivers of the last write.
    receivers: Arc<Mutex<Vec<ClientId>>>,
}

/// What happens to writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteFault {
    /// The next one is applied without a reply.
    Lost,
    /// The next one arrives twice.
    Repeated,
    /// The same, and in between another client, which may have been dead, writes what was there before.
    Overwritten,
    /// All are held back.
    HeldBack,
}

impl fmt::Display for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("documents:")
    }
}

impl InMemory {
    /// Documents whose clients are notified.
    fn notifying() -> Self {
        Self {
            has_messages: true,
            ..Self::default()
        }
    }

    fn span<'a>(&self, keys: impl Iterator<Item = &'a Key>) -> Duration {
        let is_slow = |key: &&Key| self.slow.as_ref().is_none_or(|slow| slow == *key);
        self.delay * u32::try_from(keys.filter(is_slow).count()).unwrap()
    }

    fn write(&self, writes: Vec<Write>) -> Vec<Replaced> {
        let (mut texts, mut fault) = (lock(&self.texts), lock(&self.fault));
        let mut replace = |write: Write| {
            if *fault == Some(WriteFault::HeldBack) {
                lock(&self.held_back).push(write);
                return Replaced::Unknown(no_reply());
            }
            let version = texts.get(&write.key).map_or(0, |it| it.0);
            if write.seen != Version(version.to_string()) {
                return Replaced::Conflict(None);
            }
            let receivers = write.messages.iter().map(|message| message.0);
            *lock(&self.receivers) = receivers.collect();
            if *fault == Some(WriteFault::Overwritten) {
                *fault = None;
                lock(&self.dead).clear();
                let entry = texts.get_mut(&write.key).unwrap();
                entry.0 += 2;
                return Replaced::Conflict(Some(Document {
                    version: Version(entry.0.to_string()),
                    text: Some(entry.1.clone()),
                    age: Duration::ZERO,
                }));
            }
            match write.text {
                Some(text) => drop(texts.insert(write.key, (version + 1, text))),
                None => drop(texts.remove(&write.key)),
            }
            match fault.take() {
                None => Replaced::Done(Version((version + 1).to_string())),
                Some(WriteFault::Repeated) => Replaced::Conflict(None),
                Some(_) => Replaced::Unknown(no_reply()),
            }
        };
        writes.into_iter().map(&mut replace).collect()
    }

    /// Holds the write of a request back.
    async fn hold_back(&self, client: &TestClient, op: Op) {
        *lock(&self.fault) = Some(WriteFault::HeldBack);
        client.loses(op).await;
        *lock(&self.fault) = None;
    }

    /// What was held back arrives, and is refused.
    fn refuse_held_back(&self) {
        let late = std::mem::take(&mut *lock(&self.held_back));
        let replies = self.write(late);
        let [Replaced::Conflict(_)] = replies[..] else {
            panic!("{replies:?}");
        };
    }
}

impl Documents for InMemory {
    fn capabilities(&self) -> Capabilities {
        let wakeup = match self.has_messages {
            true => WakeupMode::Grants,
            false => WakeupMode::Nothing,
        };
        Capabilities::new(StoreKind::Objects, wakeup)
    }

    async fn read(&self, keys: Vec<Key>) -> Result<Vec<Document>> {
        if *lock(&self.is_unreadable) {
            return Err(no_reply());
        }
        tokio::time::sleep(self.span(keys.iter())).await;
        let texts = lock(&self.texts);
        let document = |key| Document {
            version: Version(texts.get(&key).map_or(0, |it| it.0).to_string()),
            text: texts.get(&key).map(|it| it.1.clone()),
            age: Duration::ZERO,
        };
        let read: Vec<_> = keys.into_iter().map(document).collect();
        let bytes = read.iter().flat_map(|it| &it.text).map(String::len).sum();
        self.longest_read.fetch_max(bytes, Ordering::Relaxed);
        Ok(read)
    }

    async fn replace(&self, writes: Vec<Write>) -> Vec<Replaced> {
        let span = self.span(writes.iter().map(|write| &write.key));
        tokio::time::sleep(span).await;
        self.writes.fetch_add(writes.len(), Ordering::Relaxed);
        let replies = self.write(writes);
        tokio::time::sleep(self.reply_delay).await;
        replies
    }

    async fn names(&self, space: &Keyspace, after: &str) -> Result<ListPart<Name>> {
        let texts = lock(&self.texts);
        let names = texts.keys().filter(|key| key.space == *space);
        let names = names.map(|key| key.name.clone());
        let mut entries: Vec<_> = names.filter(|name| name.as_str() > after).collect();
        let page = self.page.unwrap_or(usize::MAX);
        let is_last = entries.len() <= page;
        entries.truncate(page);
        Ok(ListPart { entries, is_last })
    }

    fn absent(&self) -> Option<Version> {
        self.is_guessed.then(|| Version("0".to_owned()))
    }

    fn garbage(&self) -> Garbage {
        self.garbage
    }

    async fn alive(&self, clients: Vec<ClientId>) -> Result<HashSet<ClientId>> {
        let dead = lock(&self.dead);
        let is_alive = |client: &ClientId| self.has_messages && !dead.contains(client);
        Ok(clients.into_iter().filter(is_alive).collect())
    }
}

/// A client with a clock of its own, whose wall clock is off by some seconds.
struct TestClient {
    store: RuleStore<Optimistic<InMemory>>,
    clock: ManualClock,
    lease: LeaseId,
}

impl TestClient {
    fn new(documents: &InMemory, number: u8, wall_ahead: i64) -> Self {
        let (hub, clock) = (Arc::default(), ManualClock::new());
        let now = SystemTime::now();
        let off = Duration::from_secs(wall_ahead.unsigned_abs());
        let wall = if wall_ahead < 0 { now - off } else { now + off };
        let wall = Some((wall, clock.now()));
        let options = OpenOptions::default();
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let optimistic = Optimistic::with_clocks(documents.clone(), &hub, &options, shared, wall);
        Self {
            store: RuleStore::with_hub(optimistic.unwrap(), hub),
            clock,
            lease: LeaseId {
                client: ClientId::from_random([number; 16]),
                number: 1,
            },
        }
    }

    async fn apply(&self, op: Op) -> Outcome {
        match self.send(op).await {
            Reply::Applied { outcome, .. } => outcome,
            other => panic!("{other:?}"),
        }
    }

    async fn send(&self, op: Op) -> Reply {
        let mut replies = self.store.apply(vec![Request::new(key("a"), op)]).await;
        replies.pop().unwrap()
    }

    /// Sends a request that has no reply.
    async fn loses(&self, op: Op) {
        let reply = self.send(op).await;
        assert!(matches!(reply, Reply::Unknown(_)), "{reply:?}");
    }

    async fn renews(&self) {
        let renew = Op::renew(self.lease, Ttl::checked(TTL).unwrap());
        assert_eq!(self.apply(renew).await, Outcome::Kept);
    }

    async fn releases(&self) {
        let released = self.apply(Op::release(self.lease)).await;
        assert_eq!(released, Outcome::Released);
    }

    async fn view(&self, parts: Parts) -> View {
        let store: &dyn Store = &self.store;
        store.view(&key("a"), parts).await.unwrap()
    }

    async fn acquires(&self) -> bool {
        let outcome = self.apply(acquire(self.lease, TTL, false)).await;
        matches!(outcome, Outcome::Granted { .. })
    }
}

/// Clients that share documents.
fn clients<const N: usize>(documents: &InMemory) -> [TestClient; N] {
    std::array::from_fn(|at| TestClient::new(documents, u8::try_from(at).unwrap() + 1, 0))
}

fn acquire(lease: LeaseId, ttl: Duration, wait: bool) -> Op {
    Op::Acquire(Acquire {
        wait,
        ..Acquire::mutex(lease, Ttl::checked(ttl).unwrap())
    })
}

fn wait(lease: LeaseId) -> Op {
    acquire(lease, TTL, true)
}

fn pass(clients: &[&TestClient], time: Duration) {
    for client in clients {
        client.clock.advance(time);
    }
}

/// Whatever the wall clock of either shows, a holder is over a ttl after the other has seen it, and not earlier.
#[tokio::test]
async fn no_wall_clock_ends_a_lease_early_or_late() {
    for (first, second) in [(0, 0), (3_600, -3_600), (-3_600, 3_600), (0, 86_400)] {
        let documents = InMemory::default();
        let holder = TestClient::new(&documents, 1, first);
        let other = TestClient::new(&documents, 2, second);
        assert!(holder.acquires().await);
        assert!(!other.acquires().await);
        pass(&[&holder, &other], TTL / 2);
        // A renewal counts from its own run, and for the other one from when it sees it.
        holder.renews().await;
        assert!(!other.acquires().await);
        pass(&[&holder, &other], TTL - Duration::from_millis(1));
        assert!(!other.acquires().await, "{first} {second}");
        pass(&[&holder, &other], Duration::from_millis(1));
        assert!(other.acquires().await, "{first} {second}");
        let lost = holder.apply(Op::release(holder.lease)).await;
        assert_eq!(lost, Outcome::Lost(Loss::TakenOver));
    }
}

/// The wall clock of the client that looks for documents that nobody needs may be days ahead.
#[tokio::test]
async fn no_wall_clock_removes_the_document_of_a_holder() {
    let documents = InMemory::default();
    let [holder] = clients(&documents);
    let is_unused = || {
        let text = lock(&documents.texts).get(&key("a")).map(|it| it.1.clone());
        let document = Document {
            version: Version("1".to_owned()),
            text,
            age: Duration::ZERO,
        };
        let entry = Entry::new(document, holder.clock.now());
        entry.is_unused(entry.header.time.after_span(gc::UNUSED * 3))
    };
    assert!(holder.acquires().await);
    assert!(!is_unused());
    holder.apply(Op::release(holder.lease)).await;
    assert!(is_unused());
}

/// Each of them has not seen before what the other one has written. A minimum hold ends like a lease.
#[tokio::test]
async fn a_dead_holder_is_over_though_waiters_write_in_turn() {
    let dies = |_| None;
    let rests = |lease| {
        Some(Op::Release {
            lease,
            rest: Ttl::checked(TTL),
            note: None,
        })
    };
    waiters_in_turn(dies).await;
    waiters_in_turn(rests).await;
}

async fn waiters_in_turn(last: impl Fn(LeaseId) -> Option<Op>) {
    let [holder, first, second] = clients(&InMemory::notifying());
    let waits = async |client: &TestClient| {
        let outcome = client.apply(wait(client.lease)).await;
        matches!(
            outcome,
            Outcome::Refused {
                queue_position: Some(_),
                ..
            }
        )
    };
    assert!(holder.acquires().await);
    if let Some(op) = last(holder.lease) {
        assert_eq!(holder.apply(op).await, Outcome::Released);
    }
    let step = TTL / 10;
    for _ in 0..5 {
        assert!(waits(&first).await);
        pass(&[&first, &second], step);
        assert!(waits(&second).await);
        pass(&[&first, &second], step);
    }
    let granted = first.apply(wait(first.lease)).await;
    assert!(matches!(granted, Outcome::Granted { .. }), "{granted:?}");
}

/// The one that acquires again counts from now on, by the time of a document that it has seen last.
#[tokio::test]
async fn a_lease_that_is_acquired_again_for_less_time_is_kept_as_long_as_its_client_relies_on_it() {
    let [holder, first, second] = clients(&InMemory::notifying());
    let everybody = [&holder, &first, &second];
    assert!(holder.acquires().await);
    first.apply(wait(first.lease)).await;
    pass(&everybody, TTL / 2);
    // It has not seen the holder before, and sets the time back to what it was then.
    second.apply(wait(second.lease)).await;
    let again = holder
        .apply(acquire(holder.lease, TTL * 3 / 4, false))
        .await;
    assert!(matches!(again, Outcome::Granted { .. }), "{again:?}");
    pass(&everybody, TTL * 3 / 4 - Duration::from_millis(1));
    for waiter in [&first, &second] {
        let refused = waiter.apply(wait(waiter.lease)).await;
        assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
    }
}

/// Its client counts the time until its grant from that request.
#[tokio::test]
async fn a_request_that_waits_is_written_though_it_changes_nothing() {
    let documents = InMemory::notifying();
    let [holder, waiter, patient] = clients(&documents);
    assert!(holder.acquires().await);
    waiter.apply(wait(waiter.lease)).await;
    patient.apply(acquire(patient.lease, TTL * 2, true)).await;
    let version = || lock(&documents.texts)[&key("a")].0;
    let before = version();
    pass(&[&patient, &waiter], TTL / 2);
    waiter.apply(wait(waiter.lease)).await;
    assert_eq!(version(), before + 1);
}

/// More names than are kept.
#[tokio::test]
async fn many_other_names_do_not_hide_since_when_a_holder_was_seen() {
    let [holder, other] = clients(&InMemory::default());
    assert!(holder.acquires().await);
    assert!(!other.acquires().await);
    let release = |number: usize| {
        let release = Op::release(other.lease);
        Request::new(key(&format!("{number}")), release)
    };
    for part in 0..20 {
        let requests = (part * 256..(part + 1) * 256).map(release);
        other.store.apply(requests.collect()).await;
    }
    pass(&[&other], TTL);
    assert!(other.acquires().await);
}

/// Its caller has given it up, and releases what it may have acquired.
#[tokio::test]
async fn a_write_that_arrives_behind_the_next_request_is_refused() {
    let documents = InMemory::default();
    let [client] = clients(&documents);
    let acquire = Acquire::mutex(client.lease, Ttl::MAX);
    documents.hold_back(&client, Op::Acquire(acquire)).await;
    client.apply(Op::release(client.lease)).await;
    documents.refuse_held_back();
}

/// Its client counts from the second request, and the other one must not count from the first.
#[tokio::test]
async fn a_lease_that_is_granted_again_lasts_from_then_on() {
    let documents = InMemory::default();
    let [holder, other] = clients(&documents);
    *lock(&documents.fault) = Some(WriteFault::Lost);
    holder.loses(acquire(holder.lease, TTL, false)).await;
    assert!(!other.acquires().await);
    pass(&[&holder, &other], TTL / 2);
    assert!(holder.acquires().await);
    pass(&[&holder, &other], TTL / 2);
    assert!(!other.acquires().await);
    pass(&[&holder, &other], TTL);
    assert!(other.acquires().await);
}

/// Other requests are in between, which change nothing.
#[tokio::test]
async fn a_request_that_never_arrived_joins_no_queue_behind_its_release() {
    let documents = InMemory {
        is_guessed: true,
        ..InMemory::notifying()
    };
    let holder = TestClient::new(&documents, 1, 0);
    let client = TestClient::new(&documents, 2, 0);
    assert!(holder.acquires().await);
    assert!(!client.acquires().await);
    let lease = LeaseId {
        number: 2,
        ..client.lease
    };
    documents.hold_back(&client, wait(lease)).await;
    assert!(!client.acquires().await);
    client.apply(Op::release(lease)).await;
    documents.refuse_held_back();
}

/// The second one is refused, because the first one has changed the version.
#[tokio::test]
async fn a_write_that_a_proxy_sends_twice_is_applied_once() {
    let documents = InMemory::default();
    let [client] = clients(&documents);
    assert!(client.acquires().await);
    *lock(&documents.fault) = Some(WriteFault::Repeated);
    client.releases().await;
    assert_eq!(*lock(&documents.fault), None);
    assert!(client.acquires().await);

    // Nobody knows whether it was the first one.
    *lock(&documents.fault) = Some(WriteFault::Repeated);
    *lock(&documents.is_unreadable) = true;
    client.loses(Op::release(client.lease)).await;
}

/// The refusal comes at the end of the time for the request.
#[tokio::test(start_paused = true)]
async fn a_write_that_was_sent_twice_and_overwritten_is_not_called_refused() {
    let mut documents = InMemory::default();
    let first = TestClient::new(&documents, 1, 0);
    assert!(first.acquires().await);
    documents.reply_delay = OpenOptions::default().response_timeout / 4 * 3;
    let late = TestClient::new(&documents, 1, 0);
    *lock(&documents.fault) = Some(WriteFault::Overwritten);
    late.loses(Op::release(first.lease)).await;
    assert_eq!(*lock(&documents.fault), None);
}

/// All together take longer than a response timeout, and each call less.
#[tokio::test(start_paused = true)]
async fn a_long_batch_needs_no_faster_store_than_a_short_one() {
    let documents = InMemory {
        delay: Duration::from_millis(10),
        ..InMemory::default()
    };
    let client = TestClient::new(&documents, 1, 0);
    let request = |number: usize| {
        let name = format!("{number}");
        Request::new(key(&name), acquire(client.lease, TTL, false))
    };
    let replies = client.store.apply((0..256).map(request).collect()).await;
    assert_eq!(replies.len(), 256);
    for reply in replies {
        let granted = matches!(reply.outcome(), Ok(Outcome::Granted { .. }));
        assert!(granted, "{reply:?}");
    }
}

/// The clock stands still: a busy machine may compute for longer than a response timeout.
#[tokio::test(start_paused = true)]
async fn a_document_that_is_full_is_renewed_and_released() {
    let documents = InMemory::notifying();
    let [client] = clients(&documents);
    assert!(client.acquires().await);
    {
        let mut texts = lock(&documents.texts);
        let (version, text) = texts.get_mut(&key("a")).unwrap();
        *version += 1;
        for number in 0..10_000_u128 {
            let watcher = ClientId::from_random(number.to_be_bytes());
            text.push_str(&format!("6 {watcher} {}\n", u64::MAX));
        }
    }
    let lease = LeaseId {
        number: 2,
        ..client.lease
    };
    // It has not seen the document before, so no write of it is refused.
    let fresh = TestClient::new(&documents, 1, 0);
    let Reply::Rejected(error) = fresh.send(wait(lease)).await else {
        panic!("there is room");
    };
    assert!(error.to_string().contains("would be longer"), "{error}");
    let renew = Op::renew(client.lease, Ttl::checked(TTL * 2).unwrap());
    assert_eq!(client.apply(renew).await, Outcome::Kept);
    client.releases().await;
}
