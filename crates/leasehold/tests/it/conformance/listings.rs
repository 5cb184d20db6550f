//! Names, inspection and listings.

use std::time::{Duration, SystemTime};

use leasehold::__private::store::{ClientInfo, Parts, Reply, Request, Store, View};
use leasehold::{Client, Guard, LockInfo};
use leasehold_core::{ClientId, Name};
use leasehold_testkit::eventually_async;
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, fresh_name};
use crate::store_client::{
    StoreClient, TTL, acquire, applied, client_id, granted, is_refused, key, keyspace, lasting,
    lease, release, wait,
};
use crate::store_ext::StoreExt as _;
use crate::waiters::{SOON, soon, spawn_waiter};

pub(super) async fn a_holder_is_described(fixture: Fixture) {
    let begun = SystemTime::now();
    let builder = Client::builder()
        .program("report.sh")
        .label("nächtlich \"run\"");
    let client = fixture.client_with(builder).await;
    let mutex = client.mutex(fresh_name("described")).unwrap();
    let guard = mutex.lock().await.unwrap();
    let holder = async || mutex.inspect().await.unwrap().unwrap();
    // Client info is written beside the lock, a moment later.
    eventually_async(SOON, async || holder().await.client.is_some()).await;
    let info = holder().await;
    assert_eq!(info.name, mutex.name());
    assert_eq!(info.lease, guard.lease_id());
    assert_eq!(info.token, Some(guard.token()));
    assert_eq!(info.count, 1);
    let since = info.since.unwrap();
    let slack = Duration::from_secs(10);
    assert!(since + slack > begun && since < SystemTime::now() + slack);
    let described = info.client.unwrap();
    assert_eq!(described.pid, std::process::id());
    assert_eq!(
        (described.program.as_str(), described.label.as_str()),
        ("report.sh", "nächtlich \"run\"")
    );
    assert!(!described.host.is_empty());
    assert!(described.since + slack > begun);
    guard.release().await.unwrap();
    // Also behind its last lease.
    let found = client.client_info(info.lease.client).await.unwrap();
    assert_eq!(found, Some(described));
    let stranger = ClientId::from_random([0; 16]);
    assert_eq!(client.client_info(stranger).await.unwrap(), None);
}

/// Over many masters there is no queue, and no waiter is known.
pub(super) async fn waiters_are_described_in_their_order(fixture: Fixture) {
    let namespace = fresh_name("list").replace('/', "-");
    let client = async |label: &str| {
        let builder = Client::builder().label(label);
        fixture.client_in(&namespace, builder).await
    };
    let clients = [client("holder").await, client("a").await, client("b").await];
    let mutexes = clients.each_ref().map(|client| client.mutex("n").unwrap());
    let [mutex, a, b] = &mutexes;
    let guard = mutex.lock().await.unwrap();
    assert_eq!(guard.lease_id().client, clients[0].id());
    assert!(mutex.inspect().await.unwrap().unwrap().waiters.is_empty());
    if let Fixture::Masters(_) | Fixture::Objects(..) = fixture {
        let (waiter, refused) = (spawn_waiter(a), b.lock_timeout(TTL / 10).await);
        assert!(refused.unwrap().is_none());
        let holder = mutex.inspect().await.unwrap().unwrap();
        assert_eq!((holder.lease, holder.waiters), (guard.lease_id(), vec![]));
        guard.release().await.unwrap();
        return soon(waiter).await.release().await.unwrap();
    }

    // Of two tasks of a client, one waits in the queue of the store.
    let mut waiting = Vec::new();
    for (mutex, queued) in [(a, 1), (a, 1), (b, 2)] {
        waiting.push(spawn_waiter(mutex));
        let waiters = async || mutex.inspect().await.unwrap().unwrap().waiters;
        eventually_async(SOON, async || waiters().await.len() == queued).await;
    }
    let labelled = |info: &LockInfo| -> Vec<_> {
        let waiters = info.waiters.iter().cloned();
        let named = waiters.filter_map(|waiter| Some((waiter.lease.client, waiter.client?)));
        named
            .map(|(id, client)| (id, client.label, client.pid))
            .collect()
    };
    let pid = std::process::id();
    let expected = [
        (clients[1].id(), "a".to_owned(), pid),
        (clients[2].id(), "b".to_owned(), pid),
    ];
    // Client info is written beside the queue, a moment later.
    let described = async || labelled(&mutex.inspect().await.unwrap().unwrap()) == expected;
    eventually_async(SOON, described).await;
    let listed = clients[1].locks().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(labelled(&listed[0]), expected);
    assert_eq!(listed[0].lease, guard.lease_id());

    guard.release().await.unwrap();
    let first = soon(waiting.remove(0)).await;
    let holder = mutex.inspect().await.unwrap().unwrap();
    assert_eq!(holder.lease, first.lease_id());
    let waiters = holder.waiters.iter().map(|waiter| waiter.lease.client);
    assert_eq!(waiters.collect::<Vec<_>>(), [clients[2].id()]);
    first.release().await.unwrap();
    let release = async |waiter: JoinHandle<Guard>| soon(waiter).await.release().await.unwrap();
    let [second, third] = <[_; 2]>::try_from(waiting).unwrap();
    tokio::join!(release(second), release(third));
}

