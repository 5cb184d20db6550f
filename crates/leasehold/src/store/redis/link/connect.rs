//! Opens connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub, SendError};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    ProtocolVersion, PushInfo, PushKind, RedisConnectionInfo, RedisError, RedisResult, Value, cmd,
};
use tokio::net::TcpStream;

use super::notifications::Notifications;
use super::session::Session;
use super::session_state::SessionState;
use super::subscriptions::Subscriptions;
use super::tracking::KeyTracking;
#[cfg(feature = "tls")]
use crate::store::redis::address::Pem;
use crate::store::redis::address::{Address, Certificates, Endpoint, HostPort};
use crate::store::redis::errors;
use crate::store::redis::wire::reply::{field, text};
use crate::{Error, ErrorKind, Result, Secret};

/// How long a connection may be idle before the kernel probes it.
///
/// Only idle connections need this, as requests have timeouts. Firewalls drop idle connections after five
/// minutes or more.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);

/// The interval of further probes.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// When a TLS handshake without a reply is checked by a request without TLS.
const PLAIN_CHECK_AFTER: Duration = Duration::from_secs(1);

/// How long that request waits for its reply. A server without TLS replies immediately; a silent one keeps no second
/// connection.
const PLAIN_REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// The id of the next session.
static NEXT_SESSION: AtomicU64 = AtomicU64::new(0);

/// Connects, authenticates and selects the database. Has no timeout of its own.
pub(crate) async fn dial(address: &Address, notifications: &Arc<Notifications>) -> Result<Session> {
    let new_state = || Arc::new(SessionState::new(Arc::clone(notifications)));
    let mut state = new_state();
    let tracking = Arc::<KeyTracking>::default();
    let config_with_pushes = {
        let (state, tracking) = (Arc::clone(&state).end_on_drop(), Arc::clone(&tracking));
        config().set_push_sender(move |push: PushInfo| {
            match push.kind {
                PushKind::Disconnection => state.end(),
                // Messages of a former master are void.
                _ if state.is_replaced() => {}
                _ => {
                    if let Some((key, lease)) = state.notifications.handle_push(&push) {
                        tracking.add_grant(&key, lease);
                    }
                }
            }
            Ok::<(), SendError>(())
        })
    };
    let client = client(address, ProtocolVersion::RESP3)?;
    let (connection, subscriptions) = match connect(&client, &config_with_pushes, address).await {
        // A server before 6.0, or one where HELLO was renamed.
        Err(error) if is_hello_unknown(&error) => {
            let connection = plain(address).await?;
            // Without it, its clients would wait behind all others.
            let pubsub = pubsub(address).await?;
            state = new_state();
            (connection, Subscriptions::separate(pubsub, &state))
        }
        Err(error) => return Err(errors::no_connection(&error, address)),
        Ok(connection) => (connection, Subscriptions::shared(tracking)),
    };
    Ok(Session {
        id: NEXT_SESSION.fetch_add(1, Ordering::Relaxed),
        connection,
        state,
        subscriptions,
        failover_monitor: None,
    })
}

/// A connection without subscriptions.
pub(crate) async fn plain(address: &Address) -> Result<MultiplexedConnection> {
    let client = client(address, ProtocolVersion::RESP2)?;
    let connection = connect(&client, &config(), address).await;
    connection.map_err(|error| errors::no_connection(&error, address))
}

/// A connection for subscriptions only.
pub(crate) async fn pubsub(address: &Address) -> Result<PubSub> {
    let client = client(address, ProtocolVersion::RESP2)?;
    let pubsub = client.get_async_pubsub().await;
    pubsub.map_err(|error| errors::no_connection(&error, address))
}

/// The role of a server that is not a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Replica,
    /// With the masters that it monitors.
    Sentinel(Vec<String>),
}

/// Asks a server for its role. `None` if it is a master or does not reply to that.
pub(crate) async fn role(connection: &mut MultiplexedConnection) -> Option<Role> {
    // Every user may send HELLO, but servers before 6.0 do not know it, and a sentinel does not report its role.
    let hello = connection.send_packed_command(&cmd("HELLO")).await.ok()?;
    let mode = field(&hello, "mode").and_then(text);
    if field(&hello, "role").is_some() && mode.is_some_and(|mode| mode != "sentinel") {
        return is_replica(&hello).then_some(Role::Replica);
    }
    let role = connection.send_packed_command(&cmd("ROLE")).await.ok()?;
    match role.as_sequence()? {
        [word, Value::Array(masters)] if text(word)? == "sentinel" => {
            Some(Role::Sentinel(masters.iter().filter_map(text).collect()))
        }
        [word, ..] if is_name_of_replica(word) => Some(Role::Replica),
        _ => None,
    }
}

/// Whether the reply to `HELLO` is that of a node of a cluster.
pub(crate) fn is_cluster_node(hello: &Value) -> bool {
    field(hello, "mode").and_then(text).as_deref() == Some("cluster")
}

/// Whether the reply to `HELLO` is that of a replica.
pub(crate) fn is_replica(hello: &Value) -> bool {
    field(hello, "role").is_some_and(is_name_of_replica)
}

fn is_name_of_replica(role: &Value) -> bool {
    matches!(text(role).as_deref(), Some("slave" | "replica"))
}

/// Without timeouts: the caller has one for the whole call.
fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

async fn connect(
    client: &Client,
    config: &AsyncConnectionConfig,
    address: &Address,
) -> RedisResult<MultiplexedConnection> {
    let connected = client.get_multiplexed_async_connection_with_config(config);
    if address.tls.is_none() {
        return connected.await;
    }
    // A server without TLS takes the handshake for an incomplete command, and waits for the rest.
    tokio::select! {
        biased;
        connection = connected => connection,
        () = until_plain_reply(address) => Err(errors::without_tls()),
    }
}

