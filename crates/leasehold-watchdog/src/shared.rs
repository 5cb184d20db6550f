//! The state that the parts of a node share.

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

/// The shared state of a node.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) clients: Clients,
    pub(crate) stores: Vec<Arc<Served>>,
    /// The permissions of local users and groups.
    pub(crate) allow: Vec<Permission>,
    pub(crate) scheduler: Scheduler,
    pub(crate) tasks: Tasks,
    /// Whether it is about to stop.
    pub(crate) closing: watch::Sender<bool>,
    connections: AtomicUsize,
    connections_max: usize,
    /// The open files of connections and watched processes.
    files: Arc<Files>,
    files_max: usize,
    /// Connections without a client, the oldest first. Each is notified when it has to end.
    guests: Mutex<VecDeque<Arc<Notify>>>,
}

/// The permit of a connection.
pub(crate) struct ConnectionPermit {
    shared: Arc<Shared>,
    ended: Arc<Notify>,
    files: Counted,
}

/// By how many the connections may exceed their limit while displaced ones are still ending.
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

    /// A permit for one more connection, if there is room. One too many ends the oldest connection without a client:
    /// observers and silent peers keep no client out.
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

    /// Counts the pidfd of a process that is open already.
    pub(crate) fn count_file(&self) -> Counted {
        self.files.count(1)
    }

    /// Whether what was counted last is within the limits, after ending the oldest connection without a client if
    /// necessary.
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

    /// The store with a name or URL.
    pub(crate) fn store(&self, called: &str) -> Option<&Arc<Served>> {
        self.stores.iter().find(|store| store.is_called(called))
    }

    /// Forgets a client if nothing is left to do for it, or else schedules it.
    pub(crate) fn look_again(&self, client: &Arc<Client>, now: Instant) {
        if !self.clients.forget_if_over(client, now) {
            self.scheduler.look_at(client, now);
        }
    }

    /// Watches a process of a client until it ends.
    pub(crate) fn watch(self: &Arc<Self>, client: &Arc<Client>, process: &Arc<Process>) {
        let shared = Arc::clone(self);
        let (identity, process) = (process.identity(), Arc::clone(process));
        // Weak: the task must not keep a forgotten client alive, whose drop aborts the task.
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

    /// After a client has connected or disconnected: reports the end of each client of its process whose program was
    /// replaced by exec.
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
    /// The count of the peer's pidfd, which a client keeps beyond its connection.
    pub(crate) fn process_file(&mut self) -> Counted {
        self.files.split_one()
    }

    /// Marks the connection as that of a client, which is not ended for others.
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
