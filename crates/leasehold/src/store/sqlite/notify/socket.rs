//! The notify socket of one client, on which other processes notify it.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{fs, thread};

use leasehold_core::ClientId;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::directory::SocketDirectory;
use crate::clock::{BootClock, Clock as _};
use crate::store::api::{Event, EventScope};
use crate::store::hub::Hub;
use crate::store::message;
use crate::store::sqlite::path;

/// The maximum length of a message. A socket of macOS refuses more than 2 KiB, and has room for 4.
pub(super) const BYTES_MAX: usize = if cfg!(target_os = "linux") {
    32 * 1024
} else {
    1024
};

/// How often the thread checks whether the socket was closed, where that does not wake it.
const CLOSED_CHECK: Option<Duration> = if cfg!(target_os = "linux") {
    None
} else {
    Some(Duration::from_secs(1))
};

/// A socket, and the thread that reads it. The thread owns the socket, so it is open as long as the thread
/// runs.
///
/// Dropping it ends the thread and does not wait for it.
#[derive(Debug)]
pub(super) struct NotifySocket {
    receiver: Weak<Receiver>,
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Receiver {
    socket: UnixDatagram,
    /// How often the client is notified that events may have been missed.
    refresh: Option<Duration>,
    closed: AtomicBool,
}

impl NotifySocket {
    /// Binds the socket of a client, and replaces what was at its path.
    pub(super) fn bind(
        directory: &SocketDirectory,
        client: ClientId,
        hub: Weak<Hub>,
        refresh: Option<Duration>,
    ) -> io::Result<Self> {
        let (socket, identity) = directory.make()?.bind(client)?;
        socket.set_read_timeout(refresh.or(CLOSED_CHECK))?;
        let (path, identity) = (directory.socket_path(client), Some(identity));
        let receiver = Arc::new(Receiver {
            socket,
            refresh,
            closed: AtomicBool::new(false),
        });
        let socket = Self {
            receiver: Arc::downgrade(&receiver),
            identity,
            path: path.clone(),
        };
        thread::Builder::new()
            .name("leasehold-wake".into())
            .spawn(move || {
                receiver.run(client, &hub);
                remove(&path, identity);
            })?;
        Ok(socket)
    }

    /// Whether it is open, and still at its path.
    pub(super) fn is_open(&self) -> bool {
        self.receiver.strong_count() > 0 && self.identity == path::identity(&self.path)
    }
}

impl Drop for NotifySocket {
    fn drop(&mut self) {
        // Here and not in the thread: the process may be about to end.
        remove(&self.path, self.identity);
        if let Some(receiver) = self.receiver.upgrade() {
            receiver.closed.store(true, Ordering::Release);
            let _ = receiver.socket.shutdown(Shutdown::Both);
        }
    }
}

impl Receiver {
    /// Passes messages on until the socket or the listener is dropped.
    ///
    /// A message to a full socket is lost, and its sender does not wait. But then at least `queue_max`
    /// messages are in the socket; so after that many without a pause the client is notified that events may
    /// have been missed.
    fn run(&self, client: ClientId, hub: &Weak<Hub>) {
        let mut buffer = vec![0; BYTES_MAX];
        let (queue_max, mut in_a_row) = (queue_max(), 0);
        let mut refreshed = BootClock.now();
        loop {
            let flags = if in_a_row == 0 {
                RecvFlags::empty()
            } else {
                RecvFlags::DONTWAIT
            };
            let read = rustix::net::recv(&self.socket, &mut buffer[..], flags);
            let listener = hub.upgrade().and_then(|hub| hub.listener(client));
            let Some(listener) = listener.flatten() else {
                return;
            };
            if let Some(refresh) = self.refresh
                && BootClock.now().since(refreshed) >= refresh
            {
                listener.notify(Event::Interrupted(EventScope::Store));
                refreshed = BootClock.now();
            }
            match read {
                _ if self.closed.load(Ordering::Acquire) => return,
                Ok((_, bytes)) => {
                    for event in message::read(&buffer[..bytes], client) {
                        listener.notify(event);
                    }
                    in_a_row += 1;
                    if in_a_row >= queue_max {
                        listener.notify(Event::Interrupted(EventScope::Store));
                        in_a_row = 1;
                    }
                }
                Err(Errno::AGAIN) => in_a_row = 0,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "a notify socket can no longer be read");
                    return;
                }
            }
        }
    }
}

/// The number of messages in a full socket: one more than the limit of Linux, elsewhere three of [`BYTES_MAX`].
fn queue_max() -> u32 {
    const LINUX: &str = "/proc/sys/net/unix/max_dgram_qlen";
    let limit = fs::read_to_string(LINUX).ok();
    let limit = limit.and_then(|limit| limit.trim().parse::<u32>().ok());
    limit.unwrap_or(2).saturating_add(1)
}

/// Removes a socket, unless it was replaced.
fn remove(path: &Path, identity: Option<(u64, u64)>) {
    if path::identity(path) == identity {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::store::api::Listener;

    #[derive(Debug)]
    struct EventLog(mpsc::Sender<Event>);

    impl Listener for EventLog {
        fn notify(&self, event: Event) {
            let _ = self.0.send(event);
        }
    }

    /// Otherwise an observer would not notice that its registration or its socket is lost.
    #[test]
    fn a_client_is_refreshed_without_messages() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("locks.db");
        fs::write(&file, "").unwrap();
        let sockets = SocketDirectory::beside(&file);
        let client = ClientId::from_random([7; 16]);
        let (sender, events) = mpsc::channel();
        let log: Arc<dyn Listener> = Arc::new(EventLog(sender));
        let refresh = Some(Duration::from_millis(20));
        let hub = Arc::<Hub>::default();
        hub.add(client, Arc::downgrade(&log));
        let _socket = NotifySocket::bind(&sockets, client, Arc::downgrade(&hub), refresh).unwrap();
        for _ in 0..3 {
            let event = events.recv_timeout(Duration::from_secs(20)).unwrap();
            assert_eq!(event, Event::Interrupted(EventScope::Store));
        }
    }
}
