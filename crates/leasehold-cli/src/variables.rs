//! The environment variables of the command line, and the warning of one that has no effect.

use std::env;
use std::ffi::OsString;
use std::fmt;

use clap::Command;
use leasehold::__private::store::distance;

/// Declares the variables, and a list of all of them.
macro_rules! variables {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: &str = $text;)*

        /// All variables. The last ones are set for the command of a run.
        pub(crate) const KNOWN: &[&str] = &[$($name),*];
    };
}

variables! {
    STORE = "LEASEHOLD_STORE";
    NAMESPACE = "LEASEHOLD_NAMESPACE";
    TENANT = "LEASEHOLD_TENANT";
    PASSWORD = "LEASEHOLD_PASSWORD";
    PASSWORD_FILE = "LEASEHOLD_PASSWORD_FILE";
    /// The store, without user and password, that alone gets the password from a run around this process.
    PASSWORD_STORE = "LEASEHOLD_PASSWORD_STORE";
    SENTINEL_PASSWORD = "LEASEHOLD_SENTINEL_PASSWORD";
    WATCHDOG = "LEASEHOLD_WATCHDOG";
    WATCHDOG_STORE = "LEASEHOLD_WATCHDOG_STORE";
    WATCHDOG_TOKEN_FILE = "LEASEHOLD_WATCHDOG_TOKEN_FILE";
    WATCHDOG_CA_FILE = "LEASEHOLD_WATCHDOG_CA_FILE";
    WATCHDOG_LISTEN = "LEASEHOLD_WATCHDOG_LISTEN";
    LOG = "LEASEHOLD_LOG";
    /// The name of the lock of a run.
    NAME = "LEASEHOLD_NAME";
    TOKEN = "LEASEHOLD_TOKEN";
    /// The tokens of several locks.
    TOKENS = "LEASEHOLD_TOKENS";
    /// The term of a leader.
    TERM = "LEASEHOLD_TERM";
    /// The id of the lease of a run, by which a command of it recognizes its lock.
    LEASE = "LEASEHOLD_LEASE";
    /// The same of the runs around that run.
    OUTER = "LEASEHOLD_OUTER";
    DEADLINE = "LEASEHOLD_DEADLINE";
    /// The number among the holders of a semaphore.
    SLOT = "LEASEHOLD_SLOT";
}

/// Before the name of a further store of a watchdog, in capitals.
pub(crate) const PASSWORD_OF: &str = "LEASEHOLD_PASSWORD_";

const PREFIX: &str = "LEASEHOLD_";

/// The beginning of names that are compared with the known ones, even if the rest of the prefix is misspelt.
const PREFIX_START: &str = "LE";

/// How many letters of a name may be wrong.
const TYPOS_MAX: usize = 2;

/// The beginning of names, behind the prefix, that are for a part of the URL of a store elsewhere.
const SERVER: [&str; 5] = ["ADDR", "HOST", "PORT", "SERVER", "USER"];

/// What a variable without an effect was probably meant to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Intended {
    Variable(&'static str),
    Option(String),
    Unknown,
}

impl fmt::Display for Intended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(known) => write!(f, "did you mean {known}?"),
            Self::Option(option) => write!(f, "use the option {option}"),
            Self::Unknown => f.write_str("leasehold --help lists those that have one"),
        }
    }
}

/// The variables that are set and have no effect. `served` are the further stores of a watchdog, as `--serve` has them.
pub(crate) fn without_effect(served: &[String], cli: &Command) -> Vec<(String, Intended)> {
    let variable = |(name, value): (OsString, OsString)| {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let intended = intended(&name, &value, served, cli)?;
        Some((name.into_owned(), intended))
    };
    env::vars_os().filter_map(variable).collect()
}

/// What a variable without an effect was meant to be. `None`: it is known, or not meant for this program.
fn intended(name: &str, value: &str, served: &[String], cli: &Command) -> Option<Intended> {
    if KNOWN.contains(&name) || is_of_kubernetes(name, value) {
        return None;
    }
    let of_store = |store: &String| {
        let store = store.split('=').next().unwrap_or_default();
        name == format!("{PASSWORD_OF}{}", store.to_ascii_uppercase())
    };
    if served.iter().any(of_store) {
        return None;
    }
    if let Some(known) = similar(&name.to_ascii_uppercase()) {
        return Some(Intended::Variable(known));
    }
    if name.starts_with(PASSWORD_OF) {
        return None;
    }
    if is_store(value) && is_of_prefix(&name.to_ascii_uppercase()) {
        return Some(Intended::Variable(STORE));
    }
    let rest = name.strip_prefix(PREFIX)?;
    if let Some(option) = option(rest, cli) {
        return Some(Intended::Option(option));
    }
    let is_of_server = SERVER.into_iter().any(|it| rest.starts_with(it));
    let mut kinds = ["URL", "REDIS", "POSTGRES"].into_iter();
    if is_of_server || kinds.any(|it| rest.contains(it)) {
        return Some(Intended::Variable(STORE));
    }
    Some(Intended::Unknown)
}

/// The known variable with a similar name, or with the same beginning. `name` is in capitals.
fn similar(name: &str) -> Option<&'static str> {
    if !name.starts_with(PREFIX_START) {
        return None;
    }
    let distances = KNOWN.iter().map(|known| (distance(name, known), *known));
    let (typos, known) = distances.min()?;
    let is_extended = name.starts_with("LEASEHOLD_STORE_");
    let rest = name.strip_prefix(PREFIX).map_or(name.len(), str::len);
    match typos <= TYPOS_MAX.min(rest / 3) {
        true => Some(known),
        false => is_extended.then_some(STORE),
    }
}

/// Whether a name has the prefix of the known ones, perhaps misspelt. `name` is in capitals.
fn is_of_prefix(name: &str) -> bool {
    let prefix = name.split_inclusive('_').next().unwrap_or_default();
    name.starts_with(PREFIX_START) && distance(prefix, PREFIX) <= TYPOS_MAX
}

/// Whether a value is the URL of a store that several processes can share.
fn is_store(value: &str) -> bool {
    let schemes = ["sqlite:", "redis+unix:"];
    let is_local = schemes.into_iter().any(|scheme| value.starts_with(scheme));
    let schemes = [
        "postgres",
        "etcd",
        "zookeeper",
        "s3",
        "gs",
        "az",
        "redis",
        "redlock",
    ];
    let is_remote = schemes.into_iter().any(|scheme| value.starts_with(scheme));
    is_local || is_remote && value.contains("://")
}

/// The option whose name a variable has.
fn option(name: &str, cli: &Command) -> Option<String> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let mut options = cli.get_subcommands().flat_map(|it| it.get_arguments());
    let is_option = options.any(|option| option.get_long() == Some(&name));
    is_option.then(|| format!("--{name}"))
}

/// Whether Kubernetes sets a variable of this name, for a service whose name begins with `leasehold`.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    name.contains("_SERVICE_")
        || name.contains("_PORT_")
        || name.ends_with("_PORT") && value.contains("://")
}

/// A variable that the parser reads as text, and whose value is not UTF-8.
pub(crate) fn not_utf8() -> Option<&'static str> {
    let is_invalid = |name: &&str| matches!(env::var(name), Err(env::VarError::NotUnicode(_)));
    let read = [
        STORE,
        NAMESPACE,
        TENANT,
        WATCHDOG,
        WATCHDOG_STORE,
        WATCHDOG_LISTEN,
    ];
    read.into_iter().find(is_invalid)
}
