//! A node, its start and its stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock as _};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::Error;
use crate::handover::{rewrite_journal, take_over};
use crate::http::Http;
use crate::listen::{Listener, Tls};
use crate::scheduler;
use crate::service_manager::{InheritedDescriptors, ServiceManager};
use crate::settings::{Listen, Settings};
use crate::shared::Shared;
use crate::stores;

/// How long a planned stop waits for the last renewals.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a planned stop waits for the clients to read the last message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A running node. When it is dropped, it stops immediately, without notifying its clients.
#[derive(Debug)]
pub struct Node {
    shared: Arc<Shared>,
    addresses: Vec<Listen>,
    metrics: Option<SocketAddr>,
    manager: Option<Arc<ServiceManager>>,
    listening: Vec<AbortHandle>,
    stopped: watch::Sender<bool>,
}

impl Node {
    /// Starts a node, which listens when this returns. Connecting to an unreachable store is retried in the
    /// background. Raises the soft limit of open files of this process to the hard limit.
    ///
    /// # Errors
    ///
    /// If a setting is invalid, an address cannot be listened at, or the state from the service manager cannot be
    /// used.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the node is stopped.
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        if settings.listen.is_empty() {
            return Err(Error::new("a node needs an address to listen at"));
        }
        if settings.stores.is_empty() {
            return Err(Error::new("a node needs a store to serve"));
        }
        raise_file_limit();
        let tls = settings.tls.as_ref().map(Tls::read).transpose()?;
        let mut inherited = InheritedDescriptors::default();
        let mut manager = None;
        if settings.service_manager {
            inherited = InheritedDescriptors::from_environment().map_err(|error| {
                let message = "cannot take the descriptors from the service manager";
                Error::new(message).with_source(error)
            })?;
            manager = ServiceManager::from_environment(&inherited).map_err(|error| {
                Error::new("cannot begin a journal for the next node").with_source(error)
            })?;
        }
        let (manager, notifications) = manager.unzip();
        let mut node = Self {
            shared: Shared::new(&settings, manager.clone())?,
            addresses: Vec::new(),
            metrics: None,
            manager,
            listening: Vec::new(),
            stopped: watch::Sender::new(false),
        };
        let mut listeners = Vec::new();
        for listen in &settings.listen {
            let bound = Listener::bind(listen, &settings, tls.as_ref(), &mut inherited.sockets);
            listeners.extend(bound.await?);
        }
        node.addresses = listeners.iter().map(Listener::address).collect();
        let shared = &node.shared;
        if let Some(address) = settings.metrics {
            let (address, served) = Http::bind(address, Arc::clone(shared)).await?;
            node.metrics = Some(address);
            shared.tasks.spawn(served);
        }
        if let Some(notifications) = notifications {
            shared.tasks.spawn(notifications);
        }
        node.open_stores().await;
        if let Some(manager) = &node.manager {
            take_over(shared, manager, inherited, BootClock.now());
            let rewritten = rewrite_journal(Arc::clone(shared), Arc::clone(manager));
            shared.tasks.spawn(rewritten);
        }
        shared.tasks.spawn(scheduler::run(Arc::clone(shared)));
        for listener in listeners {
            tracing::info!(address = %listener.address(), "listening");
            let listening = shared.tasks.spawn(listener.run(Arc::clone(shared)));
            node.listening.extend(listening);
        }
        if let Some(manager) = &node.manager {
            manager.notify("READY=1");
            shared.tasks.spawn(Arc::clone(manager).send_keepalives());
        }
        Ok(node)
    }

    /// The addresses at which it listens, with the ports that were bound.
    #[must_use]
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// The address of its metrics, with the port that was bound. `None`: it serves none.
    #[must_use]
    pub const fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Stops it in good order: renews the leases of silent clients once more, so that another node has time to take
    /// over, and notifies all clients. Takes a few seconds at most.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if the future is dropped, the node may be running, stopped or half stopped. Call it again,
    /// or drop the node.
    pub async fn stop(&self) {
        if let Some(manager) = &self.manager {
            manager.notify("STOPPING=1");
        }
        // New connections are for the next node.
        for listening in &self.listening {
            listening.abort();
        }
        let handed_over = scheduler::hand_over(&self.shared);
        if tokio::time::timeout(HANDOVER_TIMEOUT, handed_over)
            .await
            .is_err()
        {
            tracing::warn!("some leases were not renewed before the node stopped");
        }
        self.shared.closing.send_replace(true);
        let disconnected = async {
            while self.shared.permits.connections() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // A paused client reads nothing.
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, disconnected).await;
        if let Some(manager) = &self.manager {
            manager.flush().await;
        }
        self.shared.tasks.shut_down().await;
        self.stopped.send_replace(true);
    }

    /// Waits until the node has stopped.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn stopped(&self) {
        let mut stopped = self.stopped.subscribe();
        // Cannot fail: `self` owns the sender.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }

    async fn open_stores(&self) {
        let stores = &self.shared.stores;
        for store in stores {
            self.shared.tasks.spawn(Arc::clone(store).open());
        }
        let attempted = async {
            for store in stores {
                store.attempted().await;
            }
        };
        // The node listens in any case: its clients may start before the store does.
        let _ = tokio::time::timeout(stores::OPEN_TIMEOUT, attempted).await;
    }
}

/// Raises the soft limit of open files to the hard limit, as each client takes a few files.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.tasks.stop();
        self.stopped.send_replace(true);
    }
}
