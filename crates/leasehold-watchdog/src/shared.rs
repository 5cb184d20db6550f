//! What the parts of a node have in common.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::clock::{BootClock, Clock as _};
use leasehold_core::Instant;
use rustix::process::{Resource, getrlimit};
use tokio::sync::{Notify, watch};

use crate::Error;
use crate::access::Permission;
use crate::client::{Client, Origin};
use crate::files::{Counted, Files};
use crate::handover::Handover;
use crate::limits::Limits;
use crate::monitors::Clients;
use crate::process::Process;
use crate::scheduler::Scheduler;
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
    pub(crate) scheduler: Scheduler,
    pub(crate) tasks: Tasks,
    /// Whether it is about to stop.
    pub(crate) closing: watch::Sender<bool>,
    connections: AtomicUsize,
    connections_max: usize,
    /// What connections and watched processes take.
    files: Arc<Files>,
    files_max: usize,
    /// Connections that no client speaks by, the oldest first. Each is notified when it has to end.
    guests: Mutex<VecDeque<Arc<Notify>>>,
}

/// A place among those who are connected.
pub(crate) struct ConnectionPermit {
    shared: Arc<Shared>,
    ended: Arc<Notify>,
    files: Counted,
}

/// How many connections may be left that were told to end, while as many others have their places.
const ENDING_MAX: usize = 16;

impl Shared {
    pub(crate) fn new(
        settings: &Settings,
        memory: Option<Arc<Handover>>,
    ) -> Result<Arc<Self>, Error> {
        let stores = settings.stores.iter().map(|store| {
            let served = Served::new(store)?;
            Ok(Arc::new(served))
        });
        let tokens = settings.tokens.clone();
        Ok(Arc::new(Self {
            name: settings.name.clone(),
            clients: Clients::new(settings.limits, settings.max_pause, tokens, memory),
            stores: stores.collect::<Result<_, Error>>()?,
            allow: settings.allow.clone(),
            scheduler: Scheduler::default(),
            tasks: Tasks::default(),
            closing: watch::Sender::new(false),
            connections: AtomicUsize::new(0),
            connections_max: settings.limits.connections(),
            files: Arc::default(),
            files_max: Limits::files(getrlimit(Resource::Nofile).current),
            guests: Mutex::default(),
        }))
    }

    /// Room for one more connection, if there is any. One too many ends the oldest by which no client
    /// speaks: whoever only looks, or says nothing at all, keeps no client out.
    pub(crate) fn seat(self: &Arc<Self>) -> Option<ConnectionPermit> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let seat = ConnectionPermit {
            shared: Arc::clone(self),
            ended: Arc::default(),
            files: self.files.count(Limits::FILES_PER_CONNECTION),
        };
        let has_room = self.has_room();
        if has_room {
            self.guests().push_back(Arc::clone(&seat.ended));
        }
        has_room.then_some(seat)
    }

    /// Counts the descriptor of a process that this node has already.
    pub(crate) fn count_file(&self) -> Counted {
        self.files.count(1)
    }

    /// Whether there is room for what was counted last, or the oldest connection by which no client speaks
    /// ends for it.
    pub(crate) fn has_room(&self) -> bool {
        let fits = |ending: usize| {
            let files_ending = ending * Limits::FILES_PER_CONNECTION;
            self.connections() <= self.connections_max.saturating_add(ending)
                && self.files.open() <= self.files_max.saturating_add(files_ending)
        };
        let end_oldest = || {
            let oldest = self.guests().pop_front();
            oldest.is_some_and(|oldest| {
                oldest.notify_one();
                true
            })
        };
        fits(0) || fits(ENDING_MAX) && end_oldest()
    }

    fn guests(&self) -> MutexGuard<'_, VecDeque<Arc<Notify>>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
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
            self.scheduler.look_at(client, now);
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

impl ConnectionPermit {
    /// The file of the process at the other end. A client keeps it beyond its connection.
    pub(crate) fn process_file(&mut self) -> Counted {
        self.files.split_one()
    }

    /// A client speaks by the connection: it does not end for others any more.
    pub(crate) fn is_of_client(&self) {
        let mut guests = self.shared.guests();
        guests.retain(|guest| !Arc::ptr_eq(guest, &self.ended));
    }

    /// Waits until the connection has to end for another.
    pub(crate) async fn ended(&self) {
        self.ended.notified().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.is_of_client();
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
