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

use url::{Host, ParseError, Url};

use super::{
    Address, ENCODING, Endpoint, HostPort, decoded, pairs, parse_certificates, parse_db,
    parse_unix, percent_encoded,
};
use crate::error::invalid;
use crate::store::options::OpenOptions;
use crate::{Error, Result, Secret};

/// The default port of a Redis server.
const PORT: u16 = 6379;

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
        if text.chars().any(char::is_control) {
            return Err(invalid("the store URL contains a control character"));
        }
        if text.contains('#') {
            return Err(invalid(
                "the store URL contains a #; in a password or path, write it as %23",
            ));
        }
        if let Some(socket) = text.strip_prefix("redis+unix:") {
            return parse_unix(socket).map(Self::Single);
        }
        let parts = Parts::of(text.trim_end_matches(' '));
        match parts.scheme {
            "redis" | "rediss" if names_several_hosts(text) => Err(parts.names_one_server()),
            "redis" | "rediss" => parts
                .address(parts.hosts, PORT, parts.path)
                .map(Self::Single),
            "redis+sentinel" | "rediss+sentinel" => parts.sentinel(),
            "redis+cluster" | "rediss+cluster" => parts.cluster(),
            "redlock" | "redlocks" => parts.masters(),
            _ => Err(invalid(
                "the URL of a Redis store must start with redis://, rediss:// or redis+unix:, as in redis://HOST:6379",
            )),
        }
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

/// The parts of a URL.
struct Parts<'a> {
    scheme: &'a str,
    tls: bool,
    /// With the `@`, or empty.
    user: &'a str,
    hosts: &'a str,
    /// Without the first slash.
    path: &'a str,
    query: Vec<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let at = authority.rfind('@').map_or(0, |at| at + 1);
        let (user, hosts) = authority.split_at(at);
        Self {
            scheme,
            tls: scheme.starts_with("rediss") || scheme == "redlocks",
            user,
            hosts,
            path,
            query: pairs(query),
        }
    }

    /// Removes a parameter from the query.
    fn take(&mut self, name: &str) -> Result<Option<String>> {
        let is = |pair: &mut &str| pair.split_once('=').is_some_and(|(key, _)| key == name);
        let own: Vec<_> = self.query.extract_if(.., is).collect();
        if own.len() > 1 {
            return Err(invalid(format!(
                "the store URL has the parameter {name} twice"
            )));
        }
        let value = own.first().and_then(|pair| pair.split_once('='));
        value.map(|(_, value)| decoded(value)).transpose()
    }

    /// The address of one server. The rest of the query is for TLS.
    fn address(&self, server: &str, default_port: u16, db: &str) -> Result<Address> {
        let url = Url::parse(&format!("redis://{}{server}/", self.user));
        let url = url.map_err(|error| match error {
            ParseError::InvalidPort => invalid_port(),
            _ => invalid(format!(
                "the store URL has no valid host and port; {ENCODING}"
            )),
        })?;
        let host = match url.host() {
            Some(Host::Domain(name)) if !name.is_empty() && !name.contains('%') => name.to_owned(),
            Some(Host::Ipv4(number)) => number.to_string(),
            Some(Host::Ipv6(number)) => number.to_string(),
            _ => {
                return Err(invalid(
                    "the store URL has no host, as in redis://HOST:6379",
                ));
            }
        };
        let user = Some(url.username()).filter(|user| !user.is_empty());
        let port = url.port().unwrap_or(default_port);
        if port == 0 {
            return Err(invalid_port());
        }
        if !self.tls && !self.query.is_empty() {
            return Err(invalid(
                "a redis:// URL takes no parameters after ?; certificates need rediss://, and a password is set by \
                 ClientBuilder::password",
            ));
        }
        let tls = self.tls.then(|| parse_certificates(&self.query));
        Ok(Address {
            endpoint: Endpoint::Tcp(HostPort { host, port }),
            tls: tls.transpose()?,
            user: user.map(decoded).transpose()?,
            password: url.password().map(decoded).transpose()?.map(Secret::from),
            db: match db {
                "" => 0,
                db => parse_db(db.trim_start_matches('/'))?,
            },
        })
    }

    /// The address of each server.
    fn addresses(&self, default_port: u16, db: &str) -> Result<Vec<Address>> {
        let servers: Vec<_> = self.hosts.split(',').collect();
        if servers.len() > SERVERS_MAX {
            return Err(invalid("the store URL names more than 64 servers"));
        }
        if servers.contains(&"") {
            let scheme = self.scheme;
            let path = if scheme.ends_with("sentinel") {
                "/MASTER"
            } else {
                ""
            };
            return Err(invalid(format!(
                "the store URL has an empty host, it must be as in {scheme}://HOST,HOST,HOST{path}"
            )));
        }
        let mut addresses = Vec::with_capacity(servers.len());
        for server in servers {
            let address = self.address(server, default_port, db)?;
            if addresses.contains(&address) {
                return Err(invalid(
                    "the store URL names a server twice; name each once",
                ));
            }
            addresses.push(address);
        }
        Ok(addresses)
    }

    /// The error of a list of hosts in the URL of one server.
    fn names_one_server(&self) -> Error {
        let (scheme, masters) = (self.scheme, if self.tls { "redlocks" } else { "redlock" });
        invalid(format!(
            "a {scheme}:// URL names one server; write {scheme}+sentinel://HOST,HOST,HOST/MASTER for the master that \
             sentinels name, {scheme}+cluster://HOST,HOST for a cluster, or {masters}://HOST,HOST,HOST for many \
             independent masters"
        ))
    }

    fn sentinel(mut self) -> Result<Deployment> {
        let user = self.take("sentinel-user")?;
        let (master, db) = self.path.split_once('/').unwrap_or((self.path, ""));
        let sentinels = self.addresses(SENTINEL_PORT, db)?;
        let master = decoded(master)?;
        if master.is_empty() || master.chars().any(char::is_control) {
            return Err(invalid(
                "the store URL does not name the master that the sentinels watch, as in \
                 redis+sentinel://HOST,HOST,HOST/mymaster",
            ));
        }
        Ok(Deployment::Sentinel(SentinelSet {
            sentinels,
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

/// Whether the part of a URL behind user and password is a list.
fn names_several_hosts(text: &str) -> bool {
    let (_, rest) = text.split_once("//").unwrap_or_default();
    // A password may contain any of these.
    let rest = rest.rsplit('@').next().unwrap_or_default();
    let hosts = rest.split(['/', '?']).next().unwrap_or_default();
    hosts.contains(',')
}

fn invalid_port() -> Error {
    invalid(format!(
        "the port in the store URL is not a number from 1 to 65535; {ENCODING}"
    ))
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
    let secure = if first.tls.is_some() { "s" } else { "" };
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
