//! The store to connect to, and its credentials.

use std::env;
use std::path::PathBuf;

use leasehold::{Client, ClientBuilder, Secret};

use crate::args::StoreArgs;
use crate::exit::Failure;
use crate::secret;

/// Connects to the store that the arguments, the environment or the default name.
pub(crate) async fn connect(args: &StoreArgs, builder: ClientBuilder) -> Result<Client, Failure> {
    let builder = with_passwords(args, in_namespace(args, builder))?;
    Ok(builder.connect(&url(args)?).await?)
}

/// Settings with the passwords that the arguments and the environment name.
pub(crate) fn with_passwords(
    args: &StoreArgs,
    mut builder: ClientBuilder,
) -> Result<ClientBuilder, Failure> {
    if let Some(password) = password(args)? {
        builder = builder.password(password);
    }
    if let Some(password) = secret::in_environment("LEASEHOLD_SENTINEL_PASSWORD")? {
        builder = builder.sentinel_password(password);
    }
    Ok(builder)
}

/// Settings in the namespace that the arguments name.
pub(crate) fn in_namespace(args: &StoreArgs, builder: ClientBuilder) -> ClientBuilder {
    builder.namespace(&args.namespace).tenant(&args.tenant)
}

/// The store's URL.
pub(crate) fn url(args: &StoreArgs) -> Result<String, Failure> {
    match &args.store {
        Some(url) => {
            refuse_password_in_argv(url)?;
            Ok(url.clone())
        }
        None => default_store(),
    }
}

/// The store's password, if it is not in its URL.
pub(crate) fn password(args: &StoreArgs) -> Result<Option<Secret>, Failure> {
    match &args.password_file {
        Some(file) => secret::first_line("password file", file).map(Some),
        None => secret::in_environment("LEASEHOLD_PASSWORD"),
    }
}

/// Everybody on the machine can read the arguments of a process.
pub(crate) fn refuse_password_in_argv(url: &str) -> Result<(), Failure> {
    let in_argv = env::args().any(|arg| arg == url || arg.ends_with(&format!("={url}")));
    if in_argv && has_password(url) {
        return Err(Failure::usage(
            "a password in --store can be read by everybody on this machine; \
             set LEASEHOLD_STORE, LEASEHOLD_PASSWORD or LEASEHOLD_PASSWORD_FILE instead",
        ));
    }
    Ok(())
}

fn has_password(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority
        .rsplit_once('@')
        .and_then(|(user, _)| user.split_once(':'))
        .is_some_and(|(_, password)| !password.is_empty())
}

fn default_store() -> Result<String, Failure> {
    let state = env::var_os("XDG_STATE_HOME")
        .map(PathBuf::from)
        // The specification says to ignore relative ones.
        .filter(|directory| directory.is_absolute())
        .or_else(|| Some(env::home_dir()?.join(".local/state")))
        .filter(|directory| directory.is_absolute());
    let Some(state) = state else {
        return Err(Failure::usage(
            "there is no home directory for the locks; set XDG_STATE_HOME, or --store",
        ));
    };
    let file = state.join("leasehold/locks.db");
    match file.to_str() {
        Some(file) => Ok(format!("sqlite:{file}")),
        None => Err(Failure::usage(
            "the path of the state directory is not UTF-8; set XDG_STATE_HOME, or --store",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_seen_where_they_are() {
        for url in [
            "redis://:secret@host",
            "redis://user:secret@host/0",
            "rediss://a:b@c@host",
        ] {
            assert!(has_password(url), "{url}");
        }
        for url in [
            "redis://host",
            "redis://user@host:6379/0",
            "redis://user:@host",
            "redis://host/a:b@c",
            "sqlite:/tmp/a:b@c",
            "memory:",
        ] {
            assert!(!has_password(url), "{url}");
        }
    }
}
