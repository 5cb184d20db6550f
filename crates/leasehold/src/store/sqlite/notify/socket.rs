//! The notify_socket of one client: where it is told what concerns it.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::{fs, thread};

use leasehold_core::ClientId;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::directory::SocketDirectory;
use super::message;
use crate::store::api::{Event, EventScope, Listener};
use crate::store::sqlite::path;

/// A socket, and the thread that waits at it. The thread owns the socket: while it is there, somebody
/// hears.
///
/// Dropping it ends the thread and does not wait for it.
#[derive(Debug)]
pub(super) struct NotifySocket {
    line: Weak<Line>,
    place: PathBuf,
    identity: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Line {
    socket: UnixDatagram,
    over: AtomicBool,
}

impl NotifySocket {
    /// Hangs the notify_socket of a client. Whatever hung in its place is gone then.
    pub(super) fn hang(
        directory: &SocketDirectory,
        client: ClientId,
        listener: Weak<dyn Listener>,
    ) -> io::Result<Self> {
        let (socket, identity) = directory.make()?.bind(client)?;
        let (place, identity) = (directory.place(client), Some(identity));
        let line = Arc::new(Line {
            socket,
            over: AtomicBool::new(false),
        });
        let notify_socket = Self {
            line: Arc::downgrade(&line),
            identity,
            place: place.clone(),
        };
        thread::Builder::new()
            .name("leasehold-wake".into())
            .spawn(move || {
                line.listen(client, &listener);
                take_down(&place, identity);
            })?;
        Ok(notify_socket)
    }

    /// Whether it hangs where others look for it, and somebody hears it.
    pub(super) fn is_heard(&self) -> bool {
        self.line.strong_count() > 0 && self.identity == path::identity(&self.place)
    }
}

impl Drop for NotifySocket {
    fn drop(&mut self) {
        // Here and not in the thread: the process may be about to end.
        take_down(&self.place, self.identity);
        if let Some(line) = self.line.upgrade() {
            line.over.store(true, Ordering::Release);
            let _ = line.socket.shutdown(Shutdown::Both);
        }
    }
}

impl Line {
    /// Hears until the notify_socket is dropped, or nobody wants to hear any more.
    ///
    /// A message that finds the socket full is lost, and who sent it does not wait. But then at least
    /// `waiting_max` others wait to be read; so whoever reads that many without a pause says that
    /// there may have been more.
    fn listen(&self, client: ClientId, listener: &Weak<dyn Listener>) {
        let mut buffer = vec![0; message::BYTES_MAX];
        let (waiting_max, mut read_on) = (waiting_max(), 0);
        loop {
            let flags = if read_on == 0 {
                RecvFlags::empty()
            } else {
                RecvFlags::DONTWAIT
            };
            let read = rustix::net::recv(&self.socket, &mut buffer[..], flags);
            let Some(listener) = listener.upgrade() else {
                return;
            };
            match read {
                _ if self.over.load(Ordering::Acquire) => return,
                Ok((_, bytes)) => {
                    for event in message::read(&buffer[..bytes], client) {
                        listener.notify(event);
                    }
                    read_on += 1;
                    if read_on >= waiting_max {
                        listener.notify(Event::Interrupted(EventScope::Store));
                        read_on = 1;
                    }
                }
                Err(Errno::AGAIN) => read_on = 0,
                Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::warn!(%error, "a notify_socket of the store cannot be heard any more");
                    return;
                }
            }
        }
    }
}

/// How many messages wait at a socket when it takes no more: one more than Linux calls the most.
fn waiting_max() -> u32 {
    const LINUX: &str = "/proc/sys/net/unix/max_dgram_qlen";
    let limit = fs::read_to_string(LINUX).ok();
    let limit = limit.and_then(|limit| limit.trim().parse::<u32>().ok());
    limit.unwrap_or(10).saturating_add(1)
}

/// Removes a notify_socket, unless another hangs there by now.
fn take_down(place: &Path, identity: Option<(u64, u64)>) {
    if path::identity(place) == identity {
        let _ = fs::remove_file(place);
    }
}
