//! What the parts of a node have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::clock::{BootClock, Clock as _};
use leasehold_core::Instant;
use rustix::process::{Resource, getrlimit};
use tokio::sync::watch;

use crate::Error;
use crate::access::Permission;
use crate::client::{Client, Origin};
use crate::clients::Clients;
use crate::keeper::Keeper;
use crate::memory::Memory;
use crate::process::Process;
use crate::settings::Settings;
use crate::stores::Served;
use crate::tasks::Tasks;

/// A node, as its parts see it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) clients: Clients,
    pub(crate) stores: Vec<Arc<Served>>,
    /// Who may register what.
    pub(crate) allow: Vec<Permission>,
    pub(crate) keeper: Keeper,
    pub(crate) tasks: Tasks,
    /// Whether it is about to stop.
    pub(crate) closing: watch::Sender<bool>,
    connections: AtomicUsize,
    connections_max: usize,
}

/// A place among those who are connected.
pub(crate) struct Seat(Arc<Shared>);

impl Shared {
    pub(crate) fn new(
        settings: &Settings,
        memory: Option<Arc<Memory>>,
    ) -> Result<Arc<Self>, Error> {
        let stores = settings.stores.iter().map(|store| {
            let served = Served::new(store)?;
            Ok(Arc::new(served))
        });
        let files = getrlimit(Resource::Nofile).current;
        let connections_max = settings.limits.connections(files);
        let tokens = settings.tokens.clone();
        Ok(Arc::new(Self {
            name: settings.name.clone(),
            clients: Clients::new(settings.limits, settings.max_pause, tokens, memory),
            stores: stores.collect::<Result<_, Error>>()?,
            allow: settings.allow.clone(),
            keeper: Keeper::default(),
            tasks: Tasks::default(),
            closing: watch::Sender::new(false),
            connections: AtomicUsize::new(0),
            connections_max,
        }))
    }

    /// Room for one more connection, if there is any.
    pub(crate) fn seat(self: &Arc<Self>) -> Option<Seat> {
        let taken = self.connections.fetch_add(1, Ordering::Relaxed);
        let seat = Seat(Arc::clone(self));
        (taken < self.connections_max).then_some(seat)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The store that a client means.
    pub(crate) fn store(&self, called: &str) -> Option<&Arc<Served>> {
        self.stores.iter().find(|store| store.is_called(called))
    }

    /// Something has happened to a client: it is forgotten, or looked at when it is due.
    pub(crate) fn look_again(&self, client: &Arc<Client>, now: Instant) {
        if !self.clients.forget_if_over(client, now) {
            self.keeper.look_at(client, now);
        }
    }

    /// Watches a process of a client until it ends.
    pub(crate) fn watch(self: &Arc<Self>, client: &Arc<Client>, process: &Arc<Process>) {
        let shared = Arc::clone(self);
        let (identity, process) = (process.identity(), Arc::clone(process));
        // A client that is forgotten ends the watch, not the other way around.
        let watched = Arc::downgrade(client);
        let watch = self.tasks.spawn(async move {
            process.gone().await;
            if let Some(client) = watched.upgrade() {
                let now = BootClock.now();
                client.process_gone(identity, now);
                shared.look_again(&client, now);
            }
        });
        if let Some(watch) = watch {
            client.watched_by(identity, watch);
        }
    }

    /// Somebody of a process has come or gone: those whose program is no more have ended.
    pub(crate) fn tell_replaced(&self, client: &Arc<Client>, now: Instant) {
        let Origin::Local(identity) = client.origin else {
            return;
        };
        let others = self.clients.of_same_process(client);
        for other in &others {
            if other.is_replaced_by(&client.program()) {
                other.process_gone(identity, now);
                self.look_again(other, now);
            }
        }
        if others
            .iter()
            .any(|other| client.is_replaced_by(&other.program()))
        {
            client.process_gone(identity, now);
            self.look_again(client, now);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
