//! Grants and renewals that count when replicas have them.

use futures_util::future::join_all;
use leasehold::{Cause, Durability, LeaseOptions, Mutex, StateKind};
use leasehold_core::Access;
use leasehold_testkit::{SentinelSet, eventually};

use super::*;
use crate::doctor::in_step;
use crate::fixture::{Fixture, with_options};
use crate::kinds::Kind;
use crate::waiters::{poll_once, soon, spawn_waiter};

/// Longer than any acknowledgement takes.
const AMPLE: Duration = Duration::from_secs(10);

/// Longer than an acknowledgement takes, for those that do not come.
const BRIEF: Duration = Duration::from_secs(2);

/// A master and its replicas.
struct Replicated {
    master: RedisServer,
    replicas: Vec<RedisServer>,
}

impl Replicated {
    fn start(replicas: usize) -> Self {
        let master = RedisServer::start();
        let mut replicated = Self {
            master,
            replicas: Vec::new(),
        };
        for _ in 0..replicas {
            replicated.add();
        }
        replicated
    }

    /// One replica more, online.
    fn add(&mut self) {
        let replica = RedisServer::options().replica_of(&self.master).start();
        self.replicas.push(replica);
        in_step(&self.master, self.replicas.len());
    }

    async fn client(&self, durability: Durability) -> Client {
        let builder = Client::builder().ttl(LONG).durability(durability);
        builder.connect(&self.master.url()).await.unwrap()
    }

    fn has(&self, key: &str) -> bool {
        has(&self.master, key)
    }

    /// Waits until a client waits for the lock `a`.
    async fn until_queued(&self) {
        let queue = format!("{}:queue", record("a"));
        eventually_async(SOON, async || self.has(&queue)).await;
    }
}

async fn lock_and_release(mutex: &Mutex, durability: Durability) {
    let mutex = with_options(mutex, LeaseOptions::new().durability(durability));
    mutex.lock().await.unwrap().release().await.unwrap();
}

fn by(count: &str, timeout: Duration) -> Durability {
    let count = count.parse().unwrap();
    Durability::Replicas { count, timeout }
}

fn durable(mut request: Request, durability: Durability) -> Request {
    request.durability = durability;
    request
}

fn has(server: &RedisServer, key: &str) -> bool {
    server.cli(&["EXISTS", key]) == "1"
}

#[track_caller]
fn assert_not_replicated(error: &Error, words: &str) {
    assert_error(error, ErrorKind::NotReplicated, &[words]);
}

