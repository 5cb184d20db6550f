//! The notices of a store to its clients, beside those of the rule.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::store::{Event, Key, Keyspace, Listener, Store};
use leasehold_core::{ClientId, Notice};
use leasehold_sim::history::Histories;
use tokio::sync::Notify;

/// The clients of a history that can be notified.
pub(super) struct EventLogs<'a> {
    store: &'a dyn Store,
    logs: Vec<Log>,
    timeout: Duration,
}

/// A client, and the notices of the rule to it since the last comparison.
struct Log {
    client: ClientId,
    received: Arc<EventLog>,
    expected: RefCell<Vec<(Key, Notice)>>,
}

/// The notices that a client has received since the last comparison.
#[derive(Debug, Default)]
struct EventLog {
    notices: Mutex<Vec<(Key, Notice)>>,
    arrived: Notify,
}

impl Listener for EventLog {
    fn notify(&self, event: Event) {
        // All other events are hints, which are optional.
        if let Event::Notice(key, notice) = event {
            self.notices.lock().unwrap().push((key, notice));
            self.arrived.notify_one();
        }
    }
}

impl EventLog {
    async fn until_received(&self, count: usize) {
        while self.notices.lock().unwrap().len() < count {
            self.arrived.notified().await;
        }
    }
}

impl<'a> EventLogs<'a> {
    /// Listens for the clients that a history reaches. A notice may arrive `timeout` later than the reply.
    pub(super) fn new(
        store: &'a dyn Store,
        space: &Keyspace,
        histories: &Histories,
        timeout: Duration,
    ) -> Self {
        let reachable = histories.clients.iter().filter(|client| client.reachable);
        let logs = reachable.map(|client| {
            let received = Arc::new(EventLog::default());
            let listener = Arc::downgrade(&received) as Weak<dyn Listener>;
            store.listen(space, client.id, listener);
            Log {
                client: client.id,
                received,
                expected: RefCell::default(),
            }
        });
        Self {
            store,
            logs: logs.collect(),
            timeout,
        }
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.logs.iter().map(|log| log.client)
    }

    /// Notes a notice of the rule. Returns whether its client can receive it.
    pub(super) fn expect(&self, key: &Key, notice: &Notice) -> bool {
        let client = notice.lease().client;
        let log = self.logs.iter().find(|log| log.client == client);
        log.is_some_and(|log| {
            log.expected.borrow_mut().push((key.clone(), *notice));
            true
        })
    }

    /// Compares received and expected notices, once all should have arrived. The error is a name and its difference.
    pub(super) async fn compare(&self) -> Result<(), (Key, String)> {
        for log in &self.logs {
            let expected = log.expected.take();
            let arrival = log.received.until_received(expected.len());
            // Missing notices are found below.
            let _ = tokio::time::timeout(self.timeout, arrival).await;
            let received = std::mem::take(&mut *log.received.notices.lock().unwrap());
            for nth in 0..received.len().max(expected.len()) {
                let (received, expected) = (received.get(nth), expected.get(nth));
                if let (true, Some((key, _))) = (received != expected, expected.or(received)) {
                    let client = log.client;
                    let what = format!("{client} received {received:?}, not {expected:?}");
                    return Err((key.clone(), what));
                }
            }
        }
        Ok(())
    }
}

impl Drop for EventLogs<'_> {
    fn drop(&mut self) {
        for client in self.clients() {
            self.store.forget(client);
        }
    }
}
