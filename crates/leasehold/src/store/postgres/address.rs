//! Where a database is, as its URL says.
//!
//! ```text
//! postgres://[USER[:PASSWORD]@][HOST[:PORT],...][/DATABASE][?PARAMETER=VALUE&...]
//! ```
//!
//! The parameters are those of libpq, and `listen`: the direct way to the server, for notifications, where the hosts are a
//! pooler in transaction mode.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::hosts::Hosts;
use super::tls;
use crate::Result;
use crate::error::invalid;
use crate::store::options::OpenOptions;

/// The sockets of most systems.
const SOCKETS: &str = "/var/run/postgresql";

/// What this crate reads of the parameters itself.
const OWN: [&str; 5] = [
    "sslmode",
    "sslrootcert",
    "listen",
    "passfile",
    "synchronous_commit",
];

/// Where a database is. Its `Display` is its URL without a password.
pub(super) struct Address {
    /// For everything but notifications.
    pub(super) hosts: Hosts,
    /// For notifications, if the URL names others.
    pub(super) listen: Option<Hosts>,
    pub(super) tls: MakeRustlsConnect,
    /// What a commit waits for.
    pub(super) synchronous_commit: String,
    text: String,
}

impl Address {
    pub(super) fn parse(url: &str, options: &OpenOptions) -> Result<Self> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut own = HashMap::new();
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match OWN.iter().find(|own| **own == name) {
                Some(name) => {
                    own.insert(*name, decoded(value)?);
                }
                None => others.push(pair),
            }
        }
        let mode = own.get("sslmode").map_or("prefer", String::as_str);
        let driver_mode = match mode {
            "disable" | "prefer" | "require" => mode,
            "verify-ca" | "verify-full" => "require",
            _ => {
                return Err(invalid(
                    "sslmode in the store URL must be disable, prefer, require or verify-full",
                ));
            }
        };
        let driver_mode = format!("sslmode={driver_mode}");
        others.push(&driver_mode);
        let mut config = parse(&format!("{base}?{}", others.join("&")))?;
        let passfile = own.get("passfile").map(PathBuf::from);
        complete(&mut config, options, passfile);
        let listen = own.get("listen");
        let listen = listen.map(|listen| listen_config(listen, &config));
        let listen = listen.transpose()?;
        let synchronous_commit = match own.get("synchronous_commit").map_or("on", String::as_str) {
            level @ ("on" | "remote_apply" | "remote_write" | "local" | "off") => level.to_owned(),
            _ => {
                return Err(invalid(
                    "synchronous_commit in the store URL must be on, remote_apply, remote_write, local or off",
                ));
            }
        };
        Ok(Self {
            hosts: Hosts::of(&config),
            listen: listen.as_ref().map(Hosts::of),
            tls: tls::connector(
                mode.starts_with("verify"),
                own.get("sslrootcert").map(String::as_str),
                options,
            )?,
            synchronous_commit,
            text: redacted(url),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The URL without passwords, of the main address and of the one for notifications.
pub(super) fn redacted(url: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let rest = base.split_once("://").map_or(base, |(_, rest)| rest);
    let base = match rest.rsplit_once('@') {
        Some((user, rest)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("postgres://{user}@{rest}")
        }
        None => format!("postgres://{rest}"),
    };
    // The address for notifications may have a password; it is no part of the identity of the store.
    let is_public = |pair: &&str| {
        !pair.is_empty() && !pair.starts_with("password=") && !pair.starts_with("listen=")
    };
    let query: Vec<_> = query.split('&').filter(is_public).collect();
    if query.iter().any(|pair| pair.contains('@')) {
        // What follows a ? may be a part of the password.
        return "postgres://".to_owned();
    }
    match query.is_empty() {
        true => base,
        false => format!("{base}?{}", query.join("&")),
    }
}

/// Parses what the driver knows. Its error could quote a password.
fn parse(url: &str) -> Result<Config> {
    url.parse().map_err(|error: tokio_postgres::Error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let cause = match cause.starts_with("unknown option") || cause.starts_with("invalid value for option") {
            true => format!(" ({cause})"),
            false => String::new(),
        };
        invalid(format!(
            "the store URL must be as in postgres://USER@HOST:PORT/DATABASE, with special characters as %XX{cause}"
        ))
    })
}

/// Adds what options and variables say.
fn complete(config: &mut Config, options: &OpenOptions, passfile: Option<PathBuf>) {
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    if config.get_application_name().is_none() {
        config.application_name("leasehold");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(options.connect_timeout);
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        match variable("PGHOST") {
            Some(host) => config.host(host),
            None if Path::new(SOCKETS).is_dir() => config.host(SOCKETS),
            None => config.host("localhost"),
        };
    }
    let port = variable("PGPORT").and_then(|port| port.parse().ok());
    if let (true, Some(port)) = (config.get_ports().is_empty(), port) {
        config.port(port);
    }
    let given = options.username.as_deref().or(config.get_user());
    let user = given.map(str::to_owned).or_else(|| variable("PGUSER"));
    if let Some(user) = user {
        config.user(user);
    }
    if let (None, Some(database)) = (config.get_dbname(), variable("PGDATABASE")) {
        config.dbname(database);
    }
    if let Some(password) = &options.password {
        config.password(password.expose());
    } else if config.get_password().is_none()
        && let Some(password) = variable("PGPASSWORD").or_else(|| from_file(config, passfile))
    {
        config.password(password);
    }
}

/// The address for notifications: a server, or a URL. Its missing parts are those of the main address.
fn listen_config(listen: &str, main: &Config) -> Result<Config> {
    let mut config = match listen.contains("://") {
        true => parse(listen)?,
        false => parse(&format!("postgres://{listen}"))?,
    };
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    config.ssl_mode(main.get_ssl_mode());
    if let Some(timeout) = main.get_connect_timeout() {
        config.connect_timeout(*timeout);
    }
    if let (None, Some(user)) = (config.get_user(), main.get_user()) {
        config.user(user);
    }
    if let (None, Some(database)) = (config.get_dbname(), main.get_dbname()) {
        config.dbname(database);
    }
    if let (None, Some(password)) = (config.get_password(), main.get_password()) {
        config.password(password);
    }
    config.application_name("leasehold listener");
    Ok(config)
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The password of a file as libpq reads it.
fn from_file(config: &Config, passfile: Option<PathBuf>) -> Option<String> {
    let home = || Some(Path::new(&env::var_os("HOME")?).join(".pgpass"));
    let named = || variable("PGPASSFILE").map(PathBuf::from);
    let path = passfile.or_else(named).or_else(home)?;
    let meta = fs::metadata(&path).ok()?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;

        if meta.permissions().mode() & 0o077 != 0 {
            tracing::warn!(file = %path.display(), "others may read the password file, so it is not used; chmod 600");
            return None;
        }
    }
    let text = meta.is_file().then(|| fs::read_to_string(&path).ok())??;
    let user = config.get_user().map(str::to_owned);
    let user = user.or_else(|| variable("USER"))?;
    let database = config.get_dbname().unwrap_or(&user);
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(at, host)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(host) => (host.clone(), port),
            Host::Unix(path) if path == Path::new(SOCKETS) => ("localhost".to_owned(), port),
            Host::Unix(path) => (path.display().to_string(), port),
        }
    });
    hosts
        .map(|(host, port)| [host, port.to_string(), database.to_owned(), user.clone()])
        .find_map(|wanted| text.lines().find_map(|line| password_of(line, &wanted)))
}

