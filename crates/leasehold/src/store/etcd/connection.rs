//! Connections to one member. A connection has one request at a time.

use std::sync::Mutex;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::error::{Failed, failure, no_reply, not_etcd, refused};
use crate::store::lock::lock;
use crate::{Error, ErrorKind, Result};

/// The longest reply.
const REPLY_MAX: usize = 64 * 1024 * 1024;

/// The number of idle connections that are kept.
const IDLE_MAX: usize = 8;

type Body = Full<Bytes>;

/// A member of the cluster.
#[derive(Debug)]
pub(super) struct Member {
    host: String,
    port: u16,
    idle: Mutex<Vec<SendRequest<Body>>>,
}

/// Until when to have a connection, and the reply.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) connected: Instant,
    pub(super) replied: Instant,
}

/// A reply that goes on.
pub(super) struct Stream {
    body: Incoming,
    buffer: Vec<u8>,
    /// Closes the connection when it is dropped.
    _connection: SendRequest<Body>,
}

impl Member {
    pub(super) fn new((host, port): (String, u16)) -> Self {
        Self {
            host,
            port,
            idle: Mutex::default(),
        }
    }

    /// Host and port, as in a URL.
    pub(super) fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Connects, and keeps the connection.
    pub(super) async fn connect(&self, tls: Option<&TlsConnector>) -> Result<()> {
        let connection = self.open(tls).await?;
        self.put_back(connection);
        Ok(())
    }

    /// Sends a request, and returns the whole reply.
    pub(super) async fn call(
        &self,
        tls: Option<&TlsConnector>,
        request: Request<Body>,
        limits: Limits,
    ) -> Result<Value, Failed> {
        let (connection, response) = self.send(tls, request, limits).await?;
        let (status, body) = whole(response, limits).await?;
        self.put_back(connection);
        if status != StatusCode::OK {
            return Err(refused(status, &body));
        }
        let reply: Value =
            serde_json::from_slice(&body).map_err(|_| Failed::unanswered(not_etcd()))?;
        match failure(&reply) {
            Some(failed) => Err(failed),
            None => Ok(reply),
        }
    }

    /// Sends a request, and returns its reply as it comes.
    pub(super) async fn stream(
        &self,
        tls: Option<&TlsConnector>,
        request: Request<Body>,
        limits: Limits,
    ) -> Result<Stream, Failed> {
        let (connection, response) = self.send(tls, request, limits).await?;
        if response.status() != StatusCode::OK {
            let (status, body) = whole(response, limits).await?;
            return Err(refused(status, &body));
        }
        Ok(Stream {
            body: response.into_body(),
            buffer: Vec::new(),
            _connection: connection,
        })
    }

    /// Sends a request on an idle connection, or on a new one.
    async fn send(
        &self,
        tls: Option<&TlsConnector>,
        mut request: Request<Body>,
        limits: Limits,
    ) -> Result<(SendRequest<Body>, Response<Incoming>), Failed> {
        loop {
            let connecting = timeout_at(limits.connected, self.connection(tls)).await;
            let connecting =
                connecting.map_err(|_| Failed::unsent(unreachable("no connection in time")))?;
            let (mut connection, is_new) = connecting.map_err(Failed::unsent)?;
            let sent = connection.try_send_request(request);
            let mut failed = match timeout_at(limits.replied, sent).await {
                Ok(Ok(response)) => return Ok((connection, response)),
                Ok(Err(failed)) => failed,
                Err(_) => return Err(Failed::unanswered(no_reply())),
            };
            let unsent = failed.take_message();
            let error = closed(failed.into_error());
            match unsent {
                // It had ended while it was idle.
                Some(unsent) if !is_new => request = unsent,
                Some(_) => return Err(Failed::unsent(error)),
                None => return Err(Failed::unanswered(error)),
            }
        }
    }

    /// An idle connection, or a new one, and whether it is that.
    async fn connection(&self, tls: Option<&TlsConnector>) -> Result<(SendRequest<Body>, bool)> {
        loop {
            let idle = lock(&self.idle).pop();
            let Some(mut connection) = idle else {
                return Ok((self.open(tls).await?, true));
            };
            if connection.ready().await.is_ok() {
                return Ok((connection, false));
            }
        }
    }

    async fn open(&self, tls: Option<&TlsConnector>) -> Result<SendRequest<Body>> {
        let opened = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = opened.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let stream = stream.map_err(|error| {
            let cause = format!("no connection to the server ({error})");
            unreachable(&cause).with_source(error)
        })?;
        let Some(tls) = tls else {
            return handshake(stream).await;
        };
        let name = ServerName::try_from(self.host.clone()).map_err(|error| {
            let message = "the host in the store URL cannot be checked by TLS";
            Error::new(ErrorKind::InvalidConfig, message).with_source(error)
        })?;
        let secured = tls.connect(name, stream).await.map_err(|error| {
            let message = format!(
                "the TLS handshake failed; check ca, cert and key in the URL, or write etcd:// if the server has no TLS \
                 ({error})"
            );
            Error::new(ErrorKind::Unreachable, message).with_source(error)
        })?;
        handshake(secured).await
    }

    fn put_back(&self, connection: SendRequest<Body>) {
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Body>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(closed)?;
    // It ends with the sender.
    tokio::spawn(connection);
    Ok(sender)
}

/// The whole body of a reply.
async fn whole(
    response: Response<Incoming>,
    limits: Limits,
) -> Result<(StatusCode, Bytes), Failed> {
    let status = response.status();
    let body = Limited::new(response.into_body(), REPLY_MAX).collect();
    match timeout_at(limits.replied, body).await {
        Ok(Ok(body)) => Ok((status, body.to_bytes())),
        Ok(Err(_)) => Err(Failed::unanswered(unreachable(
            "the reply is incomplete or too long",
        ))),
        Err(_) => Err(Failed::unanswered(no_reply())),
    }
}

fn unreachable(cause: &str) -> Error {
    let message = format!("{cause}; check host, port and firewall");
    Error::new(ErrorKind::Unreachable, message)
}

fn closed(error: hyper::Error) -> Error {
    let message = match error.is_parse() {
        true => "the reply is not HTTP; check host and port, which are those of clients (2379)",
        false => {
            "the server has closed the connection; if that happens each time, it may use TLS: write etcds://"
        }
    };
    Error::new(ErrorKind::Unreachable, message).with_source(error)
}

impl Stream {
    /// The next result. Cancelled, it loses nothing.
    pub(super) async fn next(&mut self) -> Result<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.buffer.drain(..=end).collect();
                let mut reply: Value = serde_json::from_slice(&line).map_err(|_| not_etcd())?;
                return match failure(&reply) {
                    Some(failed) => Err(failed.error),
                    None => Ok(reply.get_mut("result").map(Value::take).unwrap_or_default()),
                };
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(closed(error)),
                None => return Err(no_reply()),
            }
            if self.buffer.len() > REPLY_MAX {
                return Err(unreachable("a message is too long"));
            }
        }
    }
}
