//! Addresses of nodes.

use std::fmt;

/// The address of a node, as the cluster announces it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct NodeAddr {
    pub(super) host: String,
    pub(super) port: u16,
}

impl NodeAddr {
    /// Parses `host:port`. A missing host is that of the node that was asked.
    pub(super) fn parse(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self::new(host, port.parse().ok()?, asked)
    }

    /// A host that is empty or `?` is that of the node that was asked: nodes send `?` if they are to announce a
    /// name and have none.
    pub(super) fn new(host: &str, port: u16, asked: &Self) -> Option<Self> {
        let host = match host {
            "" | "?" => &asked.host,
            host => host,
        };
        (port != 0).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for NodeAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}
