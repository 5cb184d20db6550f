//! The service manager that has started this process, if one has: systemd, or what speaks its protocol.
//!
//! It opens sockets before the node starts, and is told when it is ready, alive and about to stop. It keeps
//! descriptors while there is no node: those of the watched processes, and the [`Journal`] of who they are.
//! So a node that is killed or replaced goes on where the one before left off.
//!
//! [`Journal`]: crate::journal::Journal

mod activation;
mod notify;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

pub(crate) use self::activation::Given;
use self::notify::{News, Telling};
use crate::process::Process;

/// How many news may wait to be told. There are a few for each client that comes or goes.
const NEWS_MAX: usize = 16_384;

/// The service manager.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    news: mpsc::Sender<News>,
    /// How many processes it was ever given to keep.
    places: AtomicU64,
    /// How often it wants to hear that the node is alive.
    pub(crate) alive_every: Option<Duration>,
}

impl ServiceManager {
    /// The one that the environment names, and the work of telling it.
    pub(crate) fn here() -> Option<(Self, impl Future<Output = ()> + Send + use<>)> {
        let telling = Telling::here()?;
        let (news, to_tell) = mpsc::channel(NEWS_MAX);
        let manager = Self {
            news,
            places: AtomicU64::new(0),
            alive_every: notify::alive_every(),
        };
        Some((manager, telling.run(to_tell)))
    }

    /// Says something: one line per fact.
    pub(crate) fn tell(&self, facts: &str) {
        self.send(News::Facts(facts.to_owned()));
    }

    /// Has everything told that was to be, or gives up on it.
    pub(crate) async fn flush(&self) {
        let (told, is_told) = tokio::sync::oneshot::channel();
        self.send(News::Flush(told));
        let _ = tokio::time::timeout(Duration::from_secs(1), is_told).await;
    }

    /// Gives it a process to keep. Answers where it finds it again.
    pub(crate) fn keep_process(&self, process: &Arc<Process>) -> u64 {
        let place = self.places.fetch_add(1, Ordering::Relaxed);
        self.send(News::Process(place, Arc::clone(process)));
        place
    }

    /// A process that was kept before.
    pub(crate) fn keeps_process(&self, place: u64) {
        self.places.fetch_max(place + 1, Ordering::Relaxed);
    }

    /// Has it forget a process.
    pub(crate) fn forget_process(&self, place: u64) {
        self.forget(&activation::process_name(place));
    }

    /// Gives it a journal to keep, and has it forget the one before.
    pub(crate) fn keep_journal(
        &self,
        generation: u64,
        file: std::os::fd::OwnedFd,
        before: Option<u64>,
    ) {
        self.send(News::Journal(activation::journal_name(generation), file));
        if let Some(before) = before {
            self.forget(&activation::journal_name(before));
        }
    }

    pub(crate) fn forget(&self, name: &str) {
        self.send(News::Facts(format!("FDSTOREREMOVE=1\nFDNAME={name}")));
    }

    fn send(&self, news: News) {
        if self.news.try_send(news).is_err() {
            tracing::warn!("the service manager does not listen, it is not told everything");
        }
    }
}
