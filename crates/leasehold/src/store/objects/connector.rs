//! HTTP/1.1 to a service. Nothing is sent twice, and a reply that is an error becomes a [`Failure`].

use std::fmt::Display;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::StatusCode;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{HOST, HeaderValue};
use hyper::http::uri::{Scheme, Uri};
use hyper_util::rt::TokioIo;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::error::{Failure, refused};
use crate::Result;
use crate::store::api::BoxFuture;
use crate::store::lock::lock;
use crate::store::options::OpenOptions;
use crate::store::{tasks, tls};

/// How many connections are kept that have no request.
const IDLE_MAX: usize = 32;

/// The longest time without a request after which a connection is still used. Balancers and firewalls forget a silent one
/// after a minute or later, and a request on it has no reply.
const IDLE_TIME_MAX: Duration = Duration::from_secs(45);

/// Makes a connection pool for the service, and for those that have its credentials.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    tls: Arc<ClientConfig>,
    connect_timeout: Duration,
    response_timeout: Duration,
}

impl Connector {
    pub(super) fn new(options: &OpenOptions) -> Result<Self> {
        let roots = tls::roots(tls::authorities(options, None)?.as_deref())?;
        let builder = tls::builder()?.with_root_certificates(roots);
        Ok(Self {
            tls: Arc::new(tls::with_identity(builder, None)?),
            connect_timeout: options.connect_timeout,
            response_timeout: options.response_timeout,
        })
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        Ok(HttpClient::new(ConnectionPool {
            connector: self.clone(),
            allows_http: matches!(allows_http.as_deref(), Some("true" | "1")),
            idle: Mutex::default(),
        }))
    }
}

type Connection = SendRequest<HttpRequestBody>;

/// A connection that has no request, and the time of its last reply.
type Idle = (Server, Connection, Instant);

#[derive(Debug)]
struct ConnectionPool {
    connector: Connector,
    allows_http: bool,
    idle: Mutex<Vec<Idle>>,
}

/// What became of a request.
enum Exchange {
    Reply(HttpResponse),
    /// The connection had ended before.
    NotSent(HttpRequest),
}

impl HttpService for ConnectionPool {
    fn call<'life0, 'async_trait>(
        &'life0 self,
        request: HttpRequest,
    ) -> BoxFuture<'async_trait, Result<HttpResponse, HttpError>>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let reply = self.request(request).await;
            reply.map_err(|failure| HttpError::new(HttpErrorKind::Unknown, failure))
        })
    }
}

impl ConnectionPool {
    async fn request(&self, mut request: HttpRequest) -> Result<HttpResponse, Failure> {
        let server =
            Server::take(&mut request).ok_or_else(|| not_sent("its address is invalid"))?;
        if !(server.is_tls || self.allows_http) {
            return Err(not_sent(
                "http:// is not allowed; use https://, or add allow-http to the URL",
            ));
        }
        loop {
            let idle = self.idle(&server);
            let is_new = idle.is_none();
            let connection = match idle {
                Some(idle) => idle,
                None => self.connect(&server).await?,
            };
            let exchange = self.exchange(&server, connection, request);
            let replied = timeout(self.connector.response_timeout, exchange).await;
            match replied.map_err(|_| no_reply("in time"))?? {
                Exchange::Reply(reply) => return checked(&server, reply).await,
                Exchange::NotSent(_) if is_new => return Err(not_sent("the connection has ended")),
                Exchange::NotSent(unsent) => request = unsent,
            }
        }
    }

    fn idle(&self, server: &Server) -> Option<Connection> {
        let mut idle = lock(&self.idle);
        idle.retain(|(_, connection, since)| {
            !connection.is_closed() && since.elapsed() < IDLE_TIME_MAX
        });
        let at = idle.iter().rposition(|(other, ..)| other == server)?;
        Some(idle.swap_remove(at).1)
    }

    async fn exchange(
        &self,
        server: &Server,
        mut connection: Connection,
        request: HttpRequest,
    ) -> Result<Exchange, Failure> {
        let reply = match connection.try_send_request(request).await {
            Ok(reply) => reply,
            Err(mut error) => {
                return match error.take_message() {
                    Some(unsent) => Ok(Exchange::NotSent(unsent)),
                    None => Err(no_reply(error.into_error())),
                };
            }
        };
        let (parts, body) = reply.into_parts();
        let body = body.collect().await.map_err(no_reply)?.to_bytes();
        if connection.ready().await.is_ok() {
            let mut idle = lock(&self.idle);
            if idle.len() < IDLE_MAX {
                idle.push((server.clone(), connection, Instant::now()));
            }
        }
        Ok(Exchange::Reply(HttpResponse::from_parts(
            parts,
            body.into(),
        )))
    }

