//! The service manager that has started this process, if any: systemd, or another one with its protocol.
//!
//! It opens sockets before the node starts, and is notified when the node is ready, alive and about to stop. It
//! keeps descriptors for the next node: the pidfds of the watched processes, and the [`Journal`] of the clients.
//! So the next node resumes the work of one that was killed or replaced.
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

/// How many notifications may be queued. Each client causes a few when it connects and when it ends.
const NEWS_MAX: usize = 16_384;

/// The service manager.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    news: mpsc::Sender<News>,
    /// The number of the next process that it is to keep.
    places: AtomicU64,
    /// The interval of the keepalive pings. `None`: it expects none.
    pub(crate) alive_every: Option<Duration>,
}

impl ServiceManager {
    /// The service manager that the environment names, and the task that notifies it.
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

    /// Sends assignments such as `READY=1`, one per line.
    pub(crate) fn tell(&self, facts: &str) {
        self.send(News::Facts(facts.to_owned()));
    }

    /// Waits until all earlier notifications were sent, for one second at most.
    pub(crate) async fn flush(&self) {
        let (told, is_told) = tokio::sync::oneshot::channel();
        self.send(News::Flush(told));
        let _ = tokio::time::timeout(Duration::from_secs(1), is_told).await;
    }

    /// Has it keep the pidfd of a process. Returns the number for the name of the descriptor.
    pub(crate) fn keep_process(&self, process: &Arc<Process>) -> u64 {
        let place = self.places.fetch_add(1, Ordering::Relaxed);
        self.send(News::Process(place, Arc::clone(process)));
        place
    }

    /// Marks a number as used by a process that an earlier node had it keep.
    pub(crate) fn keeps_process(&self, place: u64) {
        self.places.fetch_max(place + 1, Ordering::Relaxed);
    }

    /// Has it drop the pidfd of a process.
    pub(crate) fn forget_process(&self, place: u64) {
        self.forget(&activation::process_name(place));
    }

    /// Has it keep a journal and drop the previous one.
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
            tracing::warn!("the service manager does not read its notifications, dropping one");
        }
    }
}
