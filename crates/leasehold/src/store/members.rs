//! Where a cluster of equal members is, as its URL says.
//!
//! ```text
//! SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...][/PREFIX]
//! SCHEMEs://...[?ca=FILE&cert=FILE&key=FILE]
//! ```

use std::fmt;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use tokio_rustls::TlsConnector;

use super::options::OpenOptions;
use super::tls;
use crate::error::invalid;
use crate::{Error, ErrorKind, Result, Secret};

/// A service that has such URLs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// Its scheme. With an `s` it is over TLS.
    pub(super) scheme: &'static str,
    /// The default port of a member.
    pub(super) port: u16,
}

/// The default prefix of all keys.
const PREFIX: &str = "leasehold";

/// The names of the files in a URL.
const PARAMETERS: [&str; 3] = ["ca", "cert", "key"];

/// The number of members that a URL names at most.
const MEMBERS_MAX: usize = 64;

/// The advice is for a password with a slash, before which the host and a port seem to stand.
const ENCODING: &str =
    "in a user or password, write @ as %40, : as %3A, / as %2F, ? as %3F and # as %23";

/// Where a cluster is. Its `Display` is its URL without a password.
pub(super) struct Address {
    /// Hosts and ports.
    pub(super) members: Vec<(String, u16)>,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    /// The first part of all keys, with a slash at its end.
    pub(super) prefix: String,
    /// `None`: without TLS.
    pub(super) files: Option<Files>,
    service: Service,
    text: String,
}

/// The files of certificates. Without an authority those of the system are trusted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
}

impl Address {
    /// Parses a URL. No error quotes a part of it: a password with an unescaped character spills into the next part.
    pub(super) fn parse(service: Service, url: &str, options: &OpenOptions) -> Result<Self> {
        let Service { scheme, port } = service;
        if url.chars().any(|c| c.is_control() || c == '#') {
            return Err(invalid(
                "the store URL contains a control character or a #; write # as %23",
            ));
        }
        let files = match url.split_once("://") {
            Some((given, _)) if given == scheme => None,
            Some((given, _)) if given.strip_suffix('s') == Some(scheme) => Some(Files::default()),
            _ => {
                return Err(invalid(format!(
                    "the store URL must start with {scheme}:// or {scheme}s://, as in {scheme}://HOST:{port}"
                )));
            }
        };
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (_, rest) = base.split_once("://").unwrap_or_default();
        let (credentials, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        if credentials.contains('/') {
            return Err(invalid(format!(
                "the store URL has no valid host; {ENCODING}"
            )));
        }
        let (user, password) = match credentials.split_once(':') {
            Some((user, password)) => (user, Some(Secret::from(decoded(password)?))),
            None => (credentials, None),
        };
        let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let members: Result<Vec<_>> = hosts.split(',').map(|text| member(service, text)).collect();
        let prefix = match decoded(prefix)?.trim_matches('/') {
            "" => format!("{PREFIX}/"),
            prefix => format!("{prefix}/"),
        };
        let user = match &options.username {
            Some(user) => user.clone(),
            None => decoded(user)?,
        };
        let address = Self {
            members: members?,
            user: Some(user).filter(|user| !user.is_empty()),
            password: options.password.clone().or(password),
            prefix,
            files: files.map(|_| Files::parse(scheme, query)).transpose()?,
            service,
            text: redacted(url),
        };
        address.check(query, options)?;
        Ok(address)
    }

    fn check(&self, query: &str, options: &OpenOptions) -> Result<()> {
        let scheme = self.service.scheme;
        if self.members.len() > MEMBERS_MAX {
            return Err(invalid(format!(
                "the store URL names more than {MEMBERS_MAX} members"
            )));
        }
        if self.files.is_some() {
            return Ok(());
        }
        if !query.is_empty() {
            return Err(invalid(format!(
                "a {scheme}:// URL takes no parameters after ?; certificates need {scheme}s://"
            )));
        }
        if options.tls_ca.is_some() || options.tls_identity.is_some() {
            return Err(invalid(format!(
                "certificates were given for a connection without TLS; use {scheme}s://"
            )));
        }
        Ok(())
    }

    /// User and password, or neither.
    pub(super) fn credentials(&self) -> Result<Option<(&str, &Secret)>> {
        let scheme = self.service.scheme;
        match (&self.user, &self.password) {
            (Some(user), Some(password)) => Ok(Some((user, password))),
            (None, None) => Ok(None),
            (Some(_), None) => {
                let message =
                    "the user needs a password; give it by the options or LEASEHOLD_PASSWORD";
                Err(Error::new(ErrorKind::NoPassword, message))
            }
            (None, Some(_)) => Err(invalid(format!(
                "a password was given without a user; name it as in {scheme}://USER@HOST"
            ))),
        }
    }

    /// TLS by the files of the URL, or by the texts that replace them. `protocol` is its name in the handshake, if it has one.
    pub(super) fn tls(
        &self,
        options: &OpenOptions,
        protocol: Option<&str>,
    ) -> Result<Option<TlsConnector>> {
        let Some(files) = &self.files else {
            return Ok(None);
        };
        let roots = tls::roots(tls::authorities(options, files.ca.as_deref())?.as_deref())?;
        let named = match (&files.cert, &files.key) {
            (Some(cert), Some(key)) if options.tls_identity.is_none() => {
                Some((tls::text_of(cert)?, Secret::from(tls::text_of(key)?)))
            }
            _ => None,
        };
        let builder = tls::builder()?.with_root_certificates(roots);
        let identity = options.tls_identity.as_ref().or(named.as_ref());
        let mut config = tls::with_identity(builder, identity)?;
        config.alpn_protocols = protocol.map(Vec::from).into_iter().collect();
        Ok(Some(TlsConnector::from(Arc::new(config))))
    }
}

impl Files {
    fn parse(scheme: &str, query: &str) -> Result<Self> {
        let mut files = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, path) = pair.split_once('=').unwrap_or((pair, ""));
            let file = match name {
                "ca" => &mut files.ca,
                "cert" => &mut files.cert,
                "key" => &mut files.key,
                _ => {
                    return Err(invalid(format!(
                        "the only parameters of a {scheme}s:// URL are ca, cert and key"
                    )));
                }
            };
            *file = Some(decoded(path)?);
        }
        match files.cert.is_some() == files.key.is_some() {
            true => Ok(files),
            false => Err(invalid(format!(
                "the parameters cert and key of a {scheme}s:// URL need each other"
            ))),
        }
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

/// The URL without its password. In one that is wrong, what follows a ? may be a part of the password.
pub(super) fn redacted(url: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = base.split_once("://").unwrap_or(("", base));
    let is_parameter = |pair: &str| match pair.split_once('=') {
        Some((name, _)) => PARAMETERS.contains(&name),
        None => pair.is_empty(),
    };
    let has_parameters = query.split('&').all(is_parameter);
    if !has_parameters && query.contains('@') {
        return format!("{scheme}://");
    }
    let rest = match rest.rsplit_once('@') {
        Some((user, rest)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{user}@{rest}")
        }
        None => rest.to_owned(),
    };
    match has_parameters && !query.is_empty() {
        true => format!("{scheme}://{rest}?{query}"),
        false => format!("{scheme}://{rest}"),
    }
}

/// The host and the port of a member. An IPv6 address is in brackets.
fn member(service: Service, text: &str) -> Result<(String, u16)> {
    let (scheme, usual) = (service.scheme, service.port);
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or_default())),
        None => text
            .split_once(':')
            .map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    let port = port.map_or(Some(usual), |port| {
        port.parse().ok().filter(|port| *port > 0)
    });
    match port {
        Some(port) if !host.is_empty() && host.chars().all(is_host) => Ok((host.to_owned(), port)),
        _ => Err(invalid(format!(
            "the store URL has no valid host and port, as in {scheme}://HOST:{usual}; {ENCODING}"
        ))),
    }
}