/// Whether a server without TLS accepts connections, of which it may serve none.
pub(crate) async fn accepts(address: &Address) -> bool {
    match (&address.endpoint, &address.tls) {
        (Endpoint::Tcp(HostPort { host, port }), None) => {
            TcpStream::connect((host.as_str(), *port)).await.is_ok()
        }
        _ => false,
    }
}

/// Returns when a server has replied to a request without TLS, which has no credentials. Never returns for another.
async fn until_plain_reply(address: &Address) {
    tokio::time::sleep(PLAIN_CHECK_AFTER).await;
    let plain = address.without_tls();
    let ping = async {
        let client = client(&plain, ProtocolVersion::RESP2).ok()?;
        let config = config();
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connection.await.ok()?;
        // An error such as NOAUTH is also a reply.
        connection.send_packed_command(&cmd("PING")).await.ok()
    };
    let replied = tokio::time::timeout(PLAIN_REPLY_TIMEOUT, ping).await;
    if !matches!(replied, Ok(Some(_))) {
        std::future::pending::<()>().await;
    }
}

fn is_hello_unknown(error: &RedisError) -> bool {
    let unknown = |words: &str| words.contains("unknown command") && words.contains("HELLO");
    error.kind() == redis::ErrorKind::RESP3NotSupported
        || error.code() == Some("NOPROTO")
        || error.detail().is_some_and(unknown)
}

/// Built for every connection, so that renewed certificates are read.
fn client(address: &Address, protocol: ProtocolVersion) -> Result<Client> {
    let mut settings = RedisConnectionInfo::default()
        .set_protocol(protocol)
        .set_db(i64::from(address.db))
        // Restricted users may not run this command, and its refusal would appear in the log of the server.
        .set_skip_set_lib_name();
    let password = address.password.as_ref().map(Secret::expose);
    if let Some(user) = &address.user {
        // The server accepts any password of a user that has none.
        settings = settings
            .set_username(user)
            .set_password(password.unwrap_or_default());
    } else if let Some(password) = password {
        settings = settings.set_password(password);
    }
    let addr = match (&address.endpoint, &address.tls) {
        (Endpoint::Unix(path), _) => ConnectionAddr::Unix(path.clone()),
        (Endpoint::Tcp(HostPort { host, port }), None) => ConnectionAddr::Tcp(host.clone(), *port),
        (Endpoint::Tcp(HostPort { host, port }), Some(_)) => ConnectionAddr::TcpTls {
            host: host.clone(),
            port: *port,
            insecure: false,
            tls_params: None,
        },
    };
    let info = addr.into_connection_info().map_err(|error| {
        Error::new(ErrorKind::InvalidConfig, "the store URL cannot be used").with_source(error)
    })?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_EVERY);
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(keepalive);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    match &address.tls {
        Some(certificates) => secure(info, certificates),
        None => Client::open(info).map_err(|error| errors::no_connection(&error, address)),
    }
}

#[cfg(feature = "tls")]
fn secure(info: ConnectionInfo, certificates: &Certificates) -> Result<Client> {
    use redis::{ClientTlsConfig, TlsCertificates};
    use rustls::crypto::{CryptoProvider, ring};

    // The client library uses the provider of the process, and panics if the dependencies of the program do not
    // determine it.
    if CryptoProvider::get_default().is_none() {
        let _ = ring::default_provider().install_default();
    }
    let root_cert = certificates
        .ca
        .as_ref()
        .map(|ca| pem_bytes(ca, "ClientBuilder::tls_ca", "CERTIFICATE"));
    let client_tls = certificates.identity.as_ref().map(|(cert, key)| {
        Ok::<_, Error>(ClientTlsConfig {
            client_cert: pem_bytes(cert, IDENTITY, "CERTIFICATE")?,
            client_key: pem_bytes(key, IDENTITY, "PRIVATE KEY")?,
        })
    });
    let certificates = TlsCertificates {
        root_cert: root_cert.transpose()?,
        client_tls: client_tls.transpose()?,
    };
    Client::build_with_tls(info, certificates).map_err(|error| {
        let message = "the certificates or keys for TLS cannot be used; check ca, cert and key of the URL, or \
                       tls_ca and tls_identity";
        Error::new(ErrorKind::InvalidConfig, message).with_source(error)
    })
}

/// The setting of the certificate and the key of the client.
#[cfg(feature = "tls")]
const IDENTITY: &str = "ClientBuilder::tls_identity";

/// The bytes of a certificate or key. They must contain `mark`, as the client library ignores other files. `setting`
/// is the one that a text is from.
#[cfg(feature = "tls")]
fn pem_bytes(pem: &Pem, setting: &str, mark: &str) -> Result<Vec<u8>> {
    let (what, read) = match pem {
        Pem::File(path) => (
            format!("the file {path:?} named in the store URL"),
            std::fs::read(path),
        ),
        Pem::Text(text) => (
            format!("the PEM text of {setting}"),
            Ok(text.expose().into()),
        ),
    };
    let wrong = |why: String| Error::new(ErrorKind::InvalidConfig, format!("{what} {why}"));
    let bytes = read.map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if bytes
        .windows(mark.len())
        .any(|part| part == mark.as_bytes())
    {
        Ok(bytes)
    } else {
        Err(wrong(format!("contains no {mark} block")))
    }
}

#[cfg(not(feature = "tls"))]
fn secure(_info: ConnectionInfo, _certificates: &Certificates) -> Result<Client> {
    Err(Error::new(
        ErrorKind::Unsupported,
        "this build of leasehold has no TLS; enable the crate feature tls",
    ))
}
