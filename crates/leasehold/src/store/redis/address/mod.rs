//! The addresses of servers. Their URLs are parsed by `deployment`.

pub(crate) mod deployment;

use std::fmt;
use std::path::PathBuf;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::invalid;
use crate::store::options::OpenOptions;
use crate::{Result, Secret};

/// The advice is for a password with a slash, before which the host and a port seem to stand.
const ENCODING: &str =
    "in a user or password, write @ as %40, : as %3A, / as %2F, ? as %3F and # as %23";

/// The characters of a user name, a path or a value that are displayed without encoding.
const UNENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b'+');

/// A Redis server, a user and a database.
///
/// No error message quotes a part of a URL: a password with an unescaped `/`, `#` or `?` spills into the next
/// part. Its `Display` is a URL again, without the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) endpoint: Endpoint,
    /// `None`: without TLS, as over every socket.
    pub(crate) tls: Option<Certificates>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) db: u32,
}

/// How to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Tcp(HostPort),
    /// The path of a socket.
    Unix(PathBuf),
}

/// The host and the port of a server. An IPv6 address is without its brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HostPort {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The certificates of a connection over TLS. Without `ca` the authorities of the system are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Certificates {
    pub(crate) ca: Option<Pem>,
    /// The certificate of a client and its private key.
    pub(crate) identity: Option<(Pem, Pem)>,
}

/// A certificate or a key in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Pem {
    /// Read for every connection, so that a renewed one takes effect.
    File(PathBuf),
    Text(Secret),
}

impl Pem {
    /// The file in a URL.
    fn encoded(&self) -> Option<String> {
        match self {
            Self::File(path) => Some(percent_encoded(&path.to_string_lossy())),
            Self::Text(_) => None,
        }
    }
}

impl Address {
    /// Another server with the same user, database and certificates.
    pub(crate) fn at(&self, host: &str, port: u16) -> Self {
        let host = host.to_owned();
        Self {
            endpoint: Endpoint::Tcp(HostPort { host, port }),
            ..self.clone()
        }
    }

    /// Replaces what the options name: user, password and certificates.
    pub(crate) fn set_options(&mut self, options: &OpenOptions) -> Result<()> {
        let (ca, identity) = (&options.tls_ca, &options.tls_identity);
        if let Some(user) = &options.username {
            self.user = Some(user.clone()).filter(|user| !user.is_empty());
        }
        if let Some(password) = &options.password {
            self.password = Some(password.clone());
        }
        match &mut self.tls {
            Some(certificates) => {
                if let Some(ca) = ca {
                    certificates.ca = Some(Pem::Text(ca.as_str().into()));
                }
                if let Some((cert, key)) = identity {
                    let cert = Pem::Text(cert.as_str().into());
                    certificates.identity = Some((cert, Pem::Text(key.clone())));
                }
                Ok(())
            }
            None if ca.is_some() || identity.is_some() => Err(invalid(
                "certificates were given for a connection without TLS; use rediss:// or another URL with TLS",
            )),
            None => Ok(()),
        }
    }

    /// The same server without TLS and credentials.
    pub(crate) fn without_tls(&self) -> Self {
        Self {
            endpoint: self.endpoint.clone(),
            tls: None,
            user: None,
            password: None,
            db: 0,
        }
    }

    /// Writes the user as in a URL, with an `@`, if there is one.
    pub(crate) fn write_user(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            // A slash would end the authority.
            Some(user) => write!(f, "{}@", percent_encoded(user).replace('/', "%2F")),
            None => Ok(()),
        }
    }

    /// Host and port, or the path of a socket.
    pub(crate) fn server(&self) -> String {
        match &self.endpoint {
            Endpoint::Tcp(HostPort { host, port }) if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            Endpoint::Tcp(HostPort { host, port }) => format!("{host}:{port}"),
            Endpoint::Unix(path) => {
                let path = percent_encoded(&path.to_string_lossy());
                // Two slashes after the colon belong to the URL, so a path with two follows two.
                let slashes = if path.starts_with("//") { "//" } else { "" };
                format!("{slashes}{path}")
            }
        }
    }

    /// What stands after the question mark, and one parameter more.
    pub(crate) fn write_parameters(
        &self,
        f: &mut fmt::Formatter<'_>,
        extra: (&str, Option<String>),
    ) -> fmt::Result {
        let certificates = self.tls.as_ref();
        let ca = certificates.and_then(|certificates| certificates.ca.as_ref());
        let identity = certificates.and_then(|certificates| certificates.identity.as_ref());
        let ca = ("ca", ca.and_then(Pem::encoded));
        let cert = ("cert", identity.and_then(|(cert, _)| cert.encoded()));
        let key = ("key", identity.and_then(|(_, key)| key.encoded()));
        write_query(f, [extra, ca, cert, key])
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Endpoint::Unix(_) = self.endpoint {
            write!(f, "redis+unix:{}", self.server())?;
            let db = (self.db != 0).then(|| self.db.to_string());
            let user = self.user.as_deref().map(percent_encoded);
            return write_query(f, [("db", db), ("user", user)]);
        }
        let secure = if self.tls.is_some() { "s" } else { "" };
        write!(f, "redis{secure}://")?;
        self.write_user(f)?;
        write!(f, "{}/{}", self.server(), self.db)?;
        self.write_parameters(f, ("", None))
    }
}

