//! The address of a Redis server by its parts.

use std::path::PathBuf;

use super::{Address, invalid};
use crate::Result;

/// The address of a Redis server by its parts, for a program that has them and no URL: see
/// [`ClientBuilder::connect_redis`](crate::ClientBuilder::connect_redis).
///
/// Nothing is encoded or parsed, as it is in a URL. User, password and certificates are settings of the
/// [`ClientBuilder`](crate::ClientBuilder).
///
/// No type of the `redis` crate is part of this API: a program may use another version of that crate than this one,
/// and an update there would otherwise be a breaking change here. What a `redis::ConnectionInfo` names has a
/// counterpart:
///
/// ```no_run
/// use leasehold::{Client, RedisAddress};
///
/// # async fn connect(ca_pem: String, password: String) -> leasehold::Result<()> {
/// let address = RedisAddress::tcp("db.example", 6380).tls().database(2);
/// let client = Client::builder()
///     .username("app")
///     .password(password)
///     .tls_ca(ca_pem)
///     .connect_redis(&address)
///     .await?;
/// # drop(client);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisAddress {
    endpoint: Endpoint,
    tls: bool,
    database: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Endpoint {
    Tcp { host: String, port: u16 },
    Unix { path: PathBuf },
}

impl RedisAddress {
    /// A server on a host, which is a name or an IP address.
    #[must_use]
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        let host = host.into();
        Self::of(Endpoint::Tcp { host, port })
    }

    /// A server on this machine, by the path of its unix socket.
    #[must_use]
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self::of(Endpoint::Unix { path })
    }

    const fn of(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            tls: false,
            database: 0,
        }
    }

    /// The same server over TLS. The authorities of the system are trusted, unless
    /// [`ClientBuilder::tls_ca`](crate::ClientBuilder::tls_ca) names others.
    #[must_use]
    pub const fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Another database than 0.
    #[must_use]
    pub const fn database(mut self, number: u32) -> Self {
        self.database = number;
        self
    }

    /// The address as a URL would name it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::InvalidConfig`](crate::ErrorKind::InvalidConfig) for parts that no server can have.
    pub(crate) fn to_address(&self) -> Result<Address> {
        match &self.endpoint {
            Endpoint::Tcp { port: 0, .. } => {
                Err(invalid("the port of a Redis server must not be 0"))
            }
            Endpoint::Tcp { host, port } => {
                let scheme = if self.tls { "rediss" } else { "redis" };
                let url = format!("{scheme}://{}:{port}/{}", in_url(host), self.database);
                let is_host = !host.contains(['@', '/', '\\', '?', '#', '%']);
                let address = is_host.then(|| Address::parse(&url).ok()).flatten();
                address
                    .ok_or_else(|| invalid(&format!("{host:?} is not the host of a Redis server")))
            }
            Endpoint::Unix { .. } if self.tls => Err(invalid("a unix socket has no TLS")),
            Endpoint::Unix { path }
                if path.as_os_str().is_empty()
                    || path.as_os_str().as_encoded_bytes().contains(&0) =>
            {
                Err(invalid(
                    "the path of a unix socket must not be empty or contain a zero byte",
                ))
            }
            Endpoint::Unix { path } => Ok(Address {
                endpoint: super::Endpoint::Unix { path: path.clone() },
                user: None,
                password: None,
                db: self.database,
            }),
        }
    }
}

/// An IPv6 address has brackets in a URL.
fn in_url(host: &str) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_a_url() {
        for (address, url) in [
            (RedisAddress::tcp("db", 7), "redis://db:7/0"),
            (RedisAddress::tcp("::1", 7).database(3), "redis://[::1]:7/3"),
            (RedisAddress::tcp("[::1]", 7).tls(), "rediss://[::1]:7/0"),
            (
                RedisAddress::unix("/run/r?.sock").database(2),
                "redis+unix:/run/r%3F.sock?db=2",
            ),
        ] {
            let address = address.to_address().unwrap();
            assert_eq!(address.to_string(), url);
            assert_eq!(address, Address::parse(url).unwrap());
        }
    }

    #[test]
    fn an_address_that_no_server_has_is_refused() {
        for address in [
            RedisAddress::tcp("", 7),
            RedisAddress::tcp("db", 0),
            RedisAddress::tcp("user@db", 7),
            RedisAddress::tcp("db:7", 7),
            RedisAddress::tcp("d b", 7),
            RedisAddress::tcp("db\n", 7),
            RedisAddress::tcp("db/1", 7),
            RedisAddress::unix(""),
            RedisAddress::unix("/run/r\0.sock"),
            RedisAddress::unix("/run/r.sock").tls(),
        ] {
            let error = address.to_address().unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidConfig, "{address:?}");
        }
    }
}