pub(super) async fn held_locks_are_listed_by_name(fixture: Fixture) {
    let namespace = fresh_name("list").replace('/', "-");
    let client = fixture.client_in(&namespace, Client::builder()).await;
    assert!(client.locks().await.unwrap().is_empty());
    let long = "n".repeat(512);
    let mut names = [
        "b",
        "a",
        "c:token",
        "ä",
        "orders/42",
        "Aufträge: Zürich",
        "昼 夜 🔒",
        "spaces  in the middle",
        "*?[a-z]\\",
        "%00",
        "'; DROP TABLE records; --",
        ":token",
        &long,
    ];
    let mut guards = Vec::new();
    for name in names {
        let guard = client.mutex(name).unwrap().lock().await.unwrap();
        assert_eq!(guard.name(), name);
        guards.push(guard);
    }
    let free = client.mutex("free").unwrap().lock().await.unwrap();
    free.release().await.unwrap();
    let listed = client.locks().await.unwrap();
    names.sort_unstable();
    let listed_names: Vec<_> = listed.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(listed_names, names);
    assert!(listed.iter().all(|info| info.token.is_some()));
    client.shutdown(SOON).await.unwrap();
    assert!(client.locks().await.unwrap().is_empty());
}

pub(super) async fn namespaces_and_tenants_are_separate(fixture: Fixture) {
    let name = fresh_name("space");
    let clients = [
        ("leasehold", Client::builder()),
        ("other", Client::builder()),
        ("leasehold", Client::builder().tenant("other")),
    ];
    let mut guards = Vec::new();
    for (namespace, builder) in clients {
        let client = fixture.client_in(namespace, builder).await;
        let mutex = client.mutex(&name).unwrap();
        guards.push(mutex.try_lock().await.unwrap().unwrap());
        let listed = client.locks().await.unwrap();
        let ours = listed.iter().filter(|info| info.name == name).count();
        assert_eq!(ours, 1);
    }
    for guard in guards {
        guard.release().await.unwrap();
    }
}

