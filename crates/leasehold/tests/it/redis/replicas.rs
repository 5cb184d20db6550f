//! Grants and renewals that count when replicas have them.

use leasehold::store::{self, Event, MemoryStore, OpenOptions};
use leasehold::{Cause, Client, Durability, ErrorKind, Guard, State};
use leasehold_testkit::{RedisServer, SentinelSet, eventually, eventually_async};

use super::event_log::Asker;
use super::*;
use crate::waiters::soon;

/// Longer than any acknowledgement takes on a slow machine.
const PATIENT: Duration = Duration::from_secs(10);

/// Short: nobody will acknowledge.
const BRIEF: Duration = Duration::from_millis(200);

/// A master and its replicas.
struct Copied {
    master: RedisServer,
    replicas: Vec<RedisServer>,
}

impl Copied {
    fn start(replicas: usize) -> Self {
        let master = RedisServer::start();
        let mut copied = Self {
            master,
            replicas: Vec::new(),
        };
        for _ in 0..replicas {
            copied.add();
        }
        copied
    }

    /// One replica more, online.
    fn add(&mut self) {
        let replica = RedisServer::options().replica_of(&self.master).start();
        self.replicas.push(replica);
        let all = self.replicas.len();
        eventually(SOON, || {
            let info = self.master.cli(&["INFO", "replication"]);
            info.matches("state=online").count() == all
        });
    }

    async fn client(&self, durability: Durability, ttl: Duration) -> Client {
        let builder = Client::builder().ttl(ttl).durability(durability);
        builder.connect(&self.master.url()).await.unwrap()
    }
}

fn by(count: &str, timeout: Duration) -> Durability {
    let count = count.parse().unwrap();
    Durability::Replicas { count, timeout }
}

fn durable(mut request: Request, durability: Durability) -> Request {
    request.durability = durability;
    request
}

fn record(name: &str) -> String {
    format!("leasehold:{{default:{name}}}")
}

fn has(server: &RedisServer, key: &str) -> bool {
    server.cli(&["EXISTS", key]) == "1"
}

/// How often a server was asked for something.
fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats = server.cli(&["INFO", "commandstats"]);
    let prefix = format!("cmdstat_{command}:calls=");
    let mut lines = stats.lines();
    let count = lines.find_map(|line| line.strip_prefix(&prefix)?.split(',').next()?.parse().ok());
    count.unwrap_or(0)
}

