//! The connection to the store that the arguments name.

use std::env;
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;

use leasehold::__private::store::redacted_url;
use leasehold::{Client, ClientBuilder, Error, ErrorKind};

use crate::args::{LockArgs, Origin, StoreArgs};
use crate::credentials;
use crate::default_store;
use crate::exit::Failure;
use crate::secret;
use crate::variables::{NAMESPACE, SENTINEL_PASSWORD, STORE, TENANT};

/// What follows from a store of one user for a job, and the fix.
const OF_RECORDS: &str = "; a start by another user or on another machine runs the job again; set LEASEHOLD_STORE to the \
                          store of all machines, or to this one";

/// The same for a listing of jobs.
const OF_LISTED: &str = "; jobs of other users and machines are not in it; set LEASEHOLD_STORE to the store of all \
                         machines, or to this one";

/// Connects to the store that the arguments, the environment or the default name.
pub(crate) async fn connect(args: &StoreArgs, builder: ClientBuilder) -> Result<Client, Failure> {
    let builder = with_settings(args, builder)?;
    let connected = builder.connect(&ready_url(args)?).await;
    connected.map_err(|error| failure(args, error))
}

/// The failure of an access to the store. Names the setting of a password that is wrong.
pub(crate) fn failure(args: &StoreArgs, error: Error) -> Failure {
    let detail = match error.kind() {
        ErrorKind::WrongPassword => Some(credentials::describe(args)),
        ErrorKind::NoPassword if credentials::is_withheld(args) => {
            Some(credentials::describe(args))
        }
        ErrorKind::SentinelPassword => Some(sentinel_password()),
        // Nobody has typed the URL just now.
        _ if args.origin == Origin::Machine => Some(from_origin(args)),
        ErrorKind::InvalidConfig if args.origin == Origin::Variable && error.store().is_none() => {
            Some(from_origin(args))
        }
        ErrorKind::InvalidName => of_variable(args),
        _ => None,
    };
    let failure = Failure::from(error);
    match detail {
        Some(detail) => failure.with_detail(&detail),
        None => failure,
    }
}

/// The variable of an invalid namespace or tenant, which are checked before any name.
fn of_variable(args: &StoreArgs) -> Option<String> {
    let set = [(NAMESPACE, &args.namespace), (TENANT, &args.tenant)];
    let set = set
        .into_iter()
        .filter(|(variable, value)| env::var(variable).as_ref() == Ok(value));
    let set: Vec<_> = set.map(|(variable, _)| variable).collect();
    (!set.is_empty()).then(|| format!("see {}", set.join(" and ")))
}

fn from_origin(args: &StoreArgs) -> String {
    format!("the URL is from {}", args.origin)
}

/// The setting of the password of the sentinels, as messages describe it.
fn sentinel_password() -> String {
    let is_set = env::var_os(SENTINEL_PASSWORD).is_some_and(|password| !password.is_empty());
    match is_set {
        true => format!("the password is from {SENTINEL_PASSWORD}"),
        false => format!("no password of the sentinels was given: set {SENTINEL_PASSWORD}"),
    }
}

/// Settings with the namespace and the passwords that the arguments and the environment name.
pub(crate) fn with_settings(
    args: &StoreArgs,
    builder: ClientBuilder,
) -> Result<ClientBuilder, Failure> {
    let mut builder = builder.namespace(&args.namespace).tenant(&args.tenant);
    if let Some(password) = credentials::password(args)? {
        builder = builder.password(password.expose());
    }
    if let Some(password) = secret::in_environment(SENTINEL_PASSWORD)? {
        builder = builder.sentinel_password(password.expose());
    }
    Ok(builder)
}

/// The store's URL.
pub(crate) fn url(args: &StoreArgs) -> Result<String, Failure> {
    let Some(url) = &args.store else {
        return Ok(format!("sqlite:{}", default_store::file()?));
    };
    let wrong = match args.origin {
        Origin::Variable if url.is_empty() => {
            format!("{STORE} is empty; unset it, or set it to the URL of a store")
        }
        _ if url.is_empty() => "--store is empty; is a variable of your script unset?".to_owned(),
        origin if url.contains("://") && url.contains(" #") => {
            format!("the store URL from {origin} contains a space and a comment; remove them")
        }
        origin if host_has_space(url) => {
            format!("the host in the store URL from {origin} contains a space; remove it")
        }
        _ => {
            let instead = "LEASEHOLD_STORE, LEASEHOLD_PASSWORD or LEASEHOLD_PASSWORD_FILE";
            refuse_password_in_argv("--store", url, instead)?;
            return Ok(url.clone());
        }
    };
    Err(Failure::usage(wrong))
}

/// Whether there is a space in the host of a URL.
fn host_has_space(url: &str) -> bool {
    let Some((scheme, rest)) = url.trim().split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    // The URL of a file has no host.
    scheme != "sqlite" && host.contains(' ')
}

/// The store's URL as messages have it: without its password.
pub(crate) fn redacted(args: &StoreArgs) -> String {
    let url = url(args).ok().and_then(|url| redacted_url(&url).ok());
    url.unwrap_or_else(|| "the store".to_owned())
}

/// Prints the store of a lock: with `--verbose`, and to a person at a terminal who has not named it. Always if nobody has
/// chosen it for the records of a job: other users and machines would run the job again.
pub(crate) fn print_store(store: &StoreArgs, lock: Option<&LockArgs>, relies_on_records: bool) {
    let is_named = matches!(store.origin, Origin::Option | Origin::Variable);
    let is_of_records = relies_on_records && store.origin == Origin::Default;
    let verbose = lock.is_some_and(|lock| lock.verbose);
    let is_worth =
        |lock: &LockArgs| verbose || !lock.quiet && !is_named && io::stderr().is_terminal();
    if !is_of_records && !lock.is_some_and(is_worth) {
        return;
    }
    // An invalid store is an error, and that names it.
    if !url(store).is_ok_and(|url| !url.starts_with("memory:")) {
        return;
    }
    let (url, origin, scope) = (redacted(store), store.origin, store.scope());
    let mut rest = match (verbose, is_of_records) {
        (true, _) => format!("; namespace {}, tenant {}", store.namespace, store.tenant),
        (false, false) => "; --store names another".to_owned(),
        (false, true) => String::new(),
    };
    if is_of_records {
        rest.push_str(lock.map_or(OF_LISTED, |_| OF_RECORDS));
    }
    note!("leasehold: the store is {url} ({origin}), {scope}{rest}");
}

/// The store's URL, with the directory of the default store in place. No other directory is created: behind a
/// misspelt path would be a store that no other program uses.
pub(crate) fn ready_url(args: &StoreArgs) -> Result<String, Failure> {
    if args.store.is_none() {
        default_store::create_directory()?;
    }
    url(args)
}

/// Everybody on the machine can read the arguments of a process. `instead` are the variables for a password.
pub(crate) fn refuse_password_in_argv(
    option: &str,
    url: &str,
    instead: &str,
) -> Result<(), Failure> {
    let of_option = format!("={url}");
    let in_argv = env::args_os().any(|arg| {
        let bytes = arg.as_bytes();
        bytes == url.as_bytes() || bytes.ends_with(of_option.as_bytes())
    });
    if in_argv && secret::password_in(url).is_some() {
        return Err(Failure::usage(format!(
            "a password in {option} can be read by all users of this machine; set {instead} instead"
        )));
    }
    Ok(())
}
