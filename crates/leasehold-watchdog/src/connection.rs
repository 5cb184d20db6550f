//! A connection: it decodes messages for a session, and sends the replies.
//!
//! The send buffer is bounded. While it is full, no further message is read. A peer that sends but does not
//! read for too long is disconnected; a paused peer sends nothing and keeps its connection.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold::__private::frame::{Decoder, FrameError, encode};
use leasehold::__private::wire::{Refusal, ToClient, ToNode};
use leasehold::clock::{BootClock, Clock as _};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::session::{Peer, Session, Step};
use crate::shared::{ConnectionPermit, Shared};
use crate::status::Pages;

/// The size of the read buffer, in bytes.
const READ_MAX: usize = 16 * 1024;

/// The length of the send buffer from which on no further message is read, in bytes.
const OUT_MAX: usize = 128 * 1024;

/// The time in which a peer must send its hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// How long a peer may read nothing while the send buffer is full.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// The time in which a peer must read the last message.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A stream of bytes that also carries descriptors.
pub(crate) trait Link: AsyncRead + AsyncWrite + Send + Unpin {
    /// The next descriptor that was received.
    fn take_descriptor(&mut self) -> Option<OwnedFd>;
}

/// A connection.
pub(crate) struct Connection<L> {
    link: L,
    decoder: Decoder,
    session: Session,
    out: Out,
    pages: Option<Pages>,
    /// Why it ends, once the peer has read the last message.
    ending: Option<Ending>,
    /// The deadline for the hello, for a read, or for the end.
    until: Option<Instant>,
}

/// The send buffer.
#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    sent: usize,
    flushed: bool,
    /// The peer does not read any more.
    broken: bool,
}

/// Why a connection ends.
enum Ending {
    /// The peer has closed it.
    Closed,
    /// It broke.
    Broken(io::Error),
    /// The peer sent an invalid frame.
    Nonsense(FrameError),
    /// The node refused a message.
    Refused(Refusal),
    /// The client has a newer connection.
    Replaced,
    /// It has no client, and another connection needs its permit.
    Displaced,
    /// The client has sent a disconnect.
    Disconnect,
    /// The node is about to stop.
    Closing,
}

impl<L: Link> Connection<L> {
    pub(crate) fn new(shared: &Arc<Shared>, peer: Peer, link: L) -> Self {
        Self {
            link,
            decoder: Decoder::default(),
            session: Session::new(shared, peer),
            out: Out::default(),
            pages: None,
            ending: None,
            until: Some(Instant::now() + HELLO_WITHIN),
        }
    }

    /// Handles messages until the connection ends.
    pub(crate) async fn run(mut self, shared: Arc<Shared>, seat: ConnectionPermit) {
        let mut closing = shared.closing.subscribe();
        let nobody = Arc::new(Notify::new());
        let mut is_guest = true;
        while !self.is_over() {
            if is_guest && self.session.client().is_some() {
                seat.is_of_client();
                is_guest = false;
            }
            let replaced = self.session.replaced();
            let replaced = replaced.as_ref().unwrap_or(&nobody);
            let until = self.until;
            let late = async move {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                read = poll_fn(|context| self.poll_exchange(context)) => match read {
                    Ok(Exchanged::Closed) => {
                        self.end(Ending::Closed);
                        break;
                    }
                    Ok(Exchanged::Some) => self.hear(),
                    Err(error) => {
                        self.end(Ending::Broken(error));
                        break;
                    }
                },
                () = seat.ended(), if is_guest && self.ending.is_none() => self.end(Ending::Displaced),
                () = replaced.notified(), if self.ending.is_none() => self.end(Ending::Replaced),
                _ = closing.wait_for(|closing| *closing), if self.ending.is_none() => {
                    self.say(&ToClient::Closing);
                    self.end(Ending::Closing);
                }
                () = late => match self.ending {
                    Some(_) => break,
                    None if self.session.is_introduced() => self.refuse(Refusal::Slow),
                    None => self.refuse(Refusal::Word),
                },
            }
        }
        self.tell();
    }

    /// Whether the connection can be dropped.
    fn is_over(&self) -> bool {
        match &self.ending {
            // The peer closes it after the last message, or the deadline passes.
            Some(Ending::Refused(_) | Ending::Nonsense(_) | Ending::Closing) => false,
            Some(_) => true,
            None => false,
        }
    }

    /// Sends what the peer takes, and reads if there is room for the replies.
    fn poll_exchange(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Exchanged>> {
        let sent = self
            .out
            .poll_send(&mut self.link, context, self.ending.is_some());
        let mut exchanged = sent;
        let wanted = self.ending.is_some() || self.out.len() < OUT_MAX && self.pages.is_none();
        if wanted {
            let mut buffer = [0; READ_MAX];
            let mut buffer = ReadBuf::new(&mut buffer);
            match Pin::new(&mut self.link).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    return Poll::Ready(Ok(Exchanged::Closed));
                }
                Poll::Ready(Ok(())) => {
                    // After the last message, input is read and ignored: closing a socket with unread input
                    // would discard that message.
                    if self.ending.is_none() {
                        self.decoder.push(buffer.filled());
                    }
                    exchanged = true;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {}
            }
        }
        if sent && self.ending.is_none() && self.session.is_introduced() {
            self.until = None;
        }
        match exchanged {
            true => Poll::Ready(Ok(Exchanged::Some)),
            false => Poll::Pending,
        }
    }

