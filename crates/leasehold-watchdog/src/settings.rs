//! The settings of a node.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::Secret;

use crate::Error;
use crate::access::{Namespaces, Permission};
use crate::limits::Limits;

/// The settings of a [`Node`](crate::Node).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The name of the node, for people. The host name by default.
    pub name: String,
    /// The addresses at which it listens. At least one.
    pub listen: Vec<Listen>,
    /// The stores that it serves. At least one. It connects to no others.
    pub stores: Vec<StoreSettings>,
    /// Its certificate. Required for [`Listen::Tcp`].
    pub tls: Option<TlsFiles>,
    /// The tokens that authenticate clients over TCP.
    pub tokens: Vec<Token>,
    /// How long the leases of a silent client are renewed. 5 minutes by default.
    pub max_pause: Duration,
    /// Limits on clients and leases.
    pub limits: Limits,
    /// The address of its metrics and health checks. `None`: it serves none.
    pub metrics: Option<SocketAddr>,
    /// The mode of the files of its unix sockets. `0o600` by default.
    pub socket_mode: u32,
    /// Which users and groups of this machine may register locks of which namespaces. If it is empty, every user who
    /// can connect may. For clients on other machines see [`Token::namespaces`].
    pub allow: Vec<Permission>,
    /// Whether it uses the service manager that has started this process, if any: it notifies it when the node is
    /// ready, alive and about to stop, and has it keep the state for the next node. `true` by default.
    pub service_manager: bool,
}

impl Settings {
    /// The default settings of a node that listens at these addresses and serves these stores.
    #[must_use]
    pub fn new(listen: Vec<Listen>, stores: Vec<StoreSettings>) -> Self {
        let system = rustix::system::uname();
        Self {
            name: system.nodename().to_string_lossy().into_owned(),
            listen,
            stores,
            tls: None,
            tokens: Vec::new(),
            max_pause: Duration::from_secs(5 * 60),
            limits: Limits::default(),
            metrics: None,
            socket_mode: 0o600,
            allow: Vec::new(),
            service_manager: true,
        }
    }
}

/// An address at which a node listens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listen {
    /// `unix:PATH`: for processes on this machine, whose end the node notices.
    Unix(PathBuf),
    /// `tcp://HOST:PORT`: for clients on other machines, over TLS, with a [`Token`].
    Tcp {
        /// The host name or IP address.
        host: String,
        /// The port; 0 selects a free one.
        port: u16,
    },
    /// `systemd:`: the sockets that the service manager has opened.
    Systemd,
}

impl Listen {
    /// Parses an address.
    ///
    /// # Errors
    ///
    /// If the text has none of these forms.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(format!(
                "the address {text:?} is not unix:PATH, tcp://HOST:PORT or systemd:"
            ))
        };
        match text.split_once(':').ok_or_else(wrong)? {
            ("unix", path) if !path.is_empty() && !path.contains('\0') => {
                Ok(Self::Unix(PathBuf::from(path)))
            }
            ("tcp", rest) => {
                let rest = rest.strip_prefix("//").ok_or_else(wrong)?;
                let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
                let bare = host.trim_start_matches('[').trim_end_matches(']');
                // An IPv6 address needs brackets: its end would look like a port.
                if bare.is_empty() || bare.contains(':') != (bare != host) {
                    return Err(wrong());
                }
                Ok(Self::Tcp {
                    host: bare.to_owned(),
                    port: port.parse().map_err(|_| wrong())?,
                })
            }
            ("systemd", "") => Ok(Self::Systemd),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Systemd => f.write_str("systemd:"),
        }
    }
}

/// A store that a node serves, and its credentials.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct StoreSettings {
    /// A name that clients may use instead of the URL.
    pub name: Option<String>,
    /// Its URL, as for [`leasehold::store::open()`]. The user may differ from that of the clients.
    pub url: String,
    /// A password that is not in the URL.
    pub password: Option<Secret>,
    /// The password of the sentinels, if they need one.
    pub sentinel_password: Option<Secret>,
}

impl StoreSettings {
    /// A store with a URL, which clients use as well.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ..Self::default()
        }
    }
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may contain a password.
        f.debug_struct("StoreSettings")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The files of a certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The certificate, followed by the intermediate ones.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// The files of a certificate and of its private key.
    #[must_use]
    pub fn new(cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            cert: cert.into(),
            key: key.into(),
        }
    }
}

/// A token that authenticates clients over TCP. See [`Token::parse_file`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Token {
    /// The secret that a client must send.
    pub secret: Secret,
    /// A name for its clients, for people.
    pub name: String,
    /// The maximum number of its clients.
    pub clients: usize,
    /// The maximum number of their leases together.
    pub leases: usize,
    /// The namespaces whose locks they may register.
    pub namespaces: Namespaces,
}

impl Token {
    /// The shortest secret, in bytes.
    const SECRET_MIN: usize = 16;

    /// Parses a file of tokens: one per line, `TOKEN [clients=N] [leases=N] [name=NAME]
    /// [namespaces=NAMESPACE,...]`. Empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    ///
    /// For an invalid line, a repeated token, or a token of less than 16 bytes. No message quotes a token.
    pub fn parse_file(text: &str) -> Result<Vec<Self>, Error> {
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let token = Self::parse(line, number)?;
            if tokens
                .iter()
                .any(|other: &Self| other.secret == token.secret)
            {
                return Err(wrong_token(number, "an earlier line has the same token"));
            }
            tokens.push(token);
        }
        Ok(tokens)
    }

    fn parse(line: &str, number: usize) -> Result<Self, Error> {
        let mut words = line.split_whitespace();
        let secret = words.next().unwrap_or_default();
        if secret.len() < Self::SECRET_MIN {
            return Err(wrong_token(number, "a token has at least 16 bytes"));
        }
        let mut token = Self {
            secret: Secret::from(secret),
            name: format!("line-{number}"),
            clients: usize::MAX,
            leases: usize::MAX,
            namespaces: Namespaces::All,
        };
        for word in words {
            let limit = |text: &str| {
                let wrong = |_| wrong_token(number, "a limit is a whole number");
                text.parse().map_err(wrong)
            };
            match word.split_once('=') {
                Some(("clients", count)) => token.clients = limit(count)?,
                Some(("leases", count)) => token.leases = limit(count)?,
                Some(("name", name)) if !name.is_empty() => token.name = name.to_owned(),
                Some(("namespaces", names)) => {
                    let wrong =
                        || wrong_token(number, "namespaces= takes names with commas between them");
                    token.namespaces = Namespaces::parse(names).ok_or_else(wrong)?;
                }
                _ => {
                    let message =
                        "only clients=, leases=, name= and namespaces= may stand behind a token";
                    return Err(wrong_token(number, message));
                }
            }
        }
        Ok(token)
    }
}

fn wrong_token(line: usize, what: &str) -> Error {
    Error::new(format!("line {line} of the token file: {what}"))
}

#[cfg(test)]
mod tests;
