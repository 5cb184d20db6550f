//! A connection: words in, words out.
//!
//! What is to be said is bounded: as long as much of it was not read, nothing more is heard, and a peer
//! that reads nothing for too long although it talks is sent away. One that is paused only stands still.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock as _};
use leasehold::watchdog::frame::{Decoder, FrameError, encode};
use leasehold::watchdog::wire::{Refusal, ToClient, ToNode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::session::{Peer, Session, Step};
use crate::shared::{ConnectionPermit, Shared};
use crate::status::Pages;

/// How much is read at once.
const READ_MAX: usize = 16 * 1024;

/// How much may wait to be read by the peer before nothing more is heard from it.
const OUT_MAX: usize = 128 * 1024;

/// How long a peer that was let in has to say hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);

/// How long a peer that is owed too much may read nothing of it.
const READ_WITHIN: Duration = Duration::from_secs(10);

/// How long a last word waits to be read.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A stream of bytes, with descriptors sent along.
pub(crate) trait Link: AsyncRead + AsyncWrite + Send + Unpin {
    /// The next descriptor that came along.
    fn take_descriptor(&mut self) -> Option<OwnedFd>;
}

/// A connection.
pub(crate) struct Connection<L> {
    link: L,
    decoder: Decoder,
    session: Session,
    out: Out,
    pages: Option<Pages>,
    /// Why it ends, as soon as the last word was read.
    ending: Option<Ending>,
    /// By when something must have happened.
    until: Option<Instant>,
}

/// What is to be said.
#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    sent: usize,
    flushed: bool,
    /// Nobody listens.
    broken: bool,
}

/// Why a connection ends.
enum Ending {
    /// Its peer has closed it.
    Closed,
    /// It broke.
    Broken(io::Error),
    /// There is no sense in what was said.
    Nonsense(FrameError),
    /// What was said is refused.
    Refused(Refusal),
    /// The client speaks by another connection.
    Replaced,
    /// It is no client's, and another needs its place.
    Displaced,
    /// The client has disconnected in good order.
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

    /// Listens and answers until it ends.
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

    /// Whether there is nothing more to say or to hear.
    fn is_over(&self) -> bool {
        match &self.ending {
            // The peer closes it when it has read its last word, or the time is over.
            Some(Ending::Refused(_) | Ending::Nonsense(_) | Ending::Closing) => false,
            Some(_) => true,
            None => false,
        }
    }

    /// Sends what it can, and reads what is wanted.
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
                    // After its last word nothing counts any more. It is read so that the peer can read
                    // that word.
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

    /// Takes in what was read, as long as the answers are read.
    fn hear(&mut self) {
        while self.ending.is_none() && self.out.len() < OUT_MAX {
            if let Some(pages) = &mut self.pages {
                // The next page when the one before was read.
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
            Step::ActionResult => self.end(Ending::Disconnect),
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
            // No answer is so long: the longest are cut into pages.
            Err(error) => tracing::error!(%error, "an answer does not fit into a frame"),
        }
    }

    /// Tells why it has ended, if somebody should know.
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
                tracing::warn!(peer, client, why = %ending, "sent somebody away");
            }
            ending => tracing::debug!(peer, client, why = %ending, "a connection has ended"),
        }
    }
}

/// What came of trying to send and to read.
enum Exchanged {
    /// Something was sent or read.
    Some,
    /// The peer says nothing any more.
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

    /// Sends what it can. Answers whether that was anything.
    ///
    /// That nobody listens any more is no reason not to hear: a process that was killed may have
    /// registered a lease just before.
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
            // What follows is the peer's turn: it reads, and closes.
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
            Self::Replaced => f.write_str("the client speaks by another connection"),
            Self::Displaced => f.write_str("another needs its place"),
            Self::Disconnect => f.write_str("the client ends"),
            Self::Closing => f.write_str("the node is about to stop"),
        }
    }
}