    /// Handles the messages that were read, as long as there is room for the replies.
    fn hear(&mut self) {
        while self.ending.is_none() && self.out.len() < OUT_MAX {
            if let Some(pages) = &mut self.pages {
                // The next page follows when the one before was sent.
                if self.out.len() > 0 {
                    break;
                }
                match pages.next() {
                    Some(page) => self.say(&page),
                    None => self.pages = None,
                }
                continue;
            }
            match self.decoder.word::<ToNode>() {
                Ok(Some(word)) => self.take_in(word),
                Ok(None) => break,
                Err(error) => {
                    self.say(&ToClient::Refused(Refusal::Word));
                    self.end(Ending::Nonsense(error));
                }
            }
        }
        let owed = self.out.len() >= OUT_MAX || self.pages.is_some();
        if owed && self.until.is_none() {
            self.until = Some(Instant::now() + READ_WITHIN);
        }
    }

    fn take_in(&mut self, word: ToNode) {
        let link = &mut self.link;
        let descriptor = || link.take_descriptor();
        match self.session.hear(word, descriptor, BootClock.now()) {
            Step::Silence => {}
            Step::Say(word) => self.say(&word),
            Step::Show(pages) => self.pages = Some(pages),
            Step::Refuse(refusal) => self.refuse(refusal),
            Step::End => self.end(Ending::Disconnect),
        }
        if self.ending.is_none() && self.session.is_introduced() {
            self.until = None;
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.say(&ToClient::Refused(refusal));
        self.end(Ending::Refused(refusal));
    }

    fn end(&mut self, ending: Ending) {
        self.ending = Some(ending);
        self.until = Some(Instant::now() + END_WITHIN);
    }

    fn say(&mut self, word: &ToClient) {
        match encode(word) {
            Ok(frame) => self.out.push(&frame),
            // Cannot happen: long replies are cut into pages.
            Err(error) => tracing::error!(%error, "a reply does not fit into a frame"),
        }
    }

    /// Logs why it has ended.
    fn tell(&self) {
        let Some(ending) = &self.ending else {
            return;
        };
        let peer = self.session.peer();
        let client = self.session.client().map(|client| client.to_string());
        let client = client.as_deref();
        match ending {
            Ending::Refused(_) | Ending::Nonsense(_) => {
                metrics::counter!("leasehold_watchdog_refused_total").increment(1);
                tracing::warn!(peer, client, why = %ending, "refused a connection");
            }
            ending => tracing::debug!(peer, client, why = %ending, "a connection has ended"),
        }
    }
}

/// The result of sending and reading.
enum Exchanged {
    /// Something was sent or read.
    Some,
    /// The peer has closed its side.
    Closed,
}

impl Out {
    fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.broken {
            return;
        }
        self.bytes.drain(..self.sent);
        self.sent = 0;
        self.bytes.extend_from_slice(bytes);
        self.flushed = false;
    }

    /// Sends what the peer takes. Returns whether that was anything.
    ///
    /// After an error of sending, reading goes on: a process that was killed may have registered a lease
    /// just before.
    fn poll_send(
        &mut self,
        link: &mut (impl Link + ?Sized),
        context: &mut Context<'_>,
        last: bool,
    ) -> bool {
        let mut progress = false;
        while self.len() > 0 && !self.broken {
            match Pin::new(&mut *link).poll_write(context, &self.bytes[self.sent..]) {
                Poll::Ready(Ok(sent)) if sent > 0 => {
                    self.sent += sent;
                    progress = true;
                }
                Poll::Ready(_) => self.end(),
                Poll::Pending => return progress,
            }
        }
        self.bytes = Vec::new();
        self.sent = 0;
        if !self.flushed && !self.broken {
            match Pin::new(&mut *link).poll_flush(context) {
                Poll::Ready(Ok(())) => self.flushed = true,
                Poll::Ready(Err(_)) => self.end(),
                Poll::Pending => return progress,
            }
        }
        if last && !self.broken && Pin::new(&mut *link).poll_shutdown(context).is_ready() {
            // Now the peer reads the rest and closes.
            self.end();
        }
        progress
    }

    fn end(&mut self) {
        self.broken = true;
        self.bytes = Vec::new();
        self.sent = 0;
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer has closed it"),
            Self::Broken(error) => error.fmt(f),
            Self::Nonsense(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Replaced => f.write_str("the client has a newer connection"),
            Self::Displaced => f.write_str("another connection needs its permit"),
            Self::Disconnect => f.write_str("the client has disconnected"),
            Self::Closing => f.write_str("the node is about to stop"),
        }
    }
}
