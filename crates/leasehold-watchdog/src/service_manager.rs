//! The service manager that has started this process, if any: systemd, or another one with its protocol.
//!
//! It opens sockets before the node starts, and is notified when the node is ready, alive and about to stop. It
//! keeps descriptors for the next node: the pidfds of the watched processes, and the [`Journal`] of the clients.
//! So the next node resumes the work of one that was killed or replaced.
//!
//! [`Journal`]: crate::journal::Journal

mod activation;
mod notifications;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

pub(crate) use self::activation::InheritedDescriptors;
use self::activation::{journal_name, process_name};
use self::notifications::{Descriptor, Notification, NotifySocket};
use crate::journal::Journal;
use crate::process::Process;

/// How many notifications may be queued. Each client causes a few when it connects and when it ends.
const NOTIFICATIONS_MAX: usize = 16_384;

/// The service manager.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    notifications: mpsc::Sender<Notification>,
    /// The number of the next process that it is to keep.
    next_process: AtomicU64,
    pub(crate) journal: Journal,
}

impl ServiceManager {
    /// The service manager that the environment names, and the task that notifies it. It keeps an empty journal of the
    /// generation after the inherited ones.
    pub(crate) fn from_environment(
        inherited: &InheritedDescriptors,
    ) -> io::Result<Option<(Arc<Self>, impl Future<Output = ()> + Send + use<>)>> {
        let Some(socket) = NotifySocket::from_environment() else {
            return Ok(None);
        };
        let last_process = inherited.processes.last_key_value();
        let last_journal = inherited.journals.last_key_value();
        let (notifications, receiver) = mpsc::channel(NOTIFICATIONS_MAX);
        let manager = Self {
            notifications,
            next_process: AtomicU64::new(last_process.map_or(0, |(last, _)| last + 1)),
            journal: Journal::new(last_journal.map_or(0, |(last, _)| last.saturating_add(1)))?,
        };
        Ok(Some((Arc::new(manager), socket.run(receiver))))
    }

    /// Sends assignments such as `READY=1`, one per line.
    pub(crate) fn notify(&self, assignments: &str) {
        self.send(Notification::Assignments(assignments.to_owned(), None));
    }

    /// Sends keepalive pings as long as it is polled, if the service manager expects any.
    pub(crate) async fn send_keepalives(self: Arc<Self>) {
        let Some(interval) = notifications::keepalive_interval() else {
            return;
        };
        loop {
            self.notify("WATCHDOG=1");
            tokio::time::sleep(interval).await;
        }
    }

    /// Waits until all earlier notifications were sent, for one second at most.
    pub(crate) async fn flush(&self) {
        let (sent, is_sent) = oneshot::channel();
        self.send(Notification::Flush(sent));
        let _ = tokio::time::timeout(Duration::from_secs(1), is_sent).await;
    }

    /// Has it keep the pidfd of a process. Returns the number in the name of the descriptor.
    pub(crate) fn keep_process(&self, process: &Arc<Process>) -> u64 {
        let number = self.next_process.fetch_add(1, Ordering::Relaxed);
        self.keep(&process_name(number), Arc::clone(process) as Descriptor);
        number
    }

    /// Has it drop the pidfd of a process.
    pub(crate) fn forget_process(&self, number: u64) {
        self.forget(&process_name(number));
    }

    /// Has it keep the journal, which now has the whole state, and drop the previous one.
    pub(crate) fn keep_journal(&self) -> io::Result<()> {
        let (generation, file) = self.journal.finish_rewrite()?;
        self.keep(&journal_name(generation), Arc::new(file));
        if let Some(before) = generation.checked_sub(1) {
            self.forget(&journal_name(before));
        }
        Ok(())
    }

    /// Has it keep a descriptor also when it becomes readable: the next node has to see that a process has ended.
    fn keep(&self, name: &str, descriptor: Descriptor) {
        let assignments = format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}");
        self.send(Notification::Assignments(assignments, Some(descriptor)));
    }

    fn forget(&self, name: &str) {
        self.notify(&format!("FDSTOREREMOVE=1\nFDNAME={name}"));
    }

    fn send(&self, notification: Notification) {
        if self.notifications.try_send(notification).is_err() {
            tracing::warn!("the service manager does not read its notifications, dropping one");
        }
    }
}
