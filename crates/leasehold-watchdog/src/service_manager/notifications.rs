//! The notify socket of the service manager.

use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr,
};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{mpsc, oneshot};

/// A notification to the service manager.
pub(super) enum Notification {
    /// Assignments, one per line, and a descriptor that they are about.
    Assignments(String, Option<Descriptor>),
    /// Completes when all earlier notifications were sent.
    Flush(oneshot::Sender<()>),
}

/// A process or a journal.
pub(super) type Descriptor = Arc<dyn AsFd + Send + Sync>;

/// The notify socket.
#[derive(Debug)]
pub(super) struct NotifySocket {
    socket: UnixDatagram,
    address: SocketAddrUnix,
}

impl NotifySocket {
    pub(super) fn from_environment() -> Option<Self> {
        let path = env::var("NOTIFY_SOCKET").ok()?;
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None => SocketAddrUnix::new(path.as_str()),
        };
        let socket = UnixDatagram::unbound().and_then(|socket| {
            Ok(Self {
                socket,
                address: address?,
            })
        });
        socket
            .inspect_err(|error| tracing::warn!(%error, "cannot notify the service manager"))
            .ok()
    }

    /// Sends the notifications in their order.
    pub(super) async fn run(self, mut notifications: mpsc::Receiver<Notification>) {
        while let Some(notification) = notifications.recv().await {
            match notification {
                Notification::Assignments(assignments, descriptor) => {
                    let sent = self.send(&assignments, descriptor.as_deref());
                    if let Err(error) = sent.await {
                        tracing::warn!(%error, "cannot notify the service manager");
                    }
                }
                // The receiver may have been dropped.
                Notification::Flush(sent) => drop(sent.send(())),
            }
        }
    }

    async fn send(
        &self,
        assignments: &str,
        descriptor: Option<&(dyn AsFd + Send + Sync)>,
    ) -> io::Result<()> {
        let descriptors: Vec<_> = descriptor.iter().map(AsFd::as_fd).collect();
        self.socket
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if !descriptors.is_empty() {
                    control.push(SendAncillaryMessage::ScmRights(&descriptors));
                }
                let parts = [IoSlice::new(assignments.as_bytes())];
                let flags = SendFlags::NOSIGNAL;
                sendmsg_addr(&self.socket, &self.address, &parts, &mut control, flags)?;
                Ok(())
            })
            .await
    }
}

/// The interval of the keepalive pings: half of the service manager's timeout. `None`: it expects none.
pub(super) fn keepalive_interval() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let timeout = number("WATCHDOG_USEC").filter(|_| ours)?;
    Some(Duration::from_micros(timeout) / 2).filter(|interval| !interval.is_zero())
}
