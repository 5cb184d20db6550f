//! The session in which the clients of this process are notified of what others do. One that ends is followed by another.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::ClientId;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::backend::ListenChange;
use super::hub::Hub;
use super::lock::lock;
use super::tasks;
use crate::{Error, ErrorKind, Result};

/// How long the registration of a client may take, or a message of a session to itself.
pub(super) const PROBE: Duration = Duration::from_secs(2);

/// The times between attempts to begin a session.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// A session that ends sooner counts as a failed attempt.
const USABLE_MIN: Duration = Duration::from_secs(1);

/// How long an attempt may take, beside the registration of its clients: far longer than a working server needs.
const BEGIN_MAX: Duration = Duration::from_secs(30);

/// How a store notifies the clients of a process.
pub(super) trait Notifier: fmt::Debug + Send + Sync + 'static {
    type Session: Send;

    /// The store, for the log.
    fn store(&self) -> impl fmt::Display;

    /// Begins a session, in which the wanted clients are registered.
    fn begin(&self, clients: &Clients) -> impl Future<Output = Result<Self::Session>> + Send;

    /// Passes messages on, and registers clients, until the session ends.
    fn serve(&self, session: Self::Session, clients: &Clients) -> impl Future<Output = ()> + Send;

    /// Ends the last session, if there is one. No other one follows.
    fn end(&self) {}
}

/// The clients of this process.
#[derive(Debug)]
pub(super) struct Clients {
    /// Those that are to be notified.
    wanted: watch::Sender<BTreeSet<ClientId>>,
    /// Those that are, or `None` if there is no session.
    registered: watch::Sender<Option<BTreeSet<ClientId>>>,
}

impl Clients {
    pub(super) fn wanted(&self) -> BTreeSet<ClientId> {
        self.wanted.borrow().clone()
    }

    /// Receives the wanted clients, and again after each change of them.
    pub(super) fn changes(&self) -> watch::Receiver<BTreeSet<ClientId>> {
        let mut wanted = self.wanted.subscribe();
        wanted.mark_changed();
        wanted
    }

    /// Shows that these are registered.
    pub(super) fn set_registered(&self, clients: BTreeSet<ClientId>) {
        self.registered.send_replace(Some(clients));
    }
}

/// The sessions of this process, one at a time.
#[derive(Debug)]
pub(super) struct Sessions<N: Notifier> {
    shared: Arc<Shared<N>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared<N> {
    notifier: N,
    clients: Clients,
    hub: Arc<Hub>,
}

impl<N: Notifier> Sessions<N> {
    /// Begins the first session. An error is not final.
    pub(super) async fn start(notifier: N, hub: Arc<Hub>, wanted: BTreeSet<ClientId>) -> Self {
        let shared = Arc::new(Shared {
            notifier,
            clients: Clients {
                wanted: watch::Sender::new(wanted),
                registered: watch::Sender::new(None),
            },
            hub,
        });
        let sessions = Self {
            shared: Arc::clone(&shared),
            task: Mutex::default(),
        };
        let session = shared.begin().await;
        if let Err(error) = &session {
            tracing::warn!(%error, store = %shared.notifier.store(), "waiters poll, because they cannot be notified");
        }
        *lock(&sessions.task) = Some(tasks::spawn(shared.run(session.ok())));
        sessions
    }

    /// Begins anew if the runtime of its task has ended.
    fn restart(&self) {
        let mut task = lock(&self.task);
        if task.as_ref().is_some_and(JoinHandle::is_finished) {
            *task = Some(tasks::spawn(Arc::clone(&self.shared).run(None)));
        }
    }

    /// A client of this process began or ended to listen.
    pub(super) fn listen(&self, change: ListenChange) {
        let wanted = &self.shared.clients.wanted;
        wanted.send_if_modified(|wanted| match change {
            ListenChange::Began(client) => wanted.insert(client),
            ListenChange::Ended(client) => wanted.remove(&client),
        });
    }

    /// Whether there is a session.
    pub(super) fn has_begun(&self) -> bool {
        self.shared.clients.registered.borrow().is_some()
    }

    /// Waits until all clients are registered, if there is a session. Returns whether they are.
    pub(super) async fn until_registered(&self) -> bool {
        self.restart();
        let Clients { wanted, registered } = &self.shared.clients;
        let is_registered = |registered: &Option<BTreeSet<ClientId>>| match registered {
            Some(registered) => registered.is_superset(&wanted.borrow()),
            None => true,
        };
        let mut registered = registered.subscribe();
        let found = timeout(PROBE, registered.wait_for(is_registered)).await;
        found.is_ok_and(|found| found.is_ok_and(|found| found.is_some()))
    }
}

impl<N: Notifier> Drop for Sessions<N> {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
        self.shared.notifier.end();
    }
}

/// Shows that there is no session, however its task ends.
struct Guard<'a>(&'a Clients);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.registered.send_replace(None);
    }
}

impl<N: Notifier> Shared<N> {
    /// Begins a session, within a limit that grows with the number of clients.
    async fn begin(&self) -> Result<N::Session> {
        let clients = u32::try_from(self.clients.wanted().len()).unwrap_or(u32::MAX);
        let limit = BEGIN_MAX.saturating_add(PROBE.saturating_mul(clients));
        let begun = timeout(limit, self.notifier.begin(&self.clients)).await;
        begun.unwrap_or_else(|_| {
            let message = format!("no reply within {limit:?}");
            Err(Error::new(ErrorKind::Unreachable, message))
        })
    }

    /// Begins and serves sessions until this task is aborted.
    async fn run(self: Arc<Self>, mut session: Option<N::Session>) {
        let _guard = Guard(&self.clients);
        let mut wait = BACKOFF.0;
        loop {
            if let Some(begun) = session.take() {
                let since = Instant::now();
                self.notifier.serve(begun, &self.clients).await;
                if since.elapsed() >= USABLE_MIN {
                    wait = BACKOFF.0;
                }
                self.clients.registered.send_replace(None);
                self.hub.interrupted();
            }
            tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64())).await;
            wait = (wait * 2).min(BACKOFF.1);
            match self.begin().await {
                Ok(begun) => {
                    session = Some(begun);
                    self.hub.interrupted();
                }
                Err(error) => tracing::debug!(%error, "no notifications"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A notifier whose sessions end immediately. Counts them.
    #[derive(Debug, Default)]
    struct EndingNotifier(AtomicU32);

    impl Notifier for EndingNotifier {
        type Session = ();

        fn store(&self) -> impl fmt::Display {
            "a store of a test"
        }

        async fn begin(&self, _clients: &Clients) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        async fn serve(&self, (): (), _clients: &Clients) {}
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_end_soon_follow_each_other_slowly() {
        let sessions =
            Sessions::start(EndingNotifier::default(), Arc::default(), BTreeSet::new()).await;
        let minute = timeout(Duration::from_secs(60), std::future::pending::<()>());
        assert!(minute.await.is_err());
        let begun = sessions.shared.notifier.0.load(Ordering::Relaxed);
        assert!((5..20).contains(&begun), "{begun}");
    }
}
