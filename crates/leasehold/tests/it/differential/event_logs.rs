//! The notices of a store to its clients, beside those of the rule.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::store::{Event, Key, Keyspace, Listener, Listening, Store};
use leasehold_core::{ClientId, LeaseId, Notice, StoreTime};
use leasehold_sim::history::Histories;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The clients of a history that can be notified.
pub(super) struct EventLogs {
    logs: Vec<Log>,
    timeout: Duration,
}

/// A client, its notices since the last comparison, and those of the rule.
struct Log {
    client: ClientId,
    /// It listens as long as both live.
    _listening: Listening,
    _listener: Arc<dyn Listener>,
    received: UnboundedReceiver<(Key, Notice)>,
    /// Those of them that were received before the comparison.
    early: Vec<(Key, Notice)>,
    expected: RefCell<Vec<(Key, Notice)>>,
}

/// Passes notices on. All other events are hints, which are optional.
#[derive(Debug)]
struct NoticeListener(UnboundedSender<(Key, Notice)>);

impl Listener for NoticeListener {
    fn notify(&self, event: Event) {
        if let Event::Notice(key, notice) = event {
            let _ = self.0.send((key, notice));
        }
    }
}

impl EventLogs {
    /// Listens for the clients that a history reaches. A notice may arrive `timeout` later than the reply.
    pub(super) fn new(
        store: &dyn Store,
        space: &Keyspace,
        histories: &Histories,
        timeout: Duration,
    ) -> Self {
        let reachable = histories.clients.iter().filter(|client| client.reachable);
        let logs = reachable.map(|client| {
            let (sender, received) = unbounded_channel();
            let listener: Arc<dyn Listener> = Arc::new(NoticeListener(sender));
            let to = Arc::downgrade(&listener);
            Log {
                client: client.id,
                _listening: store.listen(space, client.id, to),
                _listener: listener,
                received,
                early: Vec::new(),
                expected: RefCell::default(),
            }
        });
        Self {
            logs: logs.collect(),
            timeout,
        }
    }

    pub(super) fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.logs.iter().map(|log| log.client)
    }

    /// Notes a notice of the rule, if its client can receive it.
    pub(super) fn expect(&self, key: &Key, notice: Notice) {
        let client = notice.lease().client;
        if let Some(log) = self.logs.iter().find(|log| log.client == client) {
            log.expected.borrow_mut().push((key.clone(), notice));
        }
    }

    /// The store's time in the notice of a grant, once that has arrived. It is the next one that the rule does not expect
    /// yet.
    pub(super) async fn granted_at(&mut self, lease: LeaseId) -> Option<StoreTime> {
        let mut logs = self.logs.iter_mut();
        let log = logs.find(|log| log.client == lease.client)?;
        let is_grant = |(_, notice): &(Key, Notice)| match notice {
            Notice::Granted(grant) if grant.lease == lease => Some(grant.now),
            _ => None,
        };
        let expected = log.expected.borrow().iter().filter_map(is_grant).count();
        let arrival = async {
            loop {
                if let Some(now) = log.early.iter().filter_map(is_grant).nth(expected) {
                    return Some(now);
                }
                log.early.push(log.received.recv().await?);
            }
        };
        tokio::time::timeout(self.timeout, arrival).await.ok()?
    }

    /// Compares received and expected notices, once all should have arrived, or after the timeout. Those about different
    /// names have no order. The error is a name and its difference.
    pub(super) async fn compare(&mut self, timeout: Duration) -> Result<(), (Key, String)> {
        for log in &mut self.logs {
            let mut expected = log.expected.take();
            let mut received = std::mem::take(&mut log.early);
            let arrival = async {
                while received.len() < expected.len() {
                    received.extend(log.received.recv().await);
                }
            };
            // Missing notices are found below.
            let _ = tokio::time::timeout(timeout, arrival).await;
            received.extend(std::iter::from_fn(|| log.received.try_recv().ok()));
            for notices in [&mut received, &mut expected] {
                notices.sort_by(|(key, _), (other, _)| key.cmp(other));
            }
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