async fn until(guard: &Guard, wanted: StateKind) {
    eventually_async(SOON, async || guard.state().kind() == wanted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_counts_when_so_many_replicas_have_it() {
    let replicated = Replicated::start(2);
    let store = open(&replicated.master.url()).await;
    for (count, least) in [("1", 1), ("2", 2), ("all", 2)] {
        for number in 0..20 {
            let name = format!("{count}/{number}");
            let request = acquire(&name, 1);
            let request = match number % 4 {
                0 => request,
                1 => permits(request, 1, 2),
                2 => access(request, Access::Read),
                _ => access(request, Access::Write),
            };
            granted(&*store, durable(request, by(count, AMPLE))).await;
            let key = format!("app:{{t:{name}}}");
            let replicas = replicated.replicas.iter();
            let with_it = replicas.filter(|replica| has(replica, &key)).count();
            assert!(with_it >= least, "{name}");
            let renewed = applied(&*store, durable(renew(&name, 1), by(count, AMPLE))).await;
            assert_eq!(renewed, Outcome::Kept);
        }
    }
}

/// In the store, renewals wait for its call. In one thread: no task runs within its poll.
#[tokio::test]
async fn a_caller_that_is_not_polled_keeps_no_lease_from_renewal() {
    let replicated = Replicated::start(1);
    let builder = Client::builder().ttl(Duration::from_secs(15));
    let builder = builder.durability(by("1", Duration::from_secs(2)));
    let client = builder.connect(&replicated.master.url()).await.unwrap();
    let held = lock(&client, "held").await;
    let mutex = client.mutex("stopped").unwrap();
    let mut stopped = Box::pin(mutex.lock());
    assert!(poll_once(&mut stopped).is_pending());
    let granted = held.deadline();
    let decided = async || held.deadline() > granted || held.state().is_lost();
    eventually_async(SOON, decided).await;
    assert!(!held.state().is_lost());
}

/// Each request of a batch by its own durability.
#[tokio::test(flavor = "multi_thread")]
async fn counts_are_honoured_exactly() {
    let replicated = Replicated::start(2);
    let store = open(&replicated.master.url()).await;
    granted(&*store, durable(acquire("first", 1), by("all", AMPLE))).await;
    replicated.replicas[0].stop();
    let batch = [
        durable(acquire("one", 1), by("1", AMPLE)),
        durable(acquire("two", 1), by("2", BRIEF)),
        acquire("none", 1),
        durable(acquire("all", 1), by("all", BRIEF)),
        durable(acquire("first", 2), by("2", BRIEF)),
        durable(release("first", 1), by("2", BRIEF)),
    ];
    let replies = store.apply(batch.to_vec()).await;
    let not_replicated = |nth: usize, message: &str| match &replies[nth] {
        Reply::Unknown(error) => assert_not_replicated(error, message),
        other => panic!("{nth}: {other:?}"),
    };
    // Refusals and releases do not wait.
    let expected = "granted unknown granted unknown refused released";
    assert_eq!(words(&replies), expected);
    not_replicated(1, "1 of 2 replicas acknowledged within 2s");
    not_replicated(3, "1 of 2 replicas");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_too_few_acknowledge_is_released() {
    let replicated = Replicated::start(2);
    let client = replicated.client(by("all", BRIEF)).await;
    let mutex = client.mutex("a").unwrap();
    lock_and_release(&mutex, by("all", AMPLE)).await;
    replicated.replicas[1].stop();
    for attempt in 0..3 {
        let error = match attempt {
            0 => mutex.lock().await.unwrap_err(),
            1 => mutex.try_lock().await.unwrap_err(),
            _ => mutex.lock_timeout(AMPLE).await.unwrap_err(),
        };
        assert_not_replicated(&error, r#"lock "a" at redis://"#);
        eventually_async(SOON, async || !replicated.has(&record("a"))).await;
    }
    let names = Kind::ALL.map(|kind| format!("{kind:?}"));
    let locking = Kind::ALL.into_iter().zip(&names);
    let locking = locking.map(|(kind, name)| kind.lock(&client, name, LeaseOptions::new()));
    for (locked, name) in join_all(locking).await.into_iter().zip(&names) {
        assert_not_replicated(&locked.unwrap_err(), "1 of 2 replicas");
        eventually_async(SOON, async || !replicated.has(&record(name))).await;
    }
    // One replica replies, and other durabilities of this client do not wait for the other.
    lock_and_release(&mutex, by("1", AMPLE)).await;
    lock_and_release(&mutex, Durability::None).await;
    replicated.replicas[1].cont();
    lock_and_release(&mutex, by("all", AMPLE)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_too_few_acknowledge_has_failed() {
    let replicated = Replicated::start(1);
    let ttl = Duration::from_secs(15);
    // The server waits for one call after another.
    let durability = by("1", Duration::from_millis(300));
    let client = Client::builder().ttl(ttl).durability(durability);
    let client = client.connect(&replicated.master.url()).await.unwrap();
    let mut guards = Vec::new();
    for kind in Kind::ALL {
        let name = format!("{kind:?}");
        // On a busy machine it may acknowledge a grant later.
        let held = loop {
            if let Ok(held) = kind.lock(&client, &name, LeaseOptions::new()).await {
                break held;
            }
        };
        guards.push(held);
    }
    let ensured = async || join_all(guards.iter().map(|guard| guard.ensure(ttl))).await;
    let until_all = async |state| join_all(guards.iter().map(|guard| until(guard, state))).await;
    // The server knows the scripts for renewals from then on.
    drop(ensured().await);
    let jeopardy = StateKind::Jeopardy(Cause::NotReplicated);
    replicated.replicas[0].stop();
    until_all(jeopardy).await;
    replicated.replicas[0].cont();
    until_all(StateKind::Held).await;
    replicated.replicas[0].stop();
    for error in ensured().await {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    }
    until_all(StateKind::Lost(Cause::NotReplicated)).await;
    // The master has them still: they were granted to no other client before these holders noticed.
    for guard in &guards {
        assert!(replicated.has(&record(guard.name())));
    }
}

/// A message with a grant does not show what the replicas have.
#[tokio::test(flavor = "multi_thread")]
async fn a_pushed_grant_counts_when_the_replicas_have_it() {
    let replicated = Replicated::start(2);
    let all = by("all", AMPLE);
    let (a, b) = (replicated.client(all).await, replicated.client(all).await);
    for _ in 0..10 {
        let guard = lock(&a, "a").await;
        let waiter = spawn_waiter(&b.mutex("a").unwrap());
        replicated.until_queued().await;
        replicated.master.cli(&["CONFIG", "RESETSTAT"]);
        guard.release().await.unwrap();
        let guard = soon(waiter).await;
        assert!(calls(&replicated.master, "wait") > 0);
        let lease = guard.lease_id().to_string();
        for replica in &replicated.replicas {
            assert_eq!(replica.cli(&["GET", &record("a")]), lease);
        }
        guard.release().await.unwrap();
    }
}

/// Changes of a lease over its own connection are not notified.
#[tokio::test(flavor = "multi_thread")]
async fn own_changes_are_not_notified() {
    let replicated = Replicated::start(1);
    let client = StoreClient::connect(&replicated.master.url(), 1).await;
    let own = |request| client.own(durable(request, by("1", AMPLE)));
    for _ in 0..5 {
        client.apply(own(acquire("a", 1))).await;
        until_tracked(&replicated.master, 1).await;
        client.apply(own(renew("a", 1))).await;
        until_tracked(&replicated.master, 1).await;
        client.apply(own(release("a", 1))).await;
        client.settle().await;
    }
    assert_eq!(client.events(), []);
    client.apply(own(acquire("a", 1))).await;
    until_tracked(&replicated.master, 1).await;
    replicated.master.cli(&["DEL", "app:{t:a}"]);
    client.until_changed("a").await;
    // A grant is notified once, although the client has two connections.
    client.apply(own(acquire("b", 1))).await;
    assert_eq!(client.wait("b", 2).await, 0);
    client.apply(own(release("b", 1))).await;
    client.granted("b", 2).await;
    client.settle().await;
    client.no_notices();
}

/// The server may close an idle connection.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_connection_that_counts_replicas_is_not_notified() {
    let replicated = Replicated::start(1);
    let client = StoreClient::connect(&replicated.master.url(), 1).await;
    let apply = async |request| client.apply(durable(request, by("all", AMPLE))).await;
    apply(acquire("a", 1)).await;
    // The only one without subscription and tracking.
    let counter = || {
        let list = replicated.master.cli(&["CLIENT", "LIST"]);
        let is_counter = |line: &&str| line.contains("user=default") && line.contains("flags=N ");
        let id = |line: &str| line.split(' ').next().map(|id| id.replace("id=", ""));
        list.lines().find(is_counter).and_then(id)
    };
    let first = counter().unwrap();
    replicated.master.cli(&["CLIENT", "KILL", "ID", &first]);
    // It is opened again for the next count.
    eventually_async(SOON, async || {
        assert_eq!(apply(renew("a", 1)).await, Outcome::Kept);
        counter().is_some()
    })
    .await;
    assert_eq!(client.events(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_durability_there_is_no_further_connection_or_command() {
    let replicated = Replicated::start(2);
    let connections = || {
        let list = replicated.master.cli(&["CLIENT", "LIST"]);
        let ours = |line: &&str| line.contains("user=default") && !line.contains("flags=S");
        list.lines().filter(ours).count()
    };
    let before = connections();
    let client = replicated.client(Durability::None).await;
    let mutex = client.mutex("a").unwrap();
    replicated.master.cli(&["CONFIG", "RESETSTAT"]);
    let guard = mutex.lock().await.unwrap();
    guard.ensure(Duration::from_secs(60)).await.unwrap_err();
    guard.release().await.unwrap();
    lock_and_release(&mutex, Durability::None).await;
    assert_eq!(calls(&replicated.master, "wait"), 0);
    assert_eq!(connections() - before, 1);
    // A durability needs one more connection.
    lock_and_release(&mutex, by("1", AMPLE)).await;
    assert_eq!(connections() - before, 2);
    // The grant waits, the release does not.
    replicated.master.cli(&["CONFIG", "RESETSTAT"]);
    lock_and_release(&mutex, by("1", AMPLE)).await;
    assert_eq!(calls(&replicated.master, "wait"), 1);
    assert_eq!(calls(&replicated.master, "evalsha"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_replicas_are_as_many_as_were_ever_seen() {
    let mut replicated = Replicated::start(1);
    let client = replicated.client(by("all", AMPLE)).await;
    let mutex = client.mutex("a").unwrap();
    lock_and_release(&mutex, by("all", AMPLE)).await;
    replicated.add();
    // The store queries them every two seconds.
    replicated.replicas[1].stop();
    let brief = with_options(&mutex, LeaseOptions::new().durability(by("all", BRIEF)));
    let mut error = None;
    eventually_async(SOON, async || {
        error = brief.try_lock().await.err();
        error.is_some()
    })
    .await;
    assert!(error.unwrap().to_string().contains("1 of 2 replicas"));
    replicated.replicas[1].kill9();
    eventually(SOON, || {
        let replicas = info(&replicated.master, "replication", "connected_slaves");
        replicas.as_deref() == Some("1")
    });
    let error = brief.lock().await.unwrap_err();
    assert_not_replicated(&error, "1 of 2 replicas");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impossible_durability_is_refused_at_connect() {
    let connect = async |url: &str, durability: Durability| {
        let builder = Client::builder().durability(durability);
        builder.connect(url).await.unwrap_err()
    };
    let replicated = Replicated::start(1);
    let url = replicated.master.url();
    let error = connect(&url, by("2", BRIEF)).await;
    let words = "has 1 replica that is online, and 2 must acknowledge";
    assert_not_replicated(&error, words);
    let alone = RedisServer::start();
    let error = connect(&alone.url(), by("all", BRIEF)).await;
    assert_not_replicated(&error, "no replica");
    let bob = ["on", ">pw", "~*", "&*", "+@all", "-wait"];
    let user = [&["ACL", "SETUSER", "bob"], &bob[..]].concat();
    replicated.master.cli(&user);
    let error = connect(&replicated.master.url_of("bob", "pw"), by("1", BRIEF)).await;
    assert_error(&error, ErrorKind::Unauthorized, &["+wait"]);
    for timeout in [Duration::ZERO, Duration::from_secs(11)] {
        let error = connect(&url, by("1", timeout)).await;
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_without_replicas_refuse_a_durability() {
    for fixture in [Fixture::sqlite(), Fixture::memory()] {
        let store = fixture.store().await;
        let unsupported =
            |error: Error| assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        unsupported(rejected(&*store, durable(acquire("a", 1), by("1", BRIEF))).await);
        let builder = Client::builder().durability(by("all", BRIEF));
        unsupported(builder.build(store).unwrap_err());
        let mutex = fixture.client().await.mutex("a").unwrap();
        unsupported(
            mutex
                .with(LeaseOptions::new().durability(by("1", BRIEF)))
                .unwrap_err(),
        );
    }
}

/// A promoted replica knows every grant that all replicas have acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn no_failover_forgets_grants_that_all_replicas_acknowledged() {
    let mut set = SentinelSet::start();
    set.until_in_sync();
    let all = by("all", Duration::from_secs(5));
    let builder = Client::builder().ttl(LONG).durability(all);
    let client = builder.connect(&set.url()).await.unwrap();
    let taking = tokio::spawn({
        let client = client.clone();
        async move {
            let mut taken = Vec::new();
            for name in 0_u32.. {
                let mutex = client.mutex(name.to_string()).unwrap();
                match mutex.try_lock().await {
                    Ok(guard) => taken.push(guard.unwrap()),
                    Err(_) => break,
                }
            }
            taken
        }
    });
    let count = |server: &RedisServer| server.cli(&["DBSIZE"]).parse::<u32>().unwrap();
    let first = set.master();
    eventually_async(SOON, async || count(&set.servers()[first]) > 100).await;
    let old = set.kill_master();
    let taken = soon(taking).await;
    assert!(taken.len() >= 50, "{}", taken.len());
    let new = set.master_after(old);
    for guard in &taken {
        let lease = set.servers()[new].cli(&["GET", &record(guard.name())]);
        assert_eq!(lease, guard.lease_id().to_string(), "{}", guard.name());
    }
    // One replica fewer remains, and `all` are still as many as before.
    let new = client.mutex("new").unwrap();
    for (count, expected) in [("all", Some("of 2 replicas")), ("1", None)] {
        let mutex = with_options(&new, LeaseOptions::new().durability(by(count, BRIEF)));
        eventually_async(SOON * 2, async || {
            match (mutex.try_lock().await, expected) {
                (Err(error), Some(words)) => error.to_string().contains(words),
                (Ok(guard), None) => guard.is_some(),
                _ => false,
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pushed_grant_that_is_not_acknowledged_is_released() {
    let replicated = Replicated::start(1);
    let client = replicated.client(by("1", BRIEF)).await;
    let holder = replicated.client(Durability::None).await;
    let guard = lock(&holder, "a").await;
    let waiter = tokio::spawn({
        let mutex = client.mutex("a").unwrap();
        async move { mutex.lock().await }
    });
    replicated.until_queued().await;
    replicated.replicas[0].stop();
    guard.release().await.unwrap();
    let error = soon(waiter).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    eventually_async(SOON, async || !replicated.has(&record("a"))).await;
}
