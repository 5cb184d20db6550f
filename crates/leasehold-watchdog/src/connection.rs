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
use tokio::io::{AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::permits::ConnectionPermit;
use crate::session::{Peer, Session, Step};
use crate::shared::Shared;
use crate::status::Pages;

/// The size of the read buffer, in bytes.
const READ_MAX: usize = 16 * 1024;

/// The length of the send buffer from which on no further message is read, in bytes.
const SEND_BUFFER_MAX: usize = 128 * 1024;

/// The time in which a peer must send its hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a peer may read nothing while the send buffer is full.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The time in which a peer must read the last message.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A stream of bytes that also carries descriptors.
pub(crate) trait Transport {
    type Writer: AsyncWrite + Unpin;

    fn writer(&mut self) -> &mut Self::Writer;

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>;

    /// The next descriptor that was received.
    fn take_descriptor(&mut self) -> Option<OwnedFd>;
}

/// A connection.
pub(crate) struct Connection<T> {
    transport: T,
    decoder: Decoder,
    session: Session,
    send_buffer: SendBuffer,
    pages: Option<Pages>,
    /// Why it ends, once the peer has read the last message.
    close_reason: Option<CloseReason>,
    /// The deadline for the hello, for a read, or for the end.
    deadline: Option<Instant>,
}

/// The send buffer.
#[derive(Default)]
struct SendBuffer {
    bytes: Vec<u8>,
    flushed: bool,
    /// The peer no longer reads.
    broken: bool,
}

/// Why a connection ends.
enum CloseReason {
    /// The peer has closed it.
    Closed,
    /// It broke.
    Broken(io::Error),
    /// The peer sent an invalid frame.
    InvalidFrame(FrameError),
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

impl<T: Transport> Connection<T> {
    pub(crate) fn new(shared: &Arc<Shared>, peer: Peer, transport: T) -> Self {
        Self {
            transport,
            decoder: Decoder::default(),
            session: Session::new(shared, peer),
            send_buffer: SendBuffer::default(),
            pages: None,
            close_reason: None,
            deadline: Some(Instant::now() + HELLO_TIMEOUT),
        }
    }

    /// Handles messages until the connection ends.
    pub(crate) async fn run(mut self, shared: Arc<Shared>, permit: ConnectionPermit) {
        let mut closing = shared.closing.subscribe();
        let never_replaced = Arc::new(Notify::new());
        let mut has_client = false;
        while !self.has_ended() {
            if !has_client && self.session.client().is_some() {
                permit.set_has_client();
                has_client = true;
            }
            let replaced = self.session.replaced();
            let replaced = replaced.as_ref().unwrap_or(&never_replaced);
            let deadline = self.deadline;
            let timed_out = async move {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            let is_open = self.close_reason.is_none();
            tokio::select! {
                exchanged = poll_fn(|context| self.poll_exchange(context)) => match exchanged {
                    Ok(()) => self.handle_input(),
                    Err(reason) if is_open => self.end(reason),
                    // After the last message.
                    Err(_) => break,
                },
                () = permit.displaced(), if is_open && !has_client => self.end(CloseReason::Displaced),
                () = replaced.notified(), if is_open => self.end(CloseReason::Replaced),
                _ = closing.wait_for(|closing| *closing), if is_open => {
                    self.send(&ToClient::Closing);
                    self.end(CloseReason::Closing);
                }
                () = timed_out => match self.session.has_hello() {
                    _ if !is_open => break,
                    true => self.refuse(Refusal::SlowReader),
                    false => self.refuse(Refusal::Message),
                },
            }
        }
        self.log_end();
    }

    /// Whether the connection can be dropped. After a last message, the peer closes it, or the deadline passes.
    fn has_ended(&self) -> bool {
        use CloseReason::{Closing, InvalidFrame, Refused};
        let reason = self.close_reason.as_ref();
        reason.is_some_and(|it| !matches!(it, Closing | InvalidFrame(_) | Refused(_)))
    }

    /// Sends what the peer takes, and reads if there is room for the replies. Ready after any progress.
    fn poll_exchange(&mut self, context: &mut Context<'_>) -> Poll<Result<(), CloseReason>> {
        let is_last = self.close_reason.is_some();
        let writer = self.transport.writer();
        let sent = self.send_buffer.poll_send(writer, context, is_last);
        let mut exchanged = sent;
        if is_last || !self.is_full() {
            let mut buffer = [0; READ_MAX];
            let mut buffer = ReadBuf::new(&mut buffer);
            match self.transport.poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    return Poll::Ready(Err(CloseReason::Closed));
                }
                Poll::Ready(Ok(())) => {
                    // After the last message, input is read and ignored: closing a socket with unread input
                    // would discard that message.
                    if self.close_reason.is_none() {
                        self.decoder.push(buffer.filled());
                    }
                    exchanged = true;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(CloseReason::Broken(error))),
                Poll::Pending => {}
            }
        }
        if sent && self.close_reason.is_none() && self.session.has_hello() {
            self.deadline = None;
        }
        match exchanged {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    }

    /// Handles the messages that were read, as long as there is room for the replies.
    fn handle_input(&mut self) {
        while self.close_reason.is_none() && self.send_buffer.bytes.len() < SEND_BUFFER_MAX {
            if let Some(pages) = &mut self.pages {
                // The next page follows when the one before was sent.
                if !self.send_buffer.bytes.is_empty() {
                    break;
                }
                match pages.next() {
                    Some(page) => self.send(&page),
                    None => self.pages = None,
                }
                continue;
            }
            match self.decoder.message::<ToNode>() {
                Ok(Some(message)) => self.handle_message(message),
                Ok(None) => break,
                Err(error) => {
                    self.send(&ToClient::Refused(Refusal::Message));
                    self.end(CloseReason::InvalidFrame(error));
                }
            }
        }
        if self.is_full() && self.deadline.is_none() {
            self.deadline = Some(Instant::now() + READ_TIMEOUT);
        }
    }

    /// Whether no further message is read until the peer has read.
    fn is_full(&self) -> bool {
        self.send_buffer.bytes.len() >= SEND_BUFFER_MAX || self.pages.is_some()
    }

    fn handle_message(&mut self, message: ToNode) {
        let transport = &mut self.transport;
        let descriptor = || transport.take_descriptor();
        match self
            .session
            .handle_message(message, descriptor, BootClock.now())
        {
            Step::NoReply => {}
            Step::Reply(message) => self.send(&message),
            Step::ReplyPages(pages) => self.pages = Some(pages),
            Step::Refuse(refusal) => self.refuse(refusal),
            Step::End => self.end(CloseReason::Disconnect),
        }
        if self.close_reason.is_none() && self.session.has_hello() {
            self.deadline = None;
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        if refusal == Refusal::Store {
            let stores = self.session.stores();
            self.send(&ToClient::Stores(stores));
        }
        self.send(&ToClient::Refused(refusal));
        self.end(CloseReason::Refused(refusal));
    }

    fn end(&mut self, close_reason: CloseReason) {
        self.close_reason = Some(close_reason);
        self.deadline = Some(Instant::now() + CLOSE_TIMEOUT);
    }

    fn send(&mut self, message: &ToClient) {
        match encode(message) {
            Ok(frame) => self.send_buffer.push(&frame),
            // Cannot happen: long replies are cut into pages.
            Err(error) => tracing::error!(%error, "a reply does not fit into a frame"),
        }
    }

    /// Logs why it has ended.
    fn log_end(&self) {
        let Some(close_reason) = &self.close_reason else {
            return;
        };
        let peer = self.session.peer();
        let client = self.session.client().map(|client| client.to_string());
        let client = client.as_deref();
        match close_reason {
            CloseReason::Refused(_) | CloseReason::InvalidFrame(_) => {
                metrics::counter!("leasehold_watchdog_refused_total").increment(1);
                tracing::warn!(peer, client, reason = %close_reason, "refused a connection");
            }
            close_reason => {
                tracing::debug!(peer, client, reason = %close_reason, "a connection has ended");
            }
        }
    }
}

impl SendBuffer {
    fn push(&mut self, bytes: &[u8]) {
        if !self.broken {
            self.bytes.extend_from_slice(bytes);
            self.flushed = false;
        }
    }

    /// Sends what the peer takes. Returns whether that was anything.
    ///
    /// After an error of sending, reading goes on: a process that was killed may have registered a lease
    /// just before.
    fn poll_send(
        &mut self,
        writer: &mut (impl AsyncWrite + Unpin),
        context: &mut Context<'_>,
        last: bool,
    ) -> bool {
        let mut progress = false;
        while !self.bytes.is_empty() {
            match Pin::new(&mut *writer).poll_write(context, &self.bytes) {
                Poll::Ready(Ok(sent)) if sent > 0 => {
                    self.bytes.drain(..sent);
                    progress = true;
                }
                Poll::Ready(_) => self.end(),
                Poll::Pending => return progress,
            }
        }
        // Also releases its memory.
        self.bytes = Vec::new();
        if !self.flushed && !self.broken {
            match Pin::new(&mut *writer).poll_flush(context) {
                Poll::Ready(Ok(())) => self.flushed = true,
                Poll::Ready(Err(_)) => self.end(),
                Poll::Pending => return progress,
            }
        }
        if last && !self.broken && Pin::new(&mut *writer).poll_shutdown(context).is_ready() {
            // Now the peer reads the rest and closes.
            self.end();
        }
        progress
    }

    fn end(&mut self) {
        self.broken = true;
        self.bytes = Vec::new();
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer has closed it"),
            Self::Broken(error) => error.fmt(f),
            Self::InvalidFrame(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Replaced => f.write_str("the client has a newer connection"),
            Self::Displaced => f.write_str("another connection needs its permit"),
            Self::Disconnect => f.write_str("the client has disconnected"),
            Self::Closing => f.write_str("the node is about to stop"),
        }
    }
}
