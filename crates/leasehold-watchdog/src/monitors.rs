//! The clients of a node, and the limits on them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::__private::wire::{Introduction, Refusal};
use leasehold_core::watchdog::{ClientMonitor, Evidence};
use leasehold_core::{ClientId, Instant};
use tokio::sync::Notify;

use crate::client::{Client, Making, Origin, Program};
use crate::handover::Handover;
use crate::limits::Limits;
use crate::settings::Token;
use crate::stores::Served;

/// All clients of a node.
#[derive(Debug)]
pub(crate) struct Clients {
    table: Mutex<HashMap<ClientId, Arc<Client>>>,
    limits: Limits,
    max_pause: Duration,
    /// The serial number of the next client.
    serials: AtomicU64,
    /// The number of leases of all clients.
    leases: Arc<Tally>,
    /// The tokens, each with the number of its leases.
    tokens: Vec<(Token, Arc<Tally>)>,
    /// The handover to the next node. `None`: no service manager keeps it.
    memory: Option<Arc<Handover>>,
}

/// A number of leases, and its maximum.
#[derive(Debug)]
pub(crate) struct Tally {
    count: AtomicUsize,
    max: usize,
}

impl Tally {
    pub(crate) const fn new(max: usize) -> Self {
        Self {
            count: AtomicUsize::new(0),
            max,
        }
    }

    /// Whether there is room for one more lease of a client that has `now` leases, of which `before` are counted
    /// here. Two concurrent callers may both get the last one.
    pub(crate) fn has_room(&self, before: usize, now: usize) -> bool {
        self.count().saturating_sub(before).saturating_add(now) < self.max
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Changes the count by the difference of two counts.
    pub(crate) fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.count.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.count.fetch_sub(before - after, Ordering::Relaxed);
        }
    }
}

impl Clients {
    pub(crate) fn new(
        limits: Limits,
        max_pause: Duration,
        tokens: Vec<Token>,
        memory: Option<Arc<Handover>>,
    ) -> Self {
        let with_tally = |token: Token| {
            let leases = Arc::new(Tally::new(token.leases));
            (token, leases)
        };
        Self {
            table: Mutex::default(),
            limits,
            max_pause,
            serials: AtomicU64::new(0),
            leases: Arc::new(Tally::new(limits.leases)),
            tokens: tokens.into_iter().map(with_tally).collect(),
            memory,
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<ClientId, Arc<Client>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn max_pause(&self) -> Duration {
        self.max_pause
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.tokens.iter().map(|(token, _)| token)
    }

    /// The client of a hello: a known one with this id, or a new one. The caller's connection is its active one
    /// until the returned `Notify` is notified.
    pub(crate) fn enter(
        &self,
        id: ClientId,
        introduction: Introduction,
        origin: Origin,
        program: Program,
        store: Arc<Served>,
    ) -> Result<(Arc<Client>, Arc<Notify>), Refusal> {
        // Locked until the client is connected: it must not be forgotten before.
        let mut table = self.table();
        if let Some(known) = table.get(&id) {
            known.is_again(&introduction, &origin, &store)?;
            return Ok((Arc::clone(known), known.connected(program)));
        }
        if table.len() >= self.limits.clients {
            return Err(Refusal::Clients);
        }
        let mut tallies = Vec::new();
        if let Origin::Remote { token, .. } = origin
            && let Some((settings, tally)) = self.tokens.get(token)
        {
            let clients = table.values();
            let of_token = clients.filter(|client| client.token() == Some(token));
            if of_token.count() >= settings.clients {
                return Err(Refusal::Clients);
            }
            tallies.push(Arc::clone(tally));
        }
        let who = (id, introduction);
        let client = self.make(who, origin, program, store, program.since, tallies)?;
        table.insert(id, Arc::clone(&client));
        let speaker = client.connected(program);
        Ok((client, speaker))
    }

    /// Adds a client of an earlier node, whose last sign of life was at `heard`.
    pub(crate) fn restore(
        &self,
        (id, introduction): (ClientId, Introduction),
        origin: Origin,
        program: Program,
        store: Arc<Served>,
        heard: Instant,
    ) -> Option<Arc<Client>> {
        let client = self.make(
            (id, introduction),
            origin,
            program,
            store,
            heard,
            Vec::new(),
        );
        let client = client.ok()?;
        self.table().insert(id, Arc::clone(&client));
        Some(client)
    }

    fn make(
        &self,
        (id, introduction): (ClientId, Introduction),
        origin: Origin,
        program: Program,
        store: Arc<Served>,
        heard: Instant,
        mut tallies: Vec<Arc<Tally>>,
    ) -> Result<Arc<Client>, Refusal> {
        tallies.push(Arc::clone(&self.leases));
        let client = Client::new(Making {
            id,
            serial: self.serials.fetch_add(1, Ordering::Relaxed),
            introduction,
            origin,
            program,
            store,
            charge: ClientMonitor::new(origin.evidence(), self.max_pause, heard),
            tallies,
            memory: self.memory.clone(),
        })?;
        Ok(Arc::new(client))
    }

    pub(crate) fn find(&self, id: ClientId) -> Option<Arc<Client>> {
        self.table().get(&id).map(Arc::clone)
    }

    /// Forgets a client if nothing is left to do for it. Returns whether it is forgotten.
    pub(crate) fn forget_if_over(&self, client: &Arc<Client>, now: Instant) -> bool {
        let mut table = self.table();
        let known = table
            .get(&client.id)
            .is_some_and(|known| Arc::ptr_eq(known, client));
        if known && client.end_if_over(now) {
            table.remove(&client.id);
            return true;
        }
        false
    }

    /// Forgets a client.
    pub(crate) fn forget(&self, client: &Arc<Client>) {
        let mut table = self.table();
        if table
            .get(&client.id)
            .is_some_and(|known| Arc::ptr_eq(known, client))
        {
            table.remove(&client.id);
        }
        drop(table);
        client.end();
    }

    /// All clients in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        let mut all: Vec<_> = self.table().values().map(Arc::clone).collect();
        all.sort_by_key(|client| client.id);
        all
    }

    pub(crate) fn leases(&self) -> usize {
        self.leases.count()
    }

    /// The other clients of the same process.
    pub(crate) fn of_same_process(&self, client: &Client) -> Vec<Arc<Client>> {
        if client.origin.evidence() == Evidence::Connection {
            return Vec::new();
        }
        let table = self.table();
        let same = |other: &&Arc<Client>| other.id != client.id && other.origin == client.origin;
        table.values().filter(same).map(Arc::clone).collect()
    }
}
