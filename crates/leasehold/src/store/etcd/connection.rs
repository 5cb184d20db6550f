//! The connection to one member, which all calls share, and the frames of gRPC on it.

use std::sync::{Arc, Mutex, OnceLock};

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, TE};
use hyper::rt::Executor;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prost::Message;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;

use super::error::{Failed, described, no_reply, not_etcd, refused};
use super::messages::{AnyReply, Call, EventsReply};
use crate::error::invalid;
use crate::store::lock::lock;
use crate::store::tasks;
use crate::{Error, ErrorKind, Result, Secret};

/// The longest reply.
const REPLY_MAX: usize = 64 * 1024 * 1024;

/// A flag, which is set if the message is compressed, and its length.
const PREFIX: usize = 5;

/// With it a member that has lost the others ends a stream.
const HAS_LEADER: &str = "hasleader";

/// The token of the user.
const TOKEN: &str = "token";

pub(super) type Body = Full<Bytes>;

/// The id of the cluster whose reply was the first.
pub(super) type ClusterId = Arc<OnceLock<u64>>;

/// A member of the cluster.
pub(super) struct Member {
    host: String,
    port: u16,
    tls: Option<TlsConnector>,
    cluster: ClusterId,
    connection: Mutex<Option<SendRequest<Body>>>,
}

/// Until when to have a connection, and the reply.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) connected: Instant,
    pub(super) replied: Instant,
}

/// The replies to a watch, which come one after the other.
pub(super) struct Stream {
    body: Incoming,
    frames: Frames,
    cluster: ClusterId,
}

/// Messages behind their prefixes, the last of which may be incomplete.
#[derive(Debug, Default)]
struct Frames(Vec<u8>);

impl Member {
    pub(super) fn new(
        (host, port): (String, u16),
        tls: Option<TlsConnector>,
        cluster: &ClusterId,
    ) -> Self {
        Self {
            host,
            port,
            tls,
            cluster: Arc::clone(cluster),
            connection: Mutex::default(),
        }
    }

    /// Host and port, as in a URL.
    pub(super) fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// A call as it is sent, with the token of the user, if one was given.
    pub(super) fn request<C: Call>(
        &self,
        token: Option<&Secret>,
        body: Bytes,
    ) -> Result<Request<Body>, Failed> {
        let scheme = match self.tls {
            Some(_) => "https",
            None => "http",
        };
        let mut request = Request::post(format!("{scheme}://{}{}", self.address(), C::PATH))
            .header(CONTENT_TYPE, "application/grpc")
            .header(TE, "trailers")
            .header(HAS_LEADER, "true");
        if let Some(token) = token {
            request = request.header(TOKEN, token.expose());
        }
        let request = request.body(Body::new(body));
        request.map_err(|_| Failed::certain(not_etcd()))
    }

    /// Connects, unless there is a connection.
    pub(super) async fn connect(&self) -> Result<()> {
        self.connection().await.map(drop)
    }

    /// Sends a request, and returns the message that replies to it.
    pub(super) async fn call<M: Message + Default>(
        &self,
        request: Request<Body>,
        limits: Limits,
    ) -> Result<M, Failed> {
        let response = self.send(request, limits).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = Limited::new(response.into_body(), REPLY_MAX).collect();
        let body = match timeout_at(limits.replied, body).await {
            Ok(Ok(body)) => body,
            Ok(Err(_)) => {
                let error = unreachable("the reply is incomplete or too long");
                return Err(Failed::unanswered(error));
            }
            Err(_) => return Err(self.late()),
        };
        // A reply without a message has its status in the headers.
        let trailers = body.trailers().cloned();
        let bytes = body.to_bytes();
        check(status, &headers, &bytes)?;
        outcome(trailers.as_ref().unwrap_or(&headers))?;
        let message = Frames(bytes.into()).take(&self.cluster)?;
        message.ok_or_else(|| Failed::unanswered(not_etcd()))
    }

    /// Sends a request, and returns the replies to it as they come.
    pub(super) async fn stream(
        &self,
        request: Request<Body>,
        limits: Limits,
    ) -> Result<Stream, Failed> {
        let response = self.send(request, limits).await?;
        check(response.status(), response.headers(), &[])?;
        if response.headers().contains_key(STATUS) {
            outcome(response.headers())?;
        }
        Ok(Stream {
            body: response.into_body(),
            frames: Frames::default(),
            cluster: Arc::clone(&self.cluster),
        })
    }

