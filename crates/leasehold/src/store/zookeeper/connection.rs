//! A connection to one server: its handshake, and its frames.

use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf, split,
};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::error;
use super::jute::{Reader, Writer};
use super::request::code;
use crate::fork::Process;
use crate::{Result, Secret};

/// The longest frame: a server replies with the names of all children of a node together.
const FRAME_MAX: usize = 512 * 1024 * 1024;

/// The longest frame before a session has begun, so that a server with another protocol is noticed.
const FIRST_MAX: usize = 64 * 1024;

/// How many bytes are read in one step, of small frames.
const READ: usize = 8 * 1024;

/// From how many bytes that are not sent yet no further request is accepted.
const UNSENT_MAX: usize = 256 * 1024;

const CLOSE: i32 = -11;

/// How long the server keeps the session of a client that is silent.
const SESSION: Duration = Duration::from_secs(10);

const AUTH: i32 = 100;

/// The number of a reply to the authentication.
const AUTH_NUMBER: i32 = -4;

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The id of a session, by which another connection continues it.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionId {
    pub(super) id: i64,
    password: Vec<u8>,
    /// The last transaction that this process has seen. A server that does not have it yet refuses the connection.
    pub(super) seen: i64,
    /// Of the last request, on whichever connection: a server replies to a request with the result of another one that has
    /// the same number in the session, and was sent to another server shortly before.
    number: i32,
}

impl SessionId {
    /// Of no session yet, which begins behind the same transaction.
    pub(super) fn anew(&self) -> Self {
        let seen = self.seen;
        Self {
            seen,
            ..Self::default()
        }
    }

    /// The number of the next request.
    pub(super) fn next_number(&mut self) -> i32 {
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.number
    }
}

/// A connection that has a session.
pub(super) struct Connection {
    pub(super) input: Input,
    pub(super) output: Output,
    pub(super) session: SessionId,
    /// As the server has set it.
    pub(super) timeout: Duration,
    process: Process,
}

/// The frames of the server.
pub(super) struct Input {
    io: ReadHalf<Box<dyn Io>>,
    buffer: Vec<u8>,
    frame_max: usize,
    /// When the last bytes were received.
    pub(super) received: Instant,
}

/// The frames for the server. While it accepts none of them, its own frames are still received.
pub(super) struct Output {
    io: WriteHalf<Box<dyn Io>>,
    unsent: Vec<u8>,
    is_sent: bool,
}

impl Connection {
    /// Connects, and continues a session. If that has ended, begins a new one.
    pub(super) async fn open(
        (host, port): &(String, u16),
        tls: Option<&TlsConnector>,
        session: &SessionId,
        user: Option<(&str, &Secret)>,
    ) -> Result<Self> {
        let tcp = TcpStream::connect((host.as_str(), *port)).await;
        let tcp = tcp.map_err(error::unreachable)?;
        let _ = tcp.set_nodelay(true);
        let io: Box<dyn Io> = match tls {
            None => Box::new(tcp),
            Some(tls) => {
                let name = ServerName::try_from(host.clone()).map_err(error::unreachable)?;
                Box::new(tls.connect(name, tcp).await.map_err(error::unreachable)?)
            }
        };
        let (input, output) = split(io);
        let mut connection = Self {
            input: Input {
                io: input,
                buffer: Vec::new(),
                frame_max: FIRST_MAX,
                received: Instant::now(),
            },
            output: Output {
                io: output,
                unsent: Vec::new(),
                is_sent: true,
            },
            session: session.clone(),
            timeout: SESSION,
            process: Process::current(),
        };
        connection.begin().await?;
        // A session that has ended is not authenticated: its server closes the connection.
        if let Some((user, password)) = user.filter(|_| connection.session.id != 0) {
            connection.authenticate(user, password).await?;
        }
        Ok(connection)
    }

