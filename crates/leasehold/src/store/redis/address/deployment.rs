//! Deployments of Redis servers, as their URLs name them.
//!
//! | URL | deployment |
//! |---|---|
//! | `redis://`, `rediss://`, `redis+unix:` | one server |
//! | `redis+sentinel://[USER[:PASSWORD]@]HOST[:PORT],.../MASTER[/DB][?sentinel-user=USER]` | the master that sentinels name |
//! | `redis+cluster://[USER[:PASSWORD]@]HOST[:PORT],...` | a cluster, found by any of its nodes |
//! | `redlock://[USER[:PASSWORD]@]HOST[:PORT],...[/DB][?longest-ttl=90s]` | many independent masters |
//!
//! `rediss+sentinel://`, `rediss+cluster://` and `redlocks://` are the same over TLS, and take the
//! parameters of `rediss://`.

use std::fmt;
use std::time::Duration;

use leasehold_core::Ttl;

use super::{Address, PORT, decoded, invalid, percent_encoded};
use crate::store::options::OpenOptions;
use crate::{Result, Secret};

/// The default port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// The maximum number of servers in a URL.
const SERVERS_MAX: usize = 64;

/// A deployment of servers. Its `Display` is a URL again, without a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deployment {
    /// One server.
    Single(Address),
    /// The master that sentinels name.
    Sentinel(SentinelSet),
    /// A cluster, by any of its nodes.
    Cluster(Vec<Address>),
    /// Many independent masters.
    Masters(Masters),
}

/// Sentinels, and the master that they monitor. Its `Display` is a URL, without a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SentinelSet {
    /// Their addresses, each with the user and the database for the master. There is at least one.
    pub(crate) sentinels: Vec<Address>,
    /// The name of the master.
    pub(crate) master: String,
    /// The user and the password for the sentinels, if they require them.
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
}

/// Many masters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Masters {
    /// Their addresses.
    pub(crate) nodes: Vec<Address>,
    /// The longest ttl that is used with them, if the URL names it.
    pub(crate) longest_ttl: Option<Ttl>,
}

impl Deployment {
    /// Parses a URL.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let parse: fn(_) -> Result<Self> =
            match text.split_once("://").map_or("", |(scheme, _)| scheme) {
                "redis+sentinel" | "rediss+sentinel" => Parts::sentinel,
                "redis+cluster" | "rediss+cluster" => Parts::cluster,
                "redlock" | "redlocks" => Parts::masters,
                _ => return Address::parse(text).map(Self::Single),
            };
        if text.contains('#') {
            return Err(invalid(
                "the store URL contains a #; in a password, write it as %23",
            ));
        }
        parse(Parts::of(text)?)
    }

    /// Parses a URL. User, password and certificates in the options replace those in the URL, and the password for
    /// sentinels is from there.
    pub(crate) fn of(url: &str, options: &OpenOptions) -> Result<Self> {
        let mut deployment = Self::parse(url)?;
        if let Self::Sentinel(set) = &mut deployment {
            set.password.clone_from(&options.sentinel_password);
        }
        let all = match &mut deployment {
            Self::Single(address) => std::slice::from_mut(address),
            Self::Sentinel(set) => &mut set.sentinels,
            Self::Cluster(seeds) => seeds,
            Self::Masters(masters) => &mut masters.nodes,
        };
        for address in all {
            address.set_options(options)?;
        }
        Ok(deployment)
    }
}