    /// Sends a request on the connection, or on a new one.
    async fn send(
        &self,
        mut request: Request<Body>,
        limits: Limits,
    ) -> Result<Response<Incoming>, Failed> {
        loop {
            let connecting = timeout_at(limits.connected, self.connection()).await;
            let connecting =
                connecting.map_err(|_| Failed::unsent(unreachable("no connection in time")))?;
            let (mut connection, is_new) = connecting.map_err(Failed::unsent)?;
            let sent = connection.try_send_request(request);
            let mut failed = match timeout_at(limits.replied, sent).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(failed)) => failed,
                Err(_) => return Err(self.late()),
            };
            lock(&self.connection).take();
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

    /// The next call has another connection: this one may be cut off.
    fn late(&self) -> Failed {
        lock(&self.connection).take();
        Failed::unanswered(no_reply())
    }

    /// The connection, or a new one, and whether it is that.
    async fn connection(&self) -> Result<(SendRequest<Body>, bool)> {
        let known = lock(&self.connection).clone();
        if let Some(mut connection) = known
            && connection.ready().await.is_ok()
        {
            return Ok((connection, false));
        }
        let connection = self.open().await?;
        *lock(&self.connection) = Some(connection.clone());
        Ok((connection, true))
    }

    async fn open(&self) -> Result<SendRequest<Body>> {
        let opened = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = opened.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let stream = stream.map_err(|error| {
            let cause = format!("no connection to the server ({error})");
            unreachable(&cause).with_source(error)
        })?;
        let Some(tls) = &self.tls else {
            return handshake(stream).await;
        };
        let name = ServerName::try_from(self.host.clone()).map_err(|error| {
            let message = "the host in the store URL cannot be checked by TLS";
            invalid(message).with_source(error)
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
}

/// Runs the tasks of a connection.
#[derive(Clone)]
struct Tasks;

impl<F> Executor<F> for Tasks
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        tasks::spawn(future);
    }
}

async fn handshake<S>(stream: S) -> Result<SendRequest<Body>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(Tasks, TokioIo::new(stream))
        .await
        .map_err(closed)?;
    // It ends with the last sender and the last call.
    tasks::spawn(connection);
    Ok(sender)
}

/// The code of gRPC, which is 0 for a success.
const STATUS: &str = "grpc-status";

/// Checks that a reply is one of gRPC.
fn check(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<(), Failed> {
    let kind = headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    match kind.is_some_and(|kind| kind.starts_with("application/grpc")) && status == StatusCode::OK
    {
        true => Ok(()),
        false => Err(refused(status, body)),
    }
}

/// The outcome of a call, by its trailers.
fn outcome(trailers: &HeaderMap) -> Result<(), Failed> {
    let field = |name| trailers.get(name).and_then(|value| value.to_str().ok());
    match field(STATUS).and_then(|code| code.parse().ok()) {
        Some(0) => Ok(()),
        Some(code) => {
            let message = field("grpc-message").unwrap_or_default();
            let message = percent_encoding::percent_decode_str(message).decode_utf8_lossy();
            Err(described(&message, Some(code)))
        }
        None => Err(Failed::unanswered(unreachable("the reply is incomplete"))),
    }
}

fn unreachable(cause: &str) -> Error {
    let message = format!("{cause}; check host, port and firewall");
    Error::new(ErrorKind::Unreachable, message)
}

fn closed(error: hyper::Error) -> Error {
    let message = "the server has closed the connection, or it is not etcd; if that happens each time, check the port, which is \
                   that of clients (2379), and write etcds:// if it uses TLS";
    Error::new(ErrorKind::Unreachable, message).with_source(error)
}

impl Stream {
    /// The next message. Cancelled, it loses nothing.
    pub(super) async fn next(&mut self) -> Result<EventsReply> {
        loop {
            let message = self.frames.take(&self.cluster);
            if let Some(message) = message.map_err(|failed| failed.error)? {
                return Ok(message);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.frames.0.extend_from_slice(&data),
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        outcome(&trailers).map_err(|failed| failed.error)?;
                    }
                },
                Some(Err(error)) => return Err(closed(error)),
                None => return Err(no_reply()),
            }
        }
    }
}

