//! What one transaction has to tell, held back until it is committed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use leasehold_core::{ClientId, Notice};

use super::message;
use super::notifier::Notifier;
use super::send::Send;
use crate::store::api::{Event, Key, Listener};

/// The outbox of a transaction. Dropped without [`Outbox::send`], nobody is told.
pub(in crate::store::sqlite) struct Outbox<'a> {
    notifier: &'a Notifier,
    /// For clients of this store.
    near: Vec<(Arc<dyn Listener>, Event)>,
    /// For those of others; `None`: it cannot be reached.
    far: HashMap<ClientId, Option<Far>>,
    waits: bool,
}

/// Letters to a client of another store, and the way to it.
struct Far {
    call: Send,
    messages: Vec<Vec<u8>>,
}

impl<'a> Outbox<'a> {
    pub(super) fn new(notifier: &'a Notifier) -> Self {
        Self {
            notifier,
            near: Vec::new(),
            far: HashMap::new(),
            waits: false,
        }
    }

    /// Whether clients of this store cannot be told by others at this moment.
    pub(in crate::store::sqlite) fn deaf(&self) -> bool {
        self.notifier.listeners.is_deaf()
    }

    /// Takes a notice to a client, and answers whether that can be reached.
    pub(in crate::store::sqlite) fn tell(&mut self, key: &Key, notice: &Notice) -> bool {
        self.take(notice.lease().client, Event::Notice(key.clone(), *notice))
    }

    /// A client of this store waits from now on.
    pub(in crate::store::sqlite) fn somebody_waits(&mut self) {
        self.waits = true;
    }

    /// The last thing before the commit: from then on others look for the notify_sockets of those who wait.
    pub(in crate::store::sqlite) fn prepare(&self) {
        if self.waits {
            self.notifier.hang();
        }
    }

    /// Tells everybody. The transaction is committed.
    pub(in crate::store::sqlite) fn send(self) {
        for far in self.far.into_values().flatten() {
            far.call.ring(&far.messages);
        }
        for (listener, event) in self.near {
            listener.notify(event);
        }
    }

    fn take(&mut self, client: ClientId, event: Event) -> bool {
        if let Some(listener) = self.notifier.listeners.of(client) {
            let here = listener.is_some();
            self.near.extend(listener.map(|listener| (listener, event)));
            return here;
        }
        let far = self.far.entry(client).or_insert_with(|| {
            let messages = Vec::new();
            let call = self.notifier.call(client)?;
            Some(Far { call, messages })
        });
        let Some(far) = far else {
            return false;
        };
        message::write(&mut far.messages, &event);
        true
    }
}

impl fmt::Debug for Outbox<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("near", &self.near.len())
            .field("far", &self.far.len())
            .finish_non_exhaustive()
    }
}
