//! The password of the store: its setting, and the store to which it may be sent.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, absolute};

use leasehold::__private::store::{redacted_url, without_user};
use leasehold::Secret;

use crate::args::StoreArgs;
use crate::exit::Failure;
use crate::secret;
use crate::variables::{PASSWORD, PASSWORD_FILE, PASSWORD_STORE};

/// The password of the programs of PostgreSQL. Commands of a run inherit it as any other program does.
const PGPASSWORD: &str = "PGPASSWORD";

/// The setting that contains the password of the store.
#[derive(Debug, PartialEq, Eq)]
enum Setting<'a> {
    /// `--password-file`.
    Option(&'a Path),
    /// `LEASEHOLD_PASSWORD_FILE`.
    FileVariable(&'a Path),
    /// `LEASEHOLD_PASSWORD`.
    Variable,
    /// The URL of the store.
    Url(String),
    /// A variable from a run at another store.
    Withheld(&'static str),
    /// Two variables, one of which may be from a run at another store.
    Ambiguous,
    None,
}

impl<'a> Setting<'a> {
    fn of(args: &'a StoreArgs) -> Self {
        let inherited = env::var_os(PASSWORD_FILE);
        let file = args.password_file.as_deref();
        let (option, file) = match file {
            Some(file) if inherited.as_deref() == Some(file.as_os_str()) => (None, Some(file)),
            option => (option, None),
        };
        let is_set = env::var_os(PASSWORD).is_some_and(|password| !password.is_empty());
        let url = args.store.as_deref().unwrap_or_default();
        let of_password = env::var_os(PASSWORD_STORE);
        let may_send = may_send(of_password.as_deref(), url);
        match (option, file, secret::password_in(url)) {
            (Some(option), ..) => Self::Option(option),
            // It is for this store, wherever a variable comes from.
            (None, _, Some(password)) => Self::Url(password),
            // The user has set one of them for this store.
            (None, Some(_), None) if is_set && of_password.is_some_and(|it| it.is_empty()) => {
                Self::Ambiguous
            }
            (None, Some(file), None) if may_send => Self::FileVariable(file),
            (None, None, None) if may_send && is_set => Self::Variable,
            (None, Some(_), None) => Self::Withheld(PASSWORD_FILE),
            (None, None, None) if is_set => Self::Withheld(PASSWORD),
            (None, None, None) => Self::None,
        }
    }
}

/// The store's password, if it is not in its URL.
pub(crate) fn password(args: &StoreArgs) -> Result<Option<Secret>, Failure> {
    match Setting::of(args) {
        Setting::Option(file) | Setting::FileVariable(file) => {
            secret::first_line("password file", file).map(Some)
        }
        Setting::Variable => secret::in_environment(PASSWORD),
        Setting::Ambiguous => Err(Failure::usage(format!(
            "{PASSWORD} and {PASSWORD_FILE} are both set, and one of them may be for another store; unset that one"
        ))),
        Setting::Url(_) | Setting::Withheld(_) | Setting::None => Ok(None),
    }
}

/// The setting of a password that the store has refused, as messages describe it.
pub(crate) fn describe(args: &StoreArgs) -> String {
    let source = match Setting::of(args) {
        Setting::Option(file) | Setting::FileVariable(file) => file.display().to_string(),
        Setting::Variable => PASSWORD.to_owned(),
        Setting::Url(_) => args.origin.to_string(),
        Setting::Withheld(variable) => {
            return format!(
                "{variable} was not sent, because {PASSWORD_STORE} names another store; unset {PASSWORD_STORE} to \
                 send it"
            );
        }
        Setting::None if is_postgres(args) && env::var_os(PGPASSWORD).is_some() => {
            PGPASSWORD.to_owned()
        }
        Setting::None if is_postgres(args) => {
            return format!(
                "without {PASSWORD}, {PASSWORD_FILE} and {PGPASSWORD} the password is that of ~/.pgpass or PGPASSFILE"
            );
        }
        Setting::Ambiguous | Setting::None => {
            return format!("no password was given: set {PASSWORD} or {PASSWORD_FILE}");
        }
    };
    format!("the password is from {source}")
}

/// Whether the password was not sent, because it is for another store.
pub(crate) fn is_withheld(args: &StoreArgs) -> bool {
    matches!(Setting::of(args), Setting::Withheld(_))
}

/// The variables with the credentials that a nested run needs besides those of this process. The command gets the URL
/// of the store without its password. `None` removes a variable.
///
/// A password that a variable of this process does not contain is for its store only.
pub(crate) fn of_command(args: &StoreArgs) -> Vec<(&'static str, Option<OsString>)> {
    let absolute = |file: &Path| absolute(file).unwrap_or_else(|_| file.to_owned()).into();
    let (file, password) = match Setting::of(args) {
        Setting::Option(file) => (Some(absolute(file)), None),
        Setting::Url(password) => (None, Some(password.into())),
        Setting::FileVariable(file) => return vec![(PASSWORD_FILE, Some(absolute(file)))],
        Setting::Variable | Setting::Withheld(_) | Setting::Ambiguous | Setting::None => {
            return Vec::new();
        }
    };
    let Some(store) = args.store.as_deref().and_then(canonical_url) else {
        return Vec::new();
    };
    vec![
        (PASSWORD_FILE, file),
        (PASSWORD, password),
        (PASSWORD_STORE, Some(store.into())),
    ]
}

/// Whether the store also takes its password from the settings of the programs of PostgreSQL.
fn is_postgres(args: &StoreArgs) -> bool {
    let url = args.store.as_deref();
    url.is_some_and(|url| url.starts_with("postgres"))
}

/// Whether a password in the environment may be sent to a store: it is for this store, or for no particular one.
fn may_send(of_password: Option<&OsStr>, url: &str) -> bool {
    match of_password {
        Some(store) if !store.is_empty() => {
            let store = store.to_str().and_then(canonical_url);
            store.is_some() && store == canonical_url(url)
        }
        _ => true,
    }
}

/// The URL of a store in its one form, without user and password.
fn canonical_url(url: &str) -> Option<String> {
    Some(without_user(&redacted_url(url).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inherited_password_is_for_one_store_only() {
        let of_command = |url: &str| canonical_url(url).map(OsString::from);
        for (outer, nested, may) in [
            ("redis://:pw@a", "redis://a:6379/0", true),
            ("redis://alice:pw@a", "redis://bob@a", true),
            ("redis://:pw@a", "redis://b", false),
            ("redis://:pw@a", "redis://a@b", false),
            ("redis://:pw@a", "redis://a:6380", false),
            ("rediss://:pw@a", "redis://a", false),
            ("redlock://:pw@a,b,c", "redlock://a,b,c", true),
            ("redlock://:pw@a,b,c", "redlock://a,b,x", false),
            ("redis+unix:/a?user=x", "redis+unix:/a", true),
            ("postgresql://u:pw@a/db", "postgres://a/db", true),
            ("postgres://u:pw@a/db", "postgres://u@b/db", false),
            ("postgres://u:pw@a/db", "postgres://u@a/other", false),
            (
                "redis+unix:/a?db=1&user=x",
                "redis+unix:/a?user=y&db=1",
                true,
            ),
            ("redis+unix:/a?user=x", "redis+unix:/b?user=x", false),
            ("redis://:pw@a", "no store", false),
            ("redis://:pw@a", "", false),
        ] {
            let outer = of_command(outer).unwrap();
            assert_eq!(may_send(Some(&outer), nested), may, "{outer:?}, {nested}");
            assert!(may_send(None, nested) && may_send(Some(OsStr::new("")), nested));
        }
        // As a user writes it.
        assert!(may_send(Some(OsStr::new("redis://a")), "redis://a:6379/0"));
        assert!(!may_send(Some(OsStr::new("no store")), "no store"));
    }
}