async fn until(guard: &Guard, wanted: State) {
    let found = async {
        let mut states = guard.states();
        while let Some(state) = states.next().await {
            if state.kind() == wanted.kind() {
                return;
            }
        }
        panic!("{:?}", guard.state());
    };
    tokio::time::timeout(SOON * 2, found).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_counts_when_so_many_have_it() {
    let copied = Copied::start(2);
    let store = open(&copied.master.url()).await;
    for (count, least) in [("1", 1), ("2", 2), ("all", 2)] {
        for number in 0..20 {
            let name = format!("{count}/{number}");
            let request = durable(acquire(&name, 1), by(count, PATIENT));
            granted(&*store, request).await;
            let key = format!("app:{{t:{name}}}");
            let having = copied.replicas.iter().filter(|replica| has(replica, &key));
            assert!(having.count() >= least, "{name}");
            let renewed = applied(&*store, durable(renew(&name, 1), by(count, PATIENT))).await;
            assert_eq!(renewed, Outcome::Renewed);
        }
    }
}

/// Each request of a batch by what it asks for itself.
#[tokio::test(flavor = "multi_thread")]
async fn counts_are_honoured_exactly() {
    let copied = Copied::start(2);
    let store = open(&copied.master.url()).await;
    granted(&*store, durable(acquire("first", 1), by("all", PATIENT))).await;
    copied.replicas[0].stop();
    let batch = [
        durable(acquire("one", 1), by("1", PATIENT)),
        durable(acquire("two", 1), by("2", BRIEF)),
        acquire("none", 1),
        durable(acquire("all", 1), by("all", BRIEF)),
        durable(acquire("first", 2), by("2", BRIEF)),
        durable(release("first", 1, 0), by("2", BRIEF)),
    ];
    let replies = store.apply(batch.to_vec()).await;
    let mut told = Vec::new();
    for reply in &replies {
        told.push(match reply {
            Reply::Applied { outcome, .. } => format!("{outcome:?}"),
            Reply::Rejected(error) => panic!("{error}"),
            Reply::Unknown(error) => {
                assert_eq!(error.kind(), ErrorKind::NotReplicated);
                error.to_string()
            }
        });
    }
    assert!(told[0].starts_with("Granted"), "{told:?}");
    assert!(
        told[1].contains("1 of 2 replicas acknowledged within 200ms"),
        "{told:?}"
    );
    assert!(told[2].starts_with("Granted"), "{told:?}");
    assert!(told[3].contains("1 of 2 replicas"), "{told:?}");
    // What is refused and what is released waits for nobody.
    assert!(told[4].starts_with("Refused"), "{told:?}");
    assert!(told[5].starts_with("Released"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_too_few_acknowledge_is_given_back() {
    let copied = Copied::start(2);
    let client = copied
        .client(by("all", BRIEF), Duration::from_secs(60))
        .await;
    let mutex = client.mutex("a").unwrap();
    let patient = mutex.durability(by("all", PATIENT)).unwrap();
    patient.lock().await.unwrap().release().await.unwrap();
    copied.replicas[1].stop();
    for attempt in 0..3 {
        let error = match attempt {
            0 => mutex.lock().await.unwrap_err(),
            1 => mutex.try_lock().await.unwrap_err(),
            _ => mutex.lock_timeout(PATIENT).await.unwrap_err(),
        };
        assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
        assert!(
            error.to_string().contains(r#"lock "a" at redis://"#),
            "{error}"
        );
        eventually_async(SOON, async || !has(&copied.master, &record("a"))).await;
    }
    // One is there, and the others of this client wait for nobody.
    let one = mutex.durability(by("1", PATIENT)).unwrap();
    one.lock().await.unwrap().release().await.unwrap();
    let none = mutex.durability(Durability::None).unwrap();
    none.lock().await.unwrap().release().await.unwrap();
    copied.replicas[1].cont();
    patient.lock().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_too_few_acknowledge_has_failed() {
    let copied = Copied::start(1);
    let ttl = Duration::from_secs(9);
    let client = copied.client(by("1", Duration::from_secs(1)), ttl).await;
    let guard = client.mutex("a").unwrap().lock().await.unwrap();
    // The server knows the script for renewals from then on.
    let _ = guard.ensure(ttl).await;
    let until_when = leasehold::Instant::from_nanos(0);
    let jeopardy = State::Jeopardy {
        until: until_when,
        cause: Cause::NotReplicated,
    };
    copied.replicas[0].stop();
    until(&guard, jeopardy).await;
    copied.replicas[0].cont();
    until(&guard, State::Held { until: until_when }).await;
    copied.replicas[0].stop();
    let error = guard.ensure(ttl).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    until(&guard, State::Lost(Cause::NotReplicated)).await;
    // The master has it still: nobody else was granted it before this holder knew.
    assert!(has(&copied.master, &record("a")));
}

/// The grant comes by a message, of which nobody knows what the replicas have.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_granted_what_replicas_have() {
    let copied = Copied::start(2);
    let all = by("all", PATIENT);
    let ttl = Duration::from_secs(60);
    let (a, b) = (copied.client(all, ttl).await, copied.client(all, ttl).await);
    for _ in 0..10 {
        let guard = a.mutex("a").unwrap().lock().await.unwrap();
        let waiter = tokio::spawn({
            let mutex = b.mutex("a").unwrap();
            async move { mutex.lock().await.unwrap() }
        });
        let queue = format!("{}:queue", record("a"));
        eventually_async(SOON, async || has(&copied.master, &queue)).await;
        copied.master.cli(&["CONFIG", "RESETSTAT"]);
        guard.release().await.unwrap();
        let guard = soon(waiter).await;
        assert!(calls(&copied.master, "wait") > 0);
        let lease = guard.lease_id().to_string();
        for replica in &copied.replicas {
            assert_eq!(replica.cli(&["HKEYS", &record("a")]), lease);
        }
        guard.release().await.unwrap();
    }
}

/// As long as a lease is written over its own connection only, nothing is told of it.
#[tokio::test(flavor = "multi_thread")]
async fn its_own_changes_are_no_news() {
    let copied = Copied::start(1);
    let asker = Asker::connect(&copied.master.url(), 1).await;
    let own = |request| asker.own(durable(request, by("1", PATIENT)));
    for _ in 0..5 {
        asker.ask(own(acquire("a", 1))).await;
        eventually_async(SOON, async || {
            super::event_log::watched(&copied.master) == 1
        })
        .await;
        asker.ask(own(renew("a", 1))).await;
        eventually_async(SOON, async || {
            super::event_log::watched(&copied.master) == 1
        })
        .await;
        asker.ask(own(release("a", 1, 0))).await;
        asker.settle().await;
    }
    assert_eq!(asker.event_log.take(), []);
    asker.ask(own(acquire("a", 1))).await;
    eventually_async(SOON, async || {
        super::event_log::watched(&copied.master) == 1
    })
    .await;
    copied.master.cli(&["DEL", "app:{t:a}"]);
    asker.hears(&Event::Changed(key("a"))).await;
    // Once is enough, for one who listens over two connections.
    asker.ask(own(acquire("b", 1))).await;
    assert_eq!(asker.wait("b", 2).await, 0);
    asker.ask(own(release("b", 1, 0))).await;
    asker.granted("b", 2).await;
    asker.settle().await;
    let heard = asker.event_log.take();
    assert!(
        !heard.iter().any(|event| matches!(event, Event::Notice(..))),
        "{heard:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_none_pays_nothing() {
    let copied = Copied::start(2);
    let connections = || {
        let list = copied.master.cli(&["CLIENT", "LIST"]);
        let ours = |line: &&str| line.contains("user=default") && !line.contains("flags=S");
        list.lines().filter(ours).count()
    };
    let before = connections();
    let client = copied
        .client(Durability::None, Duration::from_secs(60))
        .await;
    let mutex = client.mutex("a").unwrap();
    copied.master.cli(&["CONFIG", "RESETSTAT"]);
    let guard = mutex.lock().await.unwrap();
    guard.ensure(Duration::from_secs(60)).await.unwrap_err();
    guard.release().await.unwrap();
    mutex
        .try_lock()
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(calls(&copied.master, "wait"), 0);
    assert_eq!(connections() - before, 1);
    // And who asks for one has a connection more.
    let one = mutex.durability(by("1", PATIENT)).unwrap();
    one.lock().await.unwrap().release().await.unwrap();
    assert_eq!(connections() - before, 2);
    // The grant waits, the release does not.
    copied.master.cli(&["CONFIG", "RESETSTAT"]);
    one.lock().await.unwrap().release().await.unwrap();
    assert_eq!(calls(&copied.master, "wait"), 1);
    assert_eq!(calls(&copied.master, "evalsha"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_are_as_many_as_were_ever_seen() {
    let mut copied = Copied::start(1);
    let client = copied
        .client(by("all", PATIENT), Duration::from_secs(60))
        .await;
    let mutex = client.mutex("a").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    copied.add();
    // The store looks every two seconds.
    copied.replicas[1].stop();
    let brief = mutex.durability(by("all", BRIEF)).unwrap();
    let mut told = None;
    eventually_async(SOON, async || {
        told = brief.try_lock().await.err();
        told.is_some()
    })
    .await;
    assert!(told.unwrap().to_string().contains("1 of 2 replicas"));
    copied.replicas[1].kill9();
    eventually(SOON, || {
        let info = copied.master.cli(&["INFO", "replication"]);
        info.contains("connected_slaves:1")
    });
    let error = brief.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated);
    assert!(error.to_string().contains("1 of 2 replicas"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_told_at_connect() {
    let connect = async |url: &str, durability: Durability| {
        Client::builder()
            .durability(durability)
            .connect(url)
            .await
            .unwrap_err()
    };
    let copied = Copied::start(1);
    let url = copied.master.url();
    let error = connect(&url, by("2", BRIEF)).await;
    assert_eq!(error.kind(), ErrorKind::NotReplicated);
    let words = "has 1 replicas that are online, and 2 must acknowledge";
    assert!(error.to_string().contains(words), "{error}");
    let alone = RedisServer::start();
    let error = connect(&alone.url(), by("all", BRIEF)).await;
    assert_eq!(error.kind(), ErrorKind::NotReplicated);
    assert!(error.to_string().contains("no replica"), "{error}");
    copied.master.cli(&[
        "ACL", "SETUSER", "bob", "on", ">pw", "~*", "&*", "+@all", "-wait",
    ]);
    let error = connect(&copied.master.url_of("bob", "pw"), by("1", BRIEF)).await;
    assert_eq!(error.kind(), ErrorKind::Unauthorized);
    assert!(error.to_string().contains("+wait"), "{error}");
    for timeout in [Duration::ZERO, Duration::from_secs(11)] {
        let error = connect(&url, by("1", timeout)).await;
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
    }
    let error = connect("memory:", by("1", BRIEF)).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_without_replicas_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/locks.db", folder.path().display());
    let sqlite = store::open(&url, &OpenOptions::default()).await.unwrap();
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    for store in [sqlite, memory] {
        let error = rejected(&*store, durable(acquire("a", 1), by("1", BRIEF))).await;
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let builder = Client::builder().durability(by("all", BRIEF));
        let error = builder.build(Arc::clone(&store)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let client = Client::builder().build(store).unwrap();
        let error = client
            .mutex("a")
            .unwrap()
            .durability(by("1", BRIEF))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

/// Whatever was granted with the word of all replicas is known to the one that is promoted.
#[tokio::test(flavor = "multi_thread")]
async fn no_failover_forgets_what_all_have_acknowledged() {
    let mut set = SentinelSet::start();
    set.until_in_sync();
    let all = by("all", Duration::from_secs(2));
    let builder = Client::builder()
        .ttl(Duration::from_secs(60))
        .durability(all);
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
        let lease = set.servers()[new].cli(&["HKEYS", &record(guard.name())]);
        assert_eq!(lease, guard.lease_id().to_string(), "{}", guard.name());
    }
    // With a server less there are not as many replicas as there were.
    let brief = by("all", BRIEF);
    let mutex = client.mutex("new").unwrap().durability(brief).unwrap();
    let mut told = None;
    eventually_async(SOON * 2, async || {
        told = mutex.try_lock().await.err();
        told.as_ref()
            .is_some_and(|error| error.kind() == ErrorKind::NotReplicated)
    })
    .await;
    assert!(told.unwrap().to_string().contains("of 2 replicas"));
    let one = mutex.durability(by("1", PATIENT)).unwrap();
    eventually_async(SOON * 2, async || {
        one.try_lock().await.is_ok_and(|guard| guard.is_some())
    })
    .await;
}

/// Who waits for it is given it when it was acknowledged, or given nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_whose_grant_is_not_acknowledged_gives_it_back() {
    let copied = Copied::start(1);
    let client = copied.client(by("1", BRIEF), Duration::from_secs(60)).await;
    let holder = copied
        .client(Durability::None, Duration::from_secs(60))
        .await;
    let guard = holder.mutex("a").unwrap().lock().await.unwrap();
    let waiter = tokio::spawn({
        let mutex = client.mutex("a").unwrap();
        async move { mutex.lock().await }
    });
    let queue = format!("{}:queue", record("a"));
    eventually_async(SOON, async || has(&copied.master, &queue)).await;
    copied.replicas[0].stop();
    guard.release().await.unwrap();
    let error = soon(waiter).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotReplicated, "{error}");
    eventually_async(SOON, async || !has(&copied.master, &record("a"))).await;
}
