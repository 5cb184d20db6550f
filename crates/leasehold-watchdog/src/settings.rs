//! What a node is told when it starts.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::watchdog::wire::Secret;

use crate::Error;
use crate::access::{Namespaces, Permission};
use crate::limits::Limits;

/// For how long a silent client is kept, unless it is said otherwise.
const MAX_PAUSE: Duration = Duration::from_secs(5 * 60);

/// Who may come to a unix socket: its owner.
const SOCKET_MODE: u32 = 0o600;

/// How a [`Node`](crate::Node) is to work.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the node, for people. By default that of the machine.
    pub name: String,
    /// Where it listens.
    pub listen: Vec<Listen>,
    /// The stores it serves. It connects to no others.
    pub stores: Vec<StoreSettings>,
    /// Its certificate. Whoever listens at a [`Listen::Tcp`] needs one.
    pub tls: Option<TlsFiles>,
    /// Who is let in over TCP.
    pub tokens: Vec<Token>,
    /// For how long a silent client is kept.
    pub max_pause: Duration,
    /// How much it takes on.
    pub limits: Limits,
    /// Where it tells its figures, and how it is.
    pub metrics: Option<SocketAddr>,
    /// Who may come to its unix sockets, as the mode of their files.
    pub socket_mode: u32,
    /// Which users and groups of this machine may register locks of which namespaces. Without any, everybody
    /// may who may connect to the sockets. For others see [`Token::namespaces`].
    pub allow: Vec<Permission>,
    /// Whether it speaks with the service manager that has started this process, if one has: it says when
    /// it is ready, alive and about to stop, and has it keep what the next node is to know.
    pub service_manager: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: host_name(),
            listen: Vec::new(),
            stores: Vec::new(),
            tls: None,
            tokens: Vec::new(),
            max_pause: MAX_PAUSE,
            limits: Limits::default(),
            metrics: None,
            socket_mode: SOCKET_MODE,
            allow: Vec::new(),
            service_manager: true,
        }
    }
}

/// Where a node listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `unix:PATH`: the processes of this machine, which it sees end.
    Unix(PathBuf),
    /// `tcp://HOST:PORT`: others, over TLS, with a [`Token`].
    Tcp {
        /// The name or number of this machine that others use.
        host: String,
        /// The port; 0 takes one that is free.
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
    /// If it is none of these.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::new(format!(
                "the address {text:?} is none of unix:PATH, tcp://HOST:PORT and systemd:"
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
                // A number of the sixth version stands in brackets, or its end looks like a port.
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

/// A store that a node serves, and how it comes in there.
#[derive(Clone, Default)]
pub struct StoreSettings {
    /// By which its clients may call it, beside its URL.
    pub name: Option<String>,
    /// Its URL, as for [`leasehold::store::open`]. The user may be another than that of the clients.
    pub url: String,
    /// A password that is not in the URL.
    pub password: Option<String>,
    /// The password of the sentinels, if they ask for one.
    pub sentinel_password: Option<String>,
}

impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may have a password in it.
        f.debug_struct("StoreSettings")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The files of a certificate, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those between it and its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Lets clients in over TCP.
#[derive(Clone, Debug)]
pub struct Token {
    /// What a client must know.
    pub secret: Secret,
    /// The name of those who know it, for people.
    pub name: String,
    /// How many clients may come with it.
    pub clients: usize,
    /// How many leases they may have together.
    pub leases: usize,
    /// Of which namespaces they may register locks.
    pub namespaces: Namespaces,
}

impl Token {
    /// The shortest secret, in bytes.
    const SECRET_MIN: usize = 16;

    /// Parses a file of tokens: one per line, `TOKEN [clients=N] [leases=N] [name=NAME]
    /// [namespaces=NAMESPACE,...]`. Empty lines and those that begin with `#` are passed over.
    ///
    /// # Errors
    ///
    /// For a line that is none, or a token of less than 16 bytes. No message quotes one.
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
                .any(|other: &Self| other.secret.is(&token.secret))
            {
                return Err(wrong_token(
                    number,
                    "the token stands in an earlier line, too",
                ));
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
            secret: Secret::new(secret),
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

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
