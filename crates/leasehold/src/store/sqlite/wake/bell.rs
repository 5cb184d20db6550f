//! The bell of one client: where it is told what concerns it.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::{fs, thread};

use leasehold_core::ClientId;

use super::folder::Folder;
use super::letter;
use crate::store::Listener;
use crate::store::sqlite::path;

/// A socket, and the thread that waits at it. The thread owns the socket: while it is there, somebody
/// hears.
///
/// Dropping it ends the thread and does not wait for it.
#[derive(Debug)]
pub(super) struct Bell {
    line: Weak<Line>,
    place: PathBuf,
    identity: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Line {
    socket: UnixDatagram,
    over: AtomicBool,
}

impl Bell {
    /// Hangs the bell of a client. Whatever hung in its place is gone then.
    pub(super) fn hang(
        folder: &Folder,
        client: ClientId,
        listener: Weak<dyn Listener>,
    ) -> io::Result<Self> {
        folder.make()?;
        let place = folder.place(client);
        let _ = fs::remove_file(&place);
        let socket = UnixDatagram::bind(folder.address(client)?)?;
        folder.open_up(&place)?;
        let line = Arc::new(Line {
            socket,
            over: AtomicBool::new(false),
        });
        let bell = Self {
            line: Arc::downgrade(&line),
            identity: path::identity(&place),
            place: place.clone(),
        };
        let identity = bell.identity;
        thread::Builder::new()
            .name("leasehold-wake".into())
            .spawn(move || {
                line.listen(client, &listener);
                take_down(&place, identity);
            })?;
        Ok(bell)
    }

    /// Whether it hangs where others look for it, and somebody hears it.
    pub(super) fn is_heard(&self) -> bool {
        self.line.strong_count() > 0 && self.identity == path::identity(&self.place)
    }
}

impl Drop for Bell {
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
    /// Hears until the bell is dropped, or nobody wants to hear any more.
    fn listen(&self, client: ClientId, listener: &Weak<dyn Listener>) {
        let mut buffer = vec![0; letter::BYTES_MAX];
        loop {
            let read = self.socket.recv(&mut buffer);
            let Some(listener) = listener.upgrade() else {
                return;
            };
            match read {
                _ if self.over.load(Ordering::Acquire) => return,
                Ok(bytes) => {
                    for event in letter::read(&buffer[..bytes], client) {
                        listener.hear(event);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "a bell of the store cannot be heard any more");
                    return;
                }
            }
        }
    }
}

/// Removes a bell, unless another hangs there by now.
fn take_down(place: &Path, identity: Option<(u64, u64)>) {
    if path::identity(place) == identity {
        let _ = fs::remove_file(place);
    }
}
