//! The state that the parts of a node share.

use std::sync::Arc;

use leasehold::clock::{BootClock, Clock as _};
use leasehold_core::Instant;
use tokio::sync::watch;

use crate::Error;
use crate::access::Permission;
use crate::client::{Origin, WatchedClient};
use crate::clients::Clients;
use crate::permits::Permits;
use crate::process::Process;
use crate::schedule::ClientSchedule;
use crate::service_manager::ServiceManager;
use crate::settings::Settings;
use crate::stores::ServedStore;
use crate::tasks::Tasks;

/// The shared state of a node.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: String,
    pub(crate) clients: Clients,
    pub(crate) stores: Vec<Arc<ServedStore>>,
    /// The permissions of local users and groups.
    pub(crate) allow: Vec<Permission>,
    pub(crate) schedule: ClientSchedule,
    pub(crate) permits: Arc<Permits>,
    pub(crate) tasks: Tasks,
    /// Whether it is about to stop.
    pub(crate) closing: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn new(
        settings: &Settings,
        manager: Option<Arc<ServiceManager>>,
    ) -> Result<Arc<Self>, Error> {
        let stores = settings.stores.iter().enumerate();
        let stores = stores.map(|(index, store)| ServedStore::new(index, store).map(Arc::new));
        let tokens = settings.tokens.clone();
        Ok(Arc::new(Self {
            name: settings.name.clone(),
            clients: Clients::new(settings.limits, settings.max_pause, tokens, manager),
            stores: stores.collect::<Result<_, Error>>()?,
            allow: settings.allow.clone(),
            schedule: ClientSchedule::default(),
            permits: Permits::new(&settings.limits),
            tasks: Tasks::default(),
            closing: watch::Sender::new(false),
        }))
    }

    /// The store with a name or URL.
    pub(crate) fn store(&self, name_or_url: &str) -> Option<&Arc<ServedStore>> {
        let mut stores = self.stores.iter();
        stores.find(|store| store.matches(name_or_url))
    }

    /// Forgets a client if nothing is left to do for it, or else schedules it.
    pub(crate) fn reschedule(&self, client: &Arc<WatchedClient>, now: Instant) {
        if !self.clients.forget_if_finished(client, now) {
            self.schedule.insert(client, now);
        }
    }

    /// Watches a process of a client until it ends.
    pub(crate) fn watch_process(
        self: &Arc<Self>,
        client: &Arc<WatchedClient>,
        process: &Arc<Process>,
    ) {
        let shared = Arc::clone(self);
        let (identity, process) = (process.identity(), Arc::clone(process));
        // Weak: the task must not keep a forgotten client alive, whose drop aborts the task.
        let watched = Arc::downgrade(client);
        let watch = self.tasks.spawn(async move {
            process.ended().await;
            if let Some(client) = watched.upgrade() {
                if client.process_ended(identity) {
                    client.last_messages().await;
                }
                let now = BootClock.now();
                client.check_death(now);
                shared.reschedule(&client, now);
            }
        });
        if let Some(watch) = watch {
            client.lock().processes.set_watch_task(identity, watch);
        }
    }

    /// After a client has connected or disconnected: reports the end of each client of its process whose program was
    /// replaced by exec.
    pub(crate) fn handle_exec(&self, client: &Arc<WatchedClient>, now: Instant) {
        let Origin::Local(identity) = client.origin else {
            return;
        };
        let others = self.clients.of_same_process(client);
        let is_replaced = |other: &&Arc<WatchedClient>| other.is_replaced_by(&client.program());
        let mut ended: Vec<_> = others.iter().filter(is_replaced).collect();
        let mut others = others.iter();
        if others.any(|other| client.is_replaced_by(&other.program())) {
            ended.push(client);
        }
        for client in ended {
            client.process_ended(identity);
            client.check_death(now);
            self.reschedule(client, now);
        }
    }
}