    async fn connect(&self, server: &Server) -> Result<Connection, Failure> {
        let connected = timeout(self.connector.connect_timeout, self.open(server)).await;
        match connected {
            Ok(connected) => connected.map_err(|error| server.unreachable(error)),
            Err(elapsed) => Err(server.unreachable(elapsed)),
        }
    }

    async fn open(&self, server: &Server) -> io::Result<Connection> {
        let stream = TcpStream::connect((server.host.as_str(), server.port)).await?;
        stream.set_nodelay(true)?;
        if !server.is_tls {
            return speak(stream).await;
        }
        let name = ServerName::try_from(server.host.clone()).map_err(io::Error::other)?;
        let tls = TlsConnector::from(Arc::clone(&self.connector.tls));
        speak(tls.connect(name, stream).await?).await
    }
}

/// Speaks HTTP on a stream, in a task that ends with the connection.
async fn speak<S>(stream: S) -> io::Result<Connection>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let started = handshake(TokioIo::new(stream)).await;
    let (connection, task) = started.map_err(io::Error::other)?;
    tasks::spawn(task);
    Ok(connection)
}

/// The server of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Server {
    is_tls: bool,
    host: String,
    port: u16,
}

impl Server {
    /// Takes the server out of the URI of a request, into its header.
    fn take(request: &mut HttpRequest) -> Option<Self> {
        let parts = request.uri().clone().into_parts();
        let authority = parts.authority?;
        let is_tls = parts.scheme? == Scheme::HTTPS;
        let default = if is_tls { 443 } else { 80 };
        let port = authority.port_u16().unwrap_or(default);
        // As it is signed: without the port that is the default.
        let host = match port == default {
            true => authority.host(),
            false => authority.as_str(),
        };
        let host = HeaderValue::from_str(host).ok()?;
        *request.uri_mut() = Uri::from(parts.path_and_query?);
        request.headers_mut().entry(HOST).or_insert(host);
        Some(Self {
            is_tls,
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port,
        })
    }

    /// Whether it has the credentials of the machine on which it is asked.
    fn has_credentials(&self) -> bool {
        self.host.starts_with("169.254.") || self.host == "metadata.google.internal"
    }

    fn unreachable(&self, cause: impl Display) -> Failure {
        match self.has_credentials() {
            true => Failure::NoCredentials,
            false => not_sent(cause),
        }
    }
}

/// The reply, unless it is an error about which the caller can decide nothing.
async fn checked(server: &Server, reply: HttpResponse) -> Result<HttpResponse, Failure> {
    let status = reply.status();
    if status.is_success() || status == StatusCode::NOT_MODIFIED {
        return Ok(reply);
    }
    if server.has_credentials() {
        return match status {
            // An older version of the interface may be tried.
            StatusCode::FORBIDDEN => Ok(reply),
            _ => Err(Failure::NoCredentials),
        };
    }
    let (parts, body) = reply.into_parts();
    let body = body.bytes().await.map_err(no_reply)?;
    let code = code(&String::from_utf8_lossy(&body));
    // The object does not exist, or another client has written it.
    let is_left_to_caller = matches!(
        status,
        StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED
    ) && refused(status.as_u16(), &code).is_none();
    match is_left_to_caller {
        true => Ok(HttpResponse::from_parts(parts, body.into())),
        false => Err(Failure::Refused(status.as_u16(), code)),
    }
}

/// The code in the body of an error.
fn code(body: &str) -> String {
    let code = body.split_once("<Code>").map_or("", |(_, rest)| rest);
    let code = code.split_once("</Code>").map_or("", |(code, _)| code);
    let is_code = code.len() <= 64 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_code { code } else { "" }.to_owned()
}

fn not_sent(cause: impl Display) -> Failure {
    Failure::NotSent(cause.to_string())
}

fn no_reply(cause: impl Display) -> Failure {
    Failure::NoReply(cause.to_string())
}
