//! Notices to the clients of this process and of others, whatever becomes of a write.

use leasehold_core::Notice;

use super::*;
use crate::store::api::{Event, EventScope, Listener, Listening, Query};

/// The events of a client.
#[derive(Debug, Default)]
struct Events(Mutex<Vec<Event>>);

impl Listener for Events {
    fn notify(&self, event: Event) {
        lock(&self.0).push(event);
    }
}

/// A client of the same process, which waits behind it.
async fn waiter_behind(holder: &TestClient) -> (Arc<Events>, Listening) {
    let events = Arc::<Events>::default();
    let client = ClientId::from_random([9; 16]);
    let listener = Arc::downgrade(&events);
    let listening = holder.store.listen(&key("a").space, client, listener);
    assert!(holder.acquires().await);
    let refused = holder.apply(wait(LeaseId { client, number: 1 })).await;
    let Outcome::Refused { queue_position, .. } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(queue_position, Some(0));
    (events, listening)
}

async fn observe(client: &TestClient) -> Page {
    let query = Query::Name {
        key: key("a"),
        parts: Parts::Holder,
        watch: true,
    };
    client.store.read(query).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_takes_no_notice_away_from_others() {
    let reply_delay = Duration::from_millis(100);
    let documents = InMemory {
        reply_delay,
        ..InMemory::notifying()
    };
    let client = TestClient::new(&documents, 1, 0);
    let (events, _listening) = waiter_behind(&client).await;
    let release = client.apply(Op::release(client.lease));
    let given_up = tokio::time::timeout(reply_delay / 2, release).await;
    assert!(given_up.is_err(), "{given_up:?}");
    tokio::time::sleep(reply_delay).await;
    let events = lock(&events.0);
    assert!(
        matches!(events[..], [Event::Notice(_, Notice::Granted(_))]),
        "{events:?}"
    );
}

/// Nobody knows whether the waiter was granted the lock.
#[tokio::test]
async fn a_waiter_and_an_observer_ask_again_after_a_write_without_a_reply() {
    let documents = InMemory::notifying();
    let [client] = clients(&documents);
    let (events, _listening) = waiter_behind(&client).await;
    let mut changed = observe(&client).await.changed.unwrap();
    *lock(&documents.fault) = Some(WriteFault::Lost);
    client.loses(Op::release(client.lease)).await;
    let interrupted = Event::Interrupted(EventScope::Record(key("a")));
    assert_eq!(*lock(&events.0), [interrupted]);
    assert_eq!(changed.try_recv(), Ok(()));
}

#[tokio::test]
async fn a_waiter_that_has_asked_again_since_it_was_dead_is_granted_the_lock() {
    let documents = InMemory::notifying();
    let [holder, waiter] = clients(&documents);
    assert!(holder.acquires().await);
    waiter.apply(wait(waiter.lease)).await;
    lock(&documents.dead).insert(waiter.lease.client);
    *lock(&documents.fault) = Some(WriteFault::Overwritten);
    holder.releases().await;
    assert_eq!(*lock(&documents.receivers), [waiter.lease.client]);
}

/// A writer has removed it, because its session had ended.
#[tokio::test]
async fn an_observer_that_is_not_registered_registers_again() {
    let documents = InMemory::notifying();
    let [observer] = clients(&documents);
    let register = async || {
        observe(&observer).await;
        lock(&documents.texts)[&key("a")].clone()
    };
    let (version, text) = register().await;
    assert_eq!(register().await, (version, text.clone()));
    let is_other = |line: &&str| !line.starts_with("6 ");
    let without = text
        .lines()
        .filter(is_other)
        .map(|line| line.to_owned() + "\n");
    let unregistered = (version + 1, without.collect());
    assert_ne!(unregistered.1, text);
    lock(&documents.texts).insert(key("a"), unregistered);
    let (_, again) = register().await;
    assert!(again.contains("\n6 "), "{again}");
}

/// A store may send some of them later.
#[tokio::test]
async fn messages_to_waiters_are_before_those_to_observers() {
    let documents = InMemory::notifying();
    let [holder, waiter] = clients(&documents);
    assert!(holder.acquires().await);
    waiter.apply(wait(waiter.lease)).await;
    let watcher = ClientId::from_random([0; 16]);
    {
        let mut texts = lock(&documents.texts);
        let (version, text) = texts.get_mut(&key("a")).unwrap();
        *version += 1;
        text.push_str(&format!("6 {watcher} {}\n", u64::MAX));
    }
    holder.apply(Op::release(holder.lease)).await;
    assert_eq!(*lock(&documents.receivers), [waiter.lease.client, watcher]);
}
