//! The notify socket of the service manager.

use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr,
};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{mpsc, oneshot};

use super::activation;
use crate::process::Process;

/// A notification to the service manager.
#[derive(Debug)]
pub(super) enum News {
    /// Assignments, one per line.
    Facts(String),
    /// A process to keep.
    Process(u64, Arc<Process>),
    /// A journal to keep, under a name.
    Journal(String, OwnedFd),
    /// Completes when all earlier notifications were sent.
    Flush(oneshot::Sender<()>),
}

/// The notify socket.
#[derive(Debug)]
pub(super) struct Telling {
    socket: UnixDatagram,
    address: SocketAddrUnix,
}

impl Telling {
    pub(super) fn here() -> Option<Self> {
        let path = env::var("NOTIFY_SOCKET").ok()?;
        let address = match path.strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None => SocketAddrUnix::new(path.as_str()),
        };
        let telling = UnixDatagram::unbound().and_then(|socket| {
            Ok(Self {
                socket,
                address: address?,
            })
        });
        telling
            .inspect_err(|error| tracing::warn!(%error, "cannot notify the service manager"))
            .ok()
    }

    /// Sends the notifications in their order.
    pub(super) async fn run(self, mut news: mpsc::Receiver<News>) {
        while let Some(news) = news.recv().await {
            let told = match news {
                News::Facts(facts) => self.tell(&facts, None).await,
                News::Process(place, process) => {
                    let facts = keep(&activation::process_name(place));
                    self.tell(&facts, Some(process.as_fd())).await
                }
                News::Journal(name, file) => self.tell(&keep(&name), Some(file.as_fd())).await,
                News::Flush(told) => {
                    // The receiver may have been dropped.
                    let _ = told.send(());
                    Ok(())
                }
            };
            if let Err(error) = told {
                tracing::warn!(%error, "cannot notify the service manager");
            }
        }
    }

    async fn tell(&self, facts: &str, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let descriptors: Vec<_> = descriptor.into_iter().collect();
        self.socket
            .async_io(Interest::WRITABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = SendAncillaryBuffer::new(&mut space);
                if !descriptors.is_empty() {
                    control.push(SendAncillaryMessage::ScmRights(&descriptors));
                }
                let parts = [IoSlice::new(facts.as_bytes())];
                let flags = SendFlags::NOSIGNAL;
                sendmsg_addr(&self.socket, &self.address, &parts, &mut control, flags)?;
                Ok(())
            })
            .await
    }
}

/// The assignments that keep a descriptor under a name, also when it becomes readable: the next node has to see
/// that a process has ended.
fn keep(name: &str) -> String {
    format!("FDSTORE=1\nFDPOLL=0\nFDNAME={name}")
}

/// The interval of the keepalive pings: half of the service manager's timeout. `None`: it expects none.
pub(super) fn alive_every() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let patience = number("WATCHDOG_USEC").filter(|_| ours)?;
    Some(Duration::from_micros(patience) / 2).filter(|pause| !pause.is_zero())
}