/// The parts of a URL with many servers.
struct Parts<'a> {
    tls: bool,
    /// With the `@`, or empty.
    user: &'a str,
    servers: Vec<&'a str>,
    /// Without the first slash.
    path: &'a str,
    query: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Result<Self> {
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let (user, servers) = authority.split_at(at);
        let servers: Vec<_> = servers.split(',').collect();
        if servers.len() > SERVERS_MAX {
            return Err(invalid("the store URL names more than 64 servers"));
        }
        if servers.iter().any(|server| server.is_empty()) {
            let path = if scheme.ends_with("sentinel") {
                "/MASTER"
            } else {
                ""
            };
            return Err(invalid(&format!(
                "the store URL has an empty host, it must be as in {scheme}://HOST,HOST,HOST{path}"
            )));
        }
        Ok(Self {
            tls: scheme.starts_with("rediss") || scheme == "redlocks",
            user,
            servers,
            path,
            query: query.split('&').filter(|pair| !pair.is_empty()).collect(),
        })
    }

    /// Removes a parameter from the query.
    fn take(&mut self, name: &str) -> Result<Option<String>> {
        let is = |pair: &mut &str| pair.split_once('=').is_some_and(|(key, _)| key == name);
        let own: Vec<_> = self.query.extract_if(.., is).collect();
        if own.len() > 1 {
            let message = format!("the store URL has the parameter {name} twice");
            return Err(invalid(&message));
        }
        let value = own.first().and_then(|pair| pair.split_once('='));
        value.map(|(_, value)| decoded(value)).transpose()
    }

    /// The address of each server. The rest of the query is for TLS.
    fn addresses(&self, default_port: u16, db: &str) -> Result<Vec<Address>> {
        let (scheme, user) = (if self.tls { "rediss" } else { "redis" }, self.user);
        let query = self.query.join("&");
        let mut addresses = Vec::with_capacity(self.servers.len());
        for server in &self.servers {
            let mark = if query.is_empty() { "" } else { "?" };
            let url = format!("{scheme}://{user}{server}/{db}{mark}{query}");
            let address = Address::with_default_port(&url, default_port)?;
            if addresses.contains(&address) {
                return Err(invalid(
                    "the store URL names a server twice; name each once",
                ));
            }
            addresses.push(address);
        }
        Ok(addresses)
    }

    fn sentinel(mut self) -> Result<Deployment> {
        let user = self.take("sentinel-user")?;
        let (master, db) = self.path.split_once('/').unwrap_or((self.path, ""));
        let master = decoded(master)?;
        if master.is_empty() || master.chars().any(char::is_control) {
            return Err(invalid(
                "the store URL does not name the master that the sentinels watch, as in \
                 redis+sentinel://HOST,HOST,HOST/mymaster",
            ));
        }
        Ok(Deployment::Sentinel(SentinelSet {
            sentinels: self.addresses(SENTINEL_PORT, db)?,
            master,
            user,
            password: None,
        }))
    }

    fn cluster(self) -> Result<Deployment> {
        if !matches!(self.path, "" | "0") {
            return Err(invalid("a cluster has no databases; leave out the path"));
        }
        Ok(Deployment::Cluster(self.addresses(PORT, "")?))
    }

    fn masters(mut self) -> Result<Deployment> {
        let longest_ttl = self.take("longest-ttl")?;
        let longest_ttl = longest_ttl.as_deref().map(parse_ttl).transpose()?;
        let nodes = self.addresses(PORT, self.path)?;
        Ok(Deployment::Masters(Masters { nodes, longest_ttl }))
    }
}

/// A ttl such as `90s`, `500ms`, `2m` or `1h`.
fn parse_ttl(text: &str) -> Result<Ttl> {
    let at = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number = number.parse::<u64>().ok();
    let millis = millis.and_then(|unit| number?.checked_mul(unit));
    let ttl = millis.and_then(|millis| Ttl::checked(Duration::from_millis(millis)));
    ttl.ok_or_else(|| {
        invalid("longest-ttl in the store URL must be a time from 100ms to 24h, as in 90s")
    })
}

impl fmt::Display for Deployment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Single(address) => address.fmt(f),
            Self::Sentinel(set) => set.fmt(f),
            Self::Cluster(seeds) => write_many(f, ("redis", "+cluster"), seeds, "", ("", None)),
            Self::Masters(masters) => {
                let longest = masters.longest_ttl;
                let longest = longest.map(|ttl| format!("{}ms", ttl.as_millis()));
                let extra = ("longest-ttl", longest);
                write_many(f, ("redlock", ""), &masters.nodes, "", extra)
            }
        }
    }
}

impl fmt::Display for SentinelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let master = format!("/{}", percent_encoded(&self.master).replace('/', "%2F"));
        let user = self.user.as_deref().map(percent_encoded);
        let extra = ("sentinel-user", user);
        write_many(f, ("redis", "+sentinel"), &self.sentinels, &master, extra)
    }
}

fn write_many(
    f: &mut fmt::Formatter<'_>,
    (base, kind): (&str, &str),
    addresses: &[Address],
    path: &str,
    extra: (&str, Option<String>),
) -> fmt::Result {
    let Some(first) = addresses.first() else {
        return write!(f, "{base}{kind}://");
    };
    let secure = if first.tls().is_some() { "s" } else { "" };
    write!(f, "{base}{secure}{kind}://")?;
    first.write_user(f)?;
    let servers: Vec<_> = addresses.iter().map(Address::server).collect();
    write!(f, "{}{path}", servers.join(","))?;
    if first.db != 0 {
        write!(f, "/{}", first.db)?;
    }
    first.write_parameters(f, extra)
}

#[cfg(test)]
mod tests;
