//! The address of a node.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Error, ErrorKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix(PathBuf),
    /// A host and its port. Always TLS.
    Tcp(String, u16),
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let tcp = text.strip_prefix("tcp://").and_then(|authority| {
            let (host, port) = authority.rsplit_once(':')?;
            let host = host
                .strip_prefix('[')
                .map_or(Some(host), |host| host.strip_suffix(']'))?;
            let port = port.parse().ok().filter(|port| *port > 0)?;
            let plain = !host.is_empty() && !host.contains(['/', '@', '?', '#', '[', ']']);
            plain.then(|| Self::Tcp(host.to_owned(), port))
        });
        tcp.ok_or_else(|| {
            let message =
                format!("{text:?} is not the address of a watchdog: unix:PATH or tcp://HOST:PORT");
            Error::new(ErrorKind::InvalidConfig, message)
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "tcp://{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        for text in ["unix:/run/a b.sock", "tcp://host:1", "tcp://[::1]:7420"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "tcp://host",
            "tcp://:1",
            "tcp://a@b:1",
            "tcp://h:0",
            "http://h:1",
            "tcp://[::1:1",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{text}");
        }
    }
}