impl Frames {
    /// The next message that has arrived as a whole, which must be a reply of this cluster.
    fn take<M: Message + Default>(&mut self, cluster: &ClusterId) -> Result<Option<M>, Failed> {
        let strange = || Failed::unanswered(not_etcd());
        let Some([flag, length @ ..]) = self.0.first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if *flag != 0 {
            return Err(strange());
        } else if length > REPLY_MAX {
            return Err(Failed::unanswered(unreachable("a message is too long")));
        } else if self.0.len() < PREFIX + length {
            return Ok(None);
        }
        let rest = self.0.split_off(PREFIX + length);
        let whole = std::mem::replace(&mut self.0, rest);
        let bytes = &whole[PREFIX..];
        let AnyReply { header } = AnyReply::decode(bytes).map_err(|_| strange())?;
        if let Some(id) = header.map(|it| it.cluster_id).filter(|id| *id != 0) {
            let first = *cluster.get_or_init(|| id);
            if first != id {
                return Err(Failed::other_cluster(first, id));
            }
        }
        M::decode(bytes).map(Some).map_err(|_| strange())
    }
}

/// A message behind its prefix.
pub(super) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = Vec::with_capacity(PREFIX + length);
    frame.push(0);
    frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend(message.encode_to_vec());
    frame.into()
}

#[cfg(test)]
mod tests {
    use super::super::error::Remedy;
    use super::super::messages::{Header, LeaseReply, TransactionReply};
    use super::*;

    #[test]
    fn messages_come_in_any_pieces_and_none_is_made_up() {
        let cluster = ClusterId::default();
        let sent = [5, 0, i64::MAX].map(|ttl| LeaseReply { id: 1, ttl });
        let bytes: Vec<_> = sent.iter().flat_map(framed).collect();
        let mut frames = Frames::default();
        let mut received = Vec::new();
        for byte in bytes {
            frames.0.push(byte);
            received.extend(frames.take::<LeaseReply>(&cluster).unwrap());
        }
        assert_eq!((received, frames.0.len()), (sent.to_vec(), 0));
        for strange in ["<html></html>", "\x01\0\0\0\0", "\0\0\0\0\x02\x12\x7f"] {
            let taken = Frames(strange.into()).take::<TransactionReply>(&cluster);
            assert_eq!(taken.unwrap_err().error.kind(), ErrorKind::InvalidConfig);
        }
        let long = Frames(b"\0\xff\xff\xff\xff".to_vec()).take::<LeaseReply>(&cluster);
        assert_eq!(long.unwrap_err().error.kind(), ErrorKind::Unreachable);
    }

    /// Its change was applied there, and grants nothing here.
    #[test]
    fn a_reply_of_another_cluster_than_the_first_is_refused() {
        let cluster = ClusterId::default();
        let take = |cluster_id| {
            let header = Header {
                cluster_id,
                revision: 7,
            };
            let reply = TransactionReply {
                header: Some(header),
                succeeded: true,
                replies: Vec::new(),
            };
            Frames(framed(&reply).into()).take::<TransactionReply>(&cluster)
        };
        for known in [0, 10, 10, 0] {
            assert!(take(known).unwrap().unwrap().succeeded);
        }
        let refused = take(11).unwrap_err();
        assert_eq!(refused.remedy, Remedy::OtherCluster);
        assert!(refused.is_certain && !refused.error.is_transient());
        assert!(take(10).is_ok());
    }

    #[test]
    fn trailers_say_what_became_of_a_call() {
        let trailers = |fields: &[(&'static str, &str)]| {
            let fields = fields.iter();
            let field = |(name, value): &(&'static str, &str)| {
                (name.parse().unwrap(), value.parse().unwrap())
            };
            outcome(&fields.map(field).collect())
        };
        assert!(trailers(&[(STATUS, "0")]).is_ok());
        let refused = trailers(&[
            (STATUS, "7"),
            ("grpc-message", "etcdserver: permission%20denied"),
        ]);
        let refused = refused.unwrap_err();
        assert_eq!(refused.error.kind(), ErrorKind::Unauthorized);
        assert!(refused.is_certain);
        for incomplete in [trailers(&[]), trailers(&[(STATUS, "x")])] {
            assert!(!incomplete.unwrap_err().is_certain);
        }
    }
}