    async fn begin(&mut self) -> Result<()> {
        let millis = i32::try_from(SESSION.as_millis()).unwrap_or(i32::MAX);
        let request = Writer::default().int(0).long(self.session.seen).int(millis);
        let request = request.long(self.session.id);
        let request = request.bytes(match self.session.id {
            0 => &[0; 16],
            _ => &self.session.password,
        });
        // A server that has lost the majority replies only to a client that would read from it.
        self.output.add(&request.flag(true).0);
        self.output.send().await?;
        let reply = self.input.frame().await?;
        let mut reader = Reader(&reply);
        let read = (reader.int(), reader.int(), reader.long(), reader.bytes());
        let (Some(0), Some(timeout), Some(id), Some(password)) = read else {
            // The session is refused as other requests are.
            return Err(match reply.ends_with(&code::NOT_READ_ONLY.to_be_bytes()) {
                true => error::read_only(),
                false => error::not_zookeeper(),
            });
        };
        let is_read_only = reader.flag().unwrap_or(false);
        if is_read_only {
            return Err(error::read_only());
        }
        // Without a timeout the session has ended: the caller begins another one.
        self.timeout = Duration::from_millis(u64::try_from(timeout).unwrap_or(0));
        self.session.id = if timeout > 0 { id } else { 0 };
        self.session.password = password.to_vec();
        self.input.frame_max = FRAME_MAX;
        Ok(())
    }

    async fn authenticate(&mut self, user: &str, password: &Secret) -> Result<()> {
        let credentials = format!("{user}:{}", password.expose());
        let request = Writer::default().int(AUTH_NUMBER).int(AUTH).int(0);
        let request = request.text("digest").text(&credentials);
        self.output.add(&request.0);
        self.output.send().await?;
        loop {
            let reply = self.input.frame().await?;
            let mut reader = Reader(&reply);
            let (number, _, code) = (reader.int(), reader.long(), reader.int());
            match (number, code) {
                (Some(AUTH_NUMBER), Some(0)) => return Ok(()),
                (Some(AUTH_NUMBER), Some(code)) => return Err(error::described(code)),
                _ => {}
            }
        }
    }

    /// Ends the session by a request. Returns when the server has closed the connection.
    pub(super) async fn close(&mut self) -> Result<()> {
        if !self.process.is_current() {
            // The session of the parent of this fork.
            return Ok(());
        }
        let number = self.session.next_number();
        self.output.add(&Writer::default().int(number).int(CLOSE).0);
        self.output.send().await?;
        loop {
            // With a frame unread, the end of the connection could overtake the request.
            self.input.frame().await?;
        }
    }
}

impl Output {
    /// Adds a frame to those that are sent next.
    pub(super) fn add(&mut self, body: &[u8]) {
        let unsent = Writer(std::mem::take(&mut self.unsent));
        self.unsent = unsent.bytes(body).0;
        self.is_sent = false;
    }

    /// Whether it accepts requests.
    pub(super) fn has_room(&self) -> bool {
        self.unsent.len() < UNSENT_MAX
    }

    /// Whether all frames are sent.
    pub(super) fn is_sent(&self) -> bool {
        self.is_sent
    }

    /// Sends all frames. A call that is dropped has sent nothing that the next one sends again.
    pub(super) async fn send(&mut self) -> Result<()> {
        while !self.unsent.is_empty() {
            let written = self.io.write(&self.unsent).await.map_err(error::lost)?;
            if written == 0 {
                return Err(error::closed());
            }
            self.unsent.drain(..written);
        }
        self.io.flush().await.map_err(error::lost)?;
        self.is_sent = true;
        Ok(())
    }
}

impl Input {
    /// The next frame. A call that is dropped has read nothing that the next one does not have.
    pub(super) async fn frame(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(length) = self.buffer.first_chunk::<4>() {
                let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
                if length > self.frame_max {
                    return Err(error::not_zookeeper());
                }
                if self.buffer.len() >= 4 + length {
                    let rest = self.buffer.split_off(4 + length);
                    let mut frame = std::mem::replace(&mut self.buffer, rest);
                    frame.drain(..4);
                    return Ok(frame);
                }
            }
            self.buffer.reserve(READ);
            let read = self.io.read_buf(&mut self.buffer).await;
            if read.map_err(error::lost)? == 0 {
                return Err(error::closed());
            }
            self.received = Instant::now();
        }
    }
}