fn parse_unix(rest: &str) -> Result<Address> {
    if !cfg!(unix) {
        let message = "this system cannot connect to unix sockets; use redis://HOST:PORT";
        return Err(invalid(message));
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let path = match path.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return Err(invalid(
                "the path after redis+unix:// must start with a slash; user and password do not \
                 stand before it: add ?user=USER and give the password separately",
            ));
        }
        None => path,
    };
    let path = decoded(path)?;
    if path.is_empty() || path.contains('\0') {
        return Err(invalid(
            "the store URL has no path of a socket, as in redis+unix:/run/redis/redis.sock",
        ));
    }
    let [db, user] = parameters(&pairs(query), ["db", "user"]).ok_or_else(|| {
        invalid("the only parameters of a redis+unix URL are db and user, each once")
    })?;
    Ok(Address {
        endpoint: Endpoint::Unix(path.into()),
        tls: None,
        user: user
            .map(decoded)
            .transpose()?
            .filter(|user| !user.is_empty()),
        password: None,
        db: db.map_or(Ok(0), parse_db)?,
    })
}

fn parse_certificates(query: &[&str]) -> Result<Certificates> {
    let files = parameters(query, ["ca", "cert", "key"]).ok_or_else(|| {
        invalid("the only parameters of a rediss:// URL are ca, cert and key, each once")
    })?;
    let path = |text: &str| match decoded(text)? {
        path if path.is_empty() => Err(invalid("a parameter of the store URL names no file")),
        path => Ok(Pem::File(path.into())),
    };
    let [ca, cert, key] = files.map(|file| file.map(path).transpose());
    let identity = match (cert?, key?) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        _ => {
            return Err(invalid(
                "the parameters cert and key of a rediss:// URL need each other",
            ));
        }
    };
    Ok(Certificates { ca: ca?, identity })
}

fn parse_db(text: &str) -> Result<u32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| {
        let message = "the database in the store URL must be a number, as in redis://HOST:6379/0";
        match text.contains('@') {
            true => invalid(format!("{message}; {ENCODING}")),
            false => invalid(message),
        }
    })
}

/// The parameters of a query.
fn pairs(query: &str) -> Vec<&str> {
    query.split('&').filter(|pair| !pair.is_empty()).collect()
}

/// The values of the named parameters. `None` if there is another one, or one twice.
fn parameters<'a, const N: usize>(
    query: &[&'a str],
    names: [&str; N],
) -> Option<[Option<&'a str>; N]> {
    let mut values = [None; N];
    for pair in query {
        let (name, value) = pair.split_once('=')?;
        let position = names.iter().position(|known| *known == name)?;
        if values[position].replace(value).is_some() {
            return None;
        }
    }
    Some(values)
}

pub(crate) fn decoded(text: &str) -> Result<String> {
    let bytes = percent_decode_str(text);
    let text = bytes.decode_utf8();
    text.map(String::from)
        .map_err(|_| invalid("a percent-encoded part of the store URL is not UTF-8"))
}

pub(crate) fn percent_encoded(text: &str) -> String {
    utf8_percent_encode(text, UNENCODED).to_string()
}

fn write_query<const N: usize>(
    f: &mut fmt::Formatter<'_>,
    parameters: [(&str, Option<String>); N],
) -> fmt::Result {
    let mut mark = '?';
    for (name, value) in parameters {
        if let Some(value) = value {
            write!(f, "{mark}{name}={value}")?;
            mark = '&';
        }
    }
    Ok(())
}
