//! The store to connect to, and its credentials.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use leasehold::{Client, ClientBuilder, Error, Secret};
use percent_encoding::percent_decode_str;

use crate::args::StoreArgs;
use crate::exit::Failure;
use crate::secret;
use crate::variables::{PASSWORD, PASSWORD_FILE, SENTINEL_PASSWORD, STORE};

/// The messages of the library for a wrong password, and for sentinels that refuse access.
const WRONG_PASSWORD: &str = "does not accept this user and password";
const REFUSED_BY_SENTINELS: &str = "the sentinels do not name the master";

/// Connects to the store that the arguments, the environment or the default name.
pub(crate) async fn connect(args: &StoreArgs, builder: ClientBuilder) -> Result<Client, Failure> {
    let builder = with_passwords(args, in_namespace(args, builder))?;
    let connected = builder.connect(&ready_url(args)?).await;
    connected.map_err(|error| failure(args, error))
}

/// The failure of an access to the store. Names the setting of a password that is wrong.
pub(crate) fn failure(args: &StoreArgs, error: Error) -> Failure {
    let failure = Failure::from(error);
    let message = failure.to_string();
    if !message.contains(WRONG_PASSWORD) {
        return failure;
    }
    let is_set = |variable| env::var_os(variable).is_some_and(|password| !password.is_empty());
    let source = match &args.password_file {
        _ if message.contains(REFUSED_BY_SENTINELS) => SENTINEL_PASSWORD.to_owned(),
        Some(file) => file.display().to_string(),
        None if is_set(PASSWORD) => PASSWORD.to_owned(),
        None => STORE.to_owned(),
    };
    failure.with_detail(&format!("the password is from {source}"))
}

/// Settings with the passwords that the arguments and the environment name.
pub(crate) fn with_passwords(
    args: &StoreArgs,
    mut builder: ClientBuilder,
) -> Result<ClientBuilder, Failure> {
    if let Some(password) = password(args)? {
        builder = builder.password(password);
    }
    if let Some(password) = secret::in_environment(SENTINEL_PASSWORD)? {
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
        None => {
            let file = default_file()?;
            Ok(format!("sqlite:{file}"))
        }
    }
}

/// The store's URL, with the directory of the default store in place. No other directory is created: behind a
/// misspelt path would be a store that no other program uses.
pub(crate) fn ready_url(args: &StoreArgs) -> Result<String, Failure> {
    if args.store.is_none() {
        let file = default_file()?;
        let directory = Path::new(&file).parent().unwrap_or(Path::new("/"));
        let mut builder = fs::DirBuilder::new();
        let created = builder.recursive(true).mode(0o700).create(directory);
        created.map_err(|error| {
            let directory = directory.display();
            Failure::own(
                format!("the state directory {directory} cannot be created"),
                error,
            )
        })?;
    }
    url(args)
}

/// The store's password, if it is not in its URL.
pub(crate) fn password(args: &StoreArgs) -> Result<Option<Secret>, Failure> {
    match &args.password_file {
        Some(file) => secret::first_line("password file", file).map(Some),
        None => secret::in_environment(PASSWORD),
    }
}

/// The credentials that a nested run needs besides the variables of this process: the command gets the URL of the
/// store without its password.
pub(crate) fn credentials_of_command(args: &StoreArgs) -> Vec<(&'static str, OsString)> {
    if let Some(file) = &args.password_file {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        return vec![(PASSWORD_FILE, file.into())];
    }
    let url = args.store.as_deref().unwrap_or_default();
    match (secret::in_environment(PASSWORD), password_in(url)) {
        (Ok(None), Some(password)) => vec![(PASSWORD, password.into())],
        _ => Vec::new(),
    }
}

/// Everybody on the machine can read the arguments of a process.
pub(crate) fn refuse_password_in_argv(url: &str) -> Result<(), Failure> {
    let of_option = format!("={url}");
    let in_argv = env::args_os().any(|arg| {
        let bytes = arg.as_bytes();
        bytes == url.as_bytes() || bytes.ends_with(of_option.as_bytes())
    });
    if in_argv && has_password(url) {
        return Err(Failure::usage(
            "a password in --store can be read by all users of this machine; \
             set LEASEHOLD_STORE, LEASEHOLD_PASSWORD or LEASEHOLD_PASSWORD_FILE instead",
        ));
    }
    Ok(())
}

fn has_password(url: &str) -> bool {
    password_in(url).is_some()
}

/// The password in a URL.
fn password_in(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    let password = percent_decode_str(password).decode_utf8_lossy();
    (!password.is_empty()).then(|| password.into_owned())
}

/// The file of the default store.
fn default_file() -> Result<String, Failure> {
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
        Some(file) => Ok(file.to_owned()),
        None => Err(Failure::usage(
            "the path of the state directory is not UTF-8; set XDG_STATE_HOME, or --store",
        )),
    }
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