fn decoded(text: &str) -> Result<String> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded
        .map(Into::into)
        .map_err(|_| invalid("a percent-encoded part of the store URL is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address> {
        let service = Service {
            scheme: "etcd",
            port: 2379,
        };
        Address::parse(service, url, &OpenOptions::default())
    }

    #[test]
    fn a_url_has_members_a_user_and_a_prefix() {
        let url = "etcds://app:s3c%2Fret@a,b:1,[::1]:2,[::2]/team/locks/?ca=/ca.pem";
        let address = parse(url).unwrap();
        let members = [("a", 2379), ("b", 1), ("::1", 2), ("::2", 2379)];
        assert_eq!(
            address.members,
            members.map(|(host, port)| (host.to_owned(), port))
        );
        let (user, password) = address.credentials().unwrap().unwrap();
        assert_eq!((user, password.expose()), ("app", "s3c/ret"));
        assert_eq!(address.prefix, "team/locks/");
        assert_eq!(address.files.unwrap().ca.as_deref(), Some("/ca.pem"));
        assert_eq!(parse("etcd://h").unwrap().prefix, "leasehold/");
        assert_eq!(
            redacted(url),
            "etcds://app@a,b:1,[::1]:2,[::2]/team/locks/?ca=/ca.pem"
        );
    }

    #[test]
    fn no_error_quotes_a_password() {
        for url in [
            "etcd://u:s3cret@",
            "etcd://u:s3/cret@h",
            "etcd://u:s3cret@h:port",
            "etcd://u:s3cret@h,",
            "etcd://u:s3cret@h?x=s3cret",
            "etcd://u:s3cret?x@h",
            "etcd://u:1?s3cret@h",
            "etcds://u:1?s3cret@h",
            "etcds://u:s3cret@h?cert=file",
            "etcd://u:s3#cret@h",
            "http://u:s3cret@h",
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            let error = error.at_store(redacted(url));
            assert!(!error.to_string().contains("cret"), "{error}");
        }
        let user = parse("etcd://u@h").unwrap();
        assert_eq!(
            user.credentials().unwrap_err().kind(),
            ErrorKind::NoPassword
        );
    }
}
