//! A client of a test's own: it asks by hand and notes what it hears.

use std::sync::{Arc, Mutex, Weak};

use leasehold::store::{Event, Listener};
use leasehold_core::{Grant, Notice};
use leasehold_testkit::eventually_async;

use super::*;

/// What a client heard, in the order in which it came.
#[derive(Debug, Default)]
pub(super) struct EventLog(Mutex<Vec<Event>>);

impl Listener for EventLog {
    fn notify(&self, event: Event) {
        self.0.lock().unwrap().push(event);
    }
}

/// A client with a listener.
pub(super) struct Asker {
    pub(super) store: Arc<dyn Store>,
    pub(super) client: ClientId,
    event_log: Arc<EventLog>,
}

impl Asker {
    /// A client of a store. The store has told others of it.
    pub(super) async fn on(store: &Arc<dyn Store>, number: u8) -> Self {
        let asker = Self {
            store: Arc::clone(store),
            client: client(number),
            event_log: Arc::default(),
        };
        let listener = Arc::downgrade(&asker.event_log) as Weak<dyn Listener>;
        store.listen(&space("main"), asker.client, listener);
        outcome(&**store, renew("nothing", asker.lease(0), LONG)).await;
        asker
    }

    pub(super) fn lease(&self, number: u64) -> LeaseId {
        LeaseId {
            client: self.client,
            number,
        }
    }

    pub(super) async fn take(&self, name: &str, number: u64) -> u64 {
        token(&*self.store, acquire(name, self.lease(number), LONG)).await
    }

    pub(super) async fn release(&self, name: &str, number: u64) {
        let (released, _) = outcome(&*self.store, release(name, self.lease(number))).await;
        assert_eq!(released, Outcome::Released { count: 0 }, "{name} {number}");
    }

    /// Asks for a lock that another holds, and gives its place in the queue.
    pub(super) async fn wait(&self, name: &str, number: u64) -> Option<u32> {
        match outcome(&*self.store, wait(name, self.lease(number), LONG)).await {
            (
                Outcome::Refused {
                    queue_position: place,
                    ..
                },
                _,
            ) => place,
            other => panic!("{name} {number}: {other:?}"),
        }
    }

    /// What was heard since the last question.
    pub(super) fn take_heard(&self) -> Vec<Event> {
        std::mem::take(&mut self.event_log.0.lock().unwrap())
    }

    /// The next so many things it hears.
    pub(super) async fn hears(&self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        eventually_async(SOON, async || {
            events.extend(self.take_heard());
            events.len() >= count
        })
        .await;
        assert_eq!(events.len(), count, "{events:?}");
        events
    }

    /// The first grant it hears, after whatever else.
    pub(super) async fn granted_at_last(&self) -> Grant {
        let mut found = None;
        eventually_async(SOON, async || {
            found = self.take_heard().into_iter().find_map(|event| match event {
                Event::Notice(_, Notice::Granted(grant)) => Some(grant),
                _ => None,
            });
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// The grant of a lease, as the next thing it hears.
    pub(super) async fn granted(&self, name: &str, number: u64) -> Grant {
        match self.hears(1).await.remove(0) {
            Event::Notice(told, Notice::Granted(grant)) if told == key(name) => {
                assert_eq!(grant.lease, self.lease(number));
                grant
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A question for a lock, to wait for it if it is refused.
pub(super) fn wait(name: &str, lease: LeaseId, ttl: Duration) -> Request {
    let mut request = acquire(name, lease, ttl);
    if let Op::Acquire { wait, .. } = &mut request.op {
        *wait = true;
    }
    request
}
