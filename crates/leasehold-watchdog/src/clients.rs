//! The clients of a node, and the limits on them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::__private::wire::Refusal;
use leasehold_core::watchdog::Evidence;
use leasehold_core::{ClientId, Instant};
use tokio::sync::Notify;

use crate::client::{ClientParts, WatchedClient};
use crate::limits::{LeaseCount, Limits};
use crate::service_manager::ServiceManager;
use crate::settings::Token;

/// All clients of a node.
#[derive(Debug)]
pub(crate) struct Clients {
    table: Mutex<Table>,
    pub(crate) limits: Limits,
    pub(crate) max_pause: Duration,
    /// The serial number of the next client.
    serials: AtomicU64,
    /// The number of leases of all clients.
    leases: Arc<LeaseCount>,
    /// The tokens, each with the number of its leases.
    tokens: Vec<(Token, Arc<LeaseCount>)>,
    /// It keeps the state for the next node.
    manager: Option<Arc<ServiceManager>>,
}

type Table = HashMap<ClientId, Arc<WatchedClient>>;

impl Clients {
    pub(crate) fn new(
        limits: Limits,
        max_pause: Duration,
        tokens: Vec<Token>,
        manager: Option<Arc<ServiceManager>>,
    ) -> Self {
        let with_count = |token: Token| {
            let leases = Arc::new(LeaseCount::new(token.leases));
            (token, leases)
        };
        Self {
            table: Mutex::default(),
            limits,
            max_pause,
            serials: AtomicU64::new(0),
            leases: Arc::new(LeaseCount::new(limits.leases)),
            tokens: tokens.into_iter().map(with_count).collect(),
            manager,
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.tokens.iter().map(|(token, _)| token)
    }

    /// The client of a hello: a known one with this id, or a new one. The caller's connection is its active one
    /// until the returned `Notify` is notified.
    pub(crate) fn connect(
        &self,
        hello: ClientParts,
    ) -> Result<(Arc<WatchedClient>, Arc<Notify>), Refusal> {
        let program = hello.program;
        // Locked until the client is connected: it must not be forgotten before.
        let mut table = self.table();
        let client = match table.get(&hello.id) {
            Some(known) => {
                known.check_hello(&hello)?;
                Arc::clone(known)
            }
            None => {
                let token = hello.origin.token();
                let limit = token.and_then(|token| self.tokens.get(token));
                let of_token = |client: &&Arc<WatchedClient>| client.origin.token() == token;
                let is_full = |(token, _): &(Token, _)| {
                    table.values().filter(of_token).count() >= token.clients
                };
                if table.len() >= self.limits.clients || limit.is_some_and(is_full) {
                    return Err(Refusal::Clients);
                }
                let leases = limit.map(|(_, leases)| Arc::clone(leases));
                self.add(&mut table, hello, program.since, leases)?
            }
        };
        let connection = client.connected(program);
        Ok((client, connection))
    }

    /// Adds a client of an earlier node, whose last sign of life was at `last_received`.
    pub(crate) fn restore(
        &self,
        parts: ClientParts,
        last_received: Instant,
    ) -> Option<Arc<WatchedClient>> {
        self.add(&mut self.table(), parts, last_received, None).ok()
    }

    fn add(
        &self,
        table: &mut Table,
        parts: ClientParts,
        last_received: Instant,
        leases_of_token: Option<Arc<LeaseCount>>,
    ) -> Result<Arc<WatchedClient>, Refusal> {
        let lease_counts = leases_of_token
            .into_iter()
            .chain([Arc::clone(&self.leases)]);
        let client = WatchedClient::new(
            parts,
            self.serials.fetch_add(1, Ordering::Relaxed),
            (self.max_pause, last_received),
            lease_counts.collect(),
            self.manager.clone(),
        );
        let client = Arc::new(client?);
        table.insert(client.id, Arc::clone(&client));
        Ok(client)
    }

    pub(crate) fn find(&self, id: ClientId) -> Option<Arc<WatchedClient>> {
        self.table().get(&id).map(Arc::clone)
    }

    /// Forgets a client if nothing is left to do for it. Returns whether it is forgotten.
    pub(crate) fn forget_if_finished(&self, client: &Arc<WatchedClient>, now: Instant) -> bool {
        let mut table = self.table();
        let finished = is_known(&table, client) && client.end_if_finished(now);
        if finished {
            table.remove(&client.id);
        }
        finished
    }

    /// Forgets a client.
    pub(crate) fn forget(&self, client: &Arc<WatchedClient>) {
        let mut table = self.table();
        if is_known(&table, client) {
            table.remove(&client.id);
        }
        drop(table);
        client.end();
    }

    /// All clients in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<WatchedClient>> {
        let mut all: Vec<_> = self.table().values().map(Arc::clone).collect();
        all.sort_by_key(|client| client.id);
        all
    }

    pub(crate) fn leases(&self) -> usize {
        self.leases.count()
    }

    /// The other clients of the same process.
    pub(crate) fn of_same_process(&self, client: &WatchedClient) -> Vec<Arc<WatchedClient>> {
        if client.origin.evidence() == Evidence::Connection {
            return Vec::new();
        }
        let table = self.table();
        let same =
            |other: &&Arc<WatchedClient>| other.id != client.id && other.origin == client.origin;
        table.values().filter(same).map(Arc::clone).collect()
    }
}

/// Whether the table has this client, and not a later one with its id.
fn is_known(table: &Table, client: &Arc<WatchedClient>) -> bool {
    let known = table.get(&client.id);
    known.is_some_and(|known| Arc::ptr_eq(known, client))
}
