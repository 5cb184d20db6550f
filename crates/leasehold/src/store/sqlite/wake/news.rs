//! What one transaction has to tell, held back until it is committed.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use leasehold_core::{ClientId, Notice};

use super::call::Call;
use super::letter;
use super::ringer::Ringer;
use crate::store::{Event, Key, Listener};

/// The news of a transaction. Dropped without [`News::send`], nobody is told.
pub(in crate::store::sqlite) struct News<'a> {
    ringer: &'a Ringer,
    /// For clients of this store.
    near: Vec<(Arc<dyn Listener>, Event)>,
    /// For those of others; `None`: it cannot be reached.
    far: HashMap<ClientId, Option<Far>>,
    waits: bool,
}

/// Letters to a client of another store, and the way to it.
struct Far {
    call: Call,
    letters: Vec<Vec<u8>>,
}

impl<'a> News<'a> {
    pub(super) fn new(ringer: &'a Ringer) -> Self {
        Self {
            ringer,
            near: Vec::new(),
            far: HashMap::new(),
            waits: false,
        }
    }

    /// Whether clients of this store cannot be told by others at this moment.
    pub(in crate::store::sqlite) fn deaf(&self) -> bool {
        self.ringer.listeners.is_deaf()
    }

    /// Takes a notice to a client, and answers whether that can be reached.
    pub(in crate::store::sqlite) fn tell(&mut self, key: &Key, notice: &Notice) -> bool {
        self.take(notice.lease().client, Event::Told(key.clone(), *notice))
    }

    /// A client of this store waits from now on.
    pub(in crate::store::sqlite) fn somebody_waits(&mut self) {
        self.waits = true;
    }

    /// The last thing before the commit: from then on others look for the bells of those who wait.
    pub(in crate::store::sqlite) fn prepare(&self) {
        if self.waits {
            self.ringer.hang();
        }
    }

    /// Tells everybody. The transaction is committed.
    pub(in crate::store::sqlite) fn send(self) {
        for far in self.far.into_values().flatten() {
            far.call.ring(&far.letters);
        }
        for (listener, event) in self.near {
            listener.hear(event);
        }
    }

    fn take(&mut self, client: ClientId, event: Event) -> bool {
        if let Some(listener) = self.ringer.listeners.of(client) {
            let here = listener.is_some();
            self.near.extend(listener.map(|listener| (listener, event)));
            return here;
        }
        let far = self.far.entry(client).or_insert_with(|| {
            let letters = Vec::new();
            let call = self.ringer.call(client)?;
            Some(Far { call, letters })
        });
        let Some(far) = far else {
            return false;
        };
        letter::write(&mut far.letters, &event);
        true
    }
}

impl fmt::Debug for News<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("News")
            .field("near", &self.near.len())
            .field("far", &self.far.len())
            .finish_non_exhaustive()
    }
}