pub(super) async fn an_entry_has_the_first_waiters_until_their_queue_expires(fixture: Fixture) {
    let store = fixture.store().await;
    let waiters = async |name: &str| {
        let entry = store.inspect(&key(name)).await.unwrap().unwrap();
        entry.waiters.into_iter().map(|waiter| waiter.lease)
    };
    let name = fresh_name("waiters");
    granted(&*store, lasting(acquire(&name, 0), TTL * 10)).await;
    let most = u64::try_from(View::WAITERS_MAX).unwrap();
    let requests: Vec<_> = (1..=most + 1).map(|number| wait(&name, number)).collect();
    // A file has them all in one transaction, and reads the queue for each.
    for part in requests.chunks(25) {
        let replies = store.apply(part.to_vec()).await;
        assert!(replies.iter().all(is_refused), "{:?}", replies[0]);
    }
    let expected: Vec<_> = (1..=most).map(lease).collect();
    assert_eq!(waiters(&name).await.collect::<Vec<_>>(), expected);
    for parts in [Parts::Lease, Parts::Holder] {
        let entry = store.inspect_with(&key(&name), parts).await.unwrap();
        let entry = entry.unwrap();
        assert_eq!((entry.lease, entry.waiters), (lease(0), vec![]));
    }

    // A queue is kept for two ttls and a second.
    let name = fresh_name("waiters");
    granted(&*store, acquire(&name, 0)).await;
    applied(&*store, lasting(wait(&name, 1), TTL / 300)).await;
    let expired = async || waiters(&name).await.len() == 0;
    eventually_async(SOON, expired).await;
    applied(&*store, release(&name, 0)).await;
}

/// Applies requests that may be repeated. A loaded store does not reply to all of them in time.
async fn apply_all(store: &dyn Store, mut requests: Vec<Request>) {
    while !requests.is_empty() {
        let mut again = Vec::new();
        for part in requests.chunks(100) {
            let replies = store.apply(part.to_vec()).await;
            let replied = part.iter().zip(replies);
            let missing = replied.filter(|(_, reply)| !matches!(reply, Reply::Applied { .. }));
            again.extend(missing.map(|(request, _)| request.clone()));
        }
        requests = again;
    }
}

/// Longer than what a store reads at once, in no order, every fourth lock free again.
pub(super) async fn a_long_list_is_complete_ordered_and_has_the_client_info(fixture: Fixture) {
    let store = fixture.store().await;
    let tenant = fresh_name("list").replace('/', "-");
    let [space, other] =
        [tenant, fresh_name("other").replace('/', "-")].map(|tenant| keyspace("app", &tenant));
    let client = |number: u64| client_id(u8::try_from(100 + number % 3).unwrap());
    let request = |number: u64, request: Request| {
        let mut own = StoreClient::silent(&store, 0);
        own.id = client(number);
        let key = space.key(Name::parse(&format!("{number:04}")).unwrap());
        Request::new(key, own.own(request).op)
    };
    let mut numbers: Vec<_> = (0..2_500).collect();
    fastrand::shuffle(&mut numbers);
    let all = numbers
        .iter()
        .map(|number| request(*number, lasting(acquire("any", *number), TTL * 10)));
    apply_all(&*store, all.collect()).await;
    let free = numbers.iter().filter(|number| *number % 4 == 0);
    let free = free.map(|number| request(*number, release("any", *number)));
    apply_all(&*store, free.collect()).await;
    let elsewhere = Request::new(
        other.key(Name::parse("0001").unwrap()),
        acquire("any", 8).op,
    );
    granted(&*store, elsewhere).await;
    for number in 0..2 {
        let mut info = ClientInfo::default();
        info.pid = u32::try_from(number).unwrap();
        applied(&*store, info.describe(&space, client(number), TTL)).await;
    }

    let listed = store.held(&space).await.unwrap();
    let held: Vec<_> = (0..2_500).filter(|number| number % 4 != 0).collect();
    assert_eq!(listed.len(), held.len());
    for (number, entry) in held.into_iter().zip(listed) {
        assert_eq!(entry.key.name.as_str(), format!("{number:04}"));
        assert_eq!(entry.lease.number, number);
        let pid = entry.client.map(|info| u64::from(info.pid));
        assert_eq!(pid, Some(number % 3).filter(|client| *client < 2));
    }
    assert_eq!(store.held(&other).await.unwrap().len(), 1);
}