/// The password in a line of a password file, if the line is for this host, port, database and user.
fn password_of(line: &str, wanted: &[String; 4]) -> Option<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == ':' && fields.len() < 5 {
            fields.push(String::new());
        } else if let Some(field) = fields.last_mut() {
            match character {
                '\\' => field.extend(characters.next()),
                other => field.push(other),
            }
        }
    }
    let is_for = |(field, wanted): (&String, &String)| field == "*" || field == wanted;
    let matches =
        !line.starts_with('#') && fields.len() == 5 && fields.iter().zip(wanted).all(is_for);
    matches.then(|| fields.pop())?
}

fn decoded(text: &str) -> Result<String> {
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err(invalid("a parameter in the store URL is not UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn no_text_of_an_address_has_a_password() {
        for (url, redacted) in [
            ("postgres://u:s3cret@h:5433/d", "postgres://u@h:5433/d"),
            ("postgresql://u:s3c/ret@h", "postgres://u@h"),
            (
                "postgres://h/d?password=s3cret&sslmode=require",
                "postgres://h/d?sslmode=require",
            ),
            (
                "postgres://h?listen=postgres%3A%2F%2Fu%3As3cret%40direct",
                "postgres://h",
            ),
            ("postgres:///d?host=/run/pg", "postgres:///d?host=/run/pg"),
            ("postgres://u:s3?cret@h", "postgres://"),
        ] {
            assert_eq!(super::redacted(url), redacted);
        }
        for url in [
            "postgres://u:s3cret@h:port",
            "postgres://u:s3cret@h?nothing=s3cret",
            "postgres://h?sslmode=s3cret",
        ] {
            let error = Address::parse(url, &OpenOptions::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_password_file_is_read_as_by_libpq() {
        let wanted = ["h", "5432", "d:b", "u"].map(str::to_owned);
        let password = |line| password_of(line, &wanted);
        assert_eq!(password(r"h:5432:d\:b:u:a:b\\c").as_deref(), Some(r"a:b\c"));
        assert_eq!(password("*:*:*:u:x").as_deref(), Some("x"));
        for line in ["", "#*:*:*:*:x", "h:5433:*:u:x", "h:5432:d:u:x", "*:*:*:*"] {
            assert_eq!(password(line), None, "{line}");
        }
    }
}
