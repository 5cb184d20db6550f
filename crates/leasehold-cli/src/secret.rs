//! Secrets from files, from the environment and from URLs.

use std::env;
use std::fs;
use std::path::Path;

use leasehold::Secret;
use percent_encoding::percent_decode_str;

use crate::exit::Failure;

/// The secret in a variable.
pub(crate) fn in_environment(variable: &str) -> Result<Option<Secret>, Failure> {
    match env::var(variable) {
        Ok(secret) => Ok((!secret.is_empty()).then(|| secret.into())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format!("{variable} is not UTF-8")))
        }
    }
}

/// The first line of a file, which contains a secret of this kind.
pub(crate) fn first_line(kind: &str, file: &Path) -> Result<Secret, Failure> {
    let (path, text) = (file.display(), text(kind, file)?);
    match text.lines().next() {
        Some(line) if !line.trim().is_empty() => Ok(line.into()),
        Some(_) => Err(Failure::usage(format!(
            "the first line of the {kind} {path} is empty"
        ))),
        None => Err(Failure::usage(format!("the {kind} {path} is empty"))),
    }
}

/// The text of a file of this kind.
pub(crate) fn text(kind: &str, file: &Path) -> Result<String, Failure> {
    let message = format!("the {kind} {} cannot be read", file.display());
    fs::read_to_string(file).map_err(|error| Failure::own(message, error))
}

/// The password in a URL. That of a PostgreSQL database may also be a parameter, and be in the URL of a parameter.
pub(crate) fn password_in(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let of_authority = || {
        let authority = rest.split(['/', '?', '#']).next()?;
        let (user, _) = authority.rsplit_once('@')?;
        let (_, password) = user.split_once(':')?;
        Some(decoded(password)).filter(|password| !password.is_empty())
    };
    let of_parameter = || {
        let (_, query) = rest.split_once('?')?;
        let mut parameters = query.split('&').filter_map(|it| it.split_once('='));
        parameters.find_map(|(name, value)| match name {
            "password" => Some(decoded(value)).filter(|password| !password.is_empty()),
            "listen" => password_in(&decoded(value)),
            _ => None,
        })
    };
    let has_parameters = scheme.starts_with("postgres");
    of_authority().or_else(|| has_parameters.then(of_parameter).flatten())
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_in_a_url_is_found() {
        for (url, password) in [
            ("redis://:secret@host", Some("secret")),
            ("redis://user:a%3Ab%40@host/0", Some("a:b@")),
            ("rediss://a:b@c@host", Some("b@c")),
            ("redlock://u:secret@a,b,c", Some("secret")),
            (
                "postgres://u:secret@host/db?sslmode=require",
                Some("secret"),
            ),
            ("postgresql://host/db?user=u&password=a%26b", Some("a&b")),
            (
                "postgres://u@h/db?listen=postgres://u:secret@d/db",
                Some("secret"),
            ),
            (
                "postgres://u@h/db?listen=postgres%3A%2F%2Fu%3Asecret%40d%2Fdb",
                Some("secret"),
            ),
            ("postgres://h/db?listen=postgres://d/db", None),
            ("redis://host", None),
            ("redis://user@host:6379/0", None),
            ("redis://user:@host", None),
            ("redis://host/a:b@c", None),
            ("sqlite:/tmp/a:b@c", None),
            ("memory:", None),
        ] {
            assert_eq!(password_in(url).as_deref(), password, "{url}");
        }
    }
}
