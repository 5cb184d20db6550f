//! What a store tells its clients, beside what it should have told them.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::store::{Event, Key, Keyspace, Listener, Store};
use leasehold_core::{ClientId, Notice};
use leasehold_sim::history::Histories;
use tokio::sync::Notify;

/// The clients of a history that can be told something.
pub(super) struct EventLogs<'a> {
    store: &'a dyn Store,
    event_logs: Vec<(ClientId, Arc<EventLog>)>,
    patience: Duration,
}

/// What one of them heard, and what it should have heard since it was compared.
#[derive(Debug, Default)]
struct EventLog {
    heard: Mutex<Vec<(Key, Notice)>>,
    expected: Mutex<Vec<(Key, Notice)>>,
    news: Notify,
}

impl Listener for EventLog {
    fn notify(&self, event: Event) {
        // All others are hints, and may come or not.
        if let Event::Notice(key, notice) = event {
            self.heard.lock().unwrap().push((key, notice));
            self.news.notify_one();
        }
    }
}

impl EventLog {
    /// Waits until so much was heard.
    async fn heard(&self, count: usize) {
        while self.heard.lock().unwrap().len() < count {
            self.news.notified().await;
        }
    }
}

impl<'a> EventLogs<'a> {
    /// Listens for the clients that a history reaches. What is told may come `patience` later than
    /// the answer.
    pub(super) fn new(
        store: &'a dyn Store,
        space: &Keyspace,
        histories: &Histories,
        patience: Duration,
    ) -> Self {
        let mut event_logs = Vec::new();
        for client in histories.clients.iter().filter(|client| client.reachable) {
            let event_log = Arc::new(EventLog::default());
            let listener = Arc::downgrade(&event_log) as Weak<dyn Listener>;
            store.listen(space, client.id, listener);
            event_logs.push((client.id, event_log));
        }
        Self {
            store,
            event_logs,
            patience,
        }
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.event_logs.iter().map(|(client, _)| *client)
    }

    /// Answers whether the client of a notice can be told, which it is then to hear.
    pub(super) fn expect(&self, key: &Key, notice: &Notice) -> bool {
        let client = notice.lease().client;
        let Some((_, event_log)) = self.event_logs.iter().find(|(other, _)| *other == client)
        else {
            return false;
        };
        event_log
            .expected
            .lock()
            .unwrap()
            .push((key.clone(), *notice));
        true
    }

    /// Compares what was heard with what was to be heard, once all of it should be there. Of what
    /// differs, the name and what it is.
    pub(super) async fn compare(&self) -> Result<(), (Key, String)> {
        for (client, event_log) in &self.event_logs {
            let expected = std::mem::take(&mut *event_log.expected.lock().unwrap());
            // If not all comes, that is found now.
            let _ = tokio::time::timeout(self.patience, event_log.heard(expected.len())).await;
            let heard = std::mem::take(&mut *event_log.heard.lock().unwrap());
            if heard == expected {
                continue;
            }
            let longer = heard.len().max(expected.len());
            let differs = |at: &usize| heard.get(*at) != expected.get(*at);
            let first = (0..longer).find(differs).unwrap_or_default();
            let (heard, expected) = (heard.get(first), expected.get(first));
            let Some((key, _)) = expected.or(heard) else {
                continue;
            };
            let what = format!("{client} was told {heard:?}, not {expected:?}");
            return Err((key.clone(), what));
        }
        Ok(())
    }
}

impl Drop for EventLogs<'_> {
    fn drop(&mut self) {
        for (client, _) in &self.event_logs {
            self.store.forget(*client);
        }
    }
}
