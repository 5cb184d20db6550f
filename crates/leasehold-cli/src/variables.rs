//! The environment variables of the command line, and the warning of one that has no effect.

use std::env;

use clap::Command;
use leasehold::store::distance;

pub(crate) const STORE: &str = "LEASEHOLD_STORE";
pub(crate) const NAMESPACE: &str = "LEASEHOLD_NAMESPACE";
pub(crate) const TENANT: &str = "LEASEHOLD_TENANT";
pub(crate) const PASSWORD: &str = "LEASEHOLD_PASSWORD";
pub(crate) const PASSWORD_FILE: &str = "LEASEHOLD_PASSWORD_FILE";
/// The store, without user and password, that alone gets the password from a run around this process.
pub(crate) const PASSWORD_STORE: &str = "LEASEHOLD_PASSWORD_STORE";
/// Before the name of a further store of a watchdog, in capitals.
pub(crate) const PASSWORD_OF: &str = "LEASEHOLD_PASSWORD_";
pub(crate) const SENTINEL_PASSWORD: &str = "LEASEHOLD_SENTINEL_PASSWORD";
pub(crate) const WATCHDOG: &str = "LEASEHOLD_WATCHDOG";
pub(crate) const WATCHDOG_STORE: &str = "LEASEHOLD_WATCHDOG_STORE";
pub(crate) const WATCHDOG_TOKEN_FILE: &str = "LEASEHOLD_WATCHDOG_TOKEN_FILE";
pub(crate) const WATCHDOG_CA_FILE: &str = "LEASEHOLD_WATCHDOG_CA_FILE";
pub(crate) const WATCHDOG_LISTEN: &str = "LEASEHOLD_WATCHDOG_LISTEN";
pub(crate) const LOG: &str = "LEASEHOLD_LOG";
/// The name of the lock of a run.
pub(crate) const NAME: &str = "LEASEHOLD_NAME";
pub(crate) const TOKEN: &str = "LEASEHOLD_TOKEN";
/// The term of a leader.
pub(crate) const TERM: &str = "LEASEHOLD_TERM";
/// The id of the lease of a run, by which a command of it recognizes its lock.
pub(crate) const LEASE: &str = "LEASEHOLD_LEASE";
pub(crate) const DEADLINE: &str = "LEASEHOLD_DEADLINE";

/// All of them. The last ones are set for the command of a run.
pub(crate) const KNOWN: [&str; 18] = [
    STORE,
    NAMESPACE,
    TENANT,
    PASSWORD,
    PASSWORD_FILE,
    PASSWORD_STORE,
    SENTINEL_PASSWORD,
    WATCHDOG,
    WATCHDOG_STORE,
    WATCHDOG_TOKEN_FILE,
    WATCHDOG_CA_FILE,
    WATCHDOG_LISTEN,
    LOG,
    NAME,
    TOKEN,
    TERM,
    LEASE,
    DEADLINE,
];

const PREFIX: &str = "LEASEHOLD_";

/// The beginning of names that are compared with the known ones, even if the prefix is misspelt.
const MISSPELT_PREFIX: &str = "LEAS";

/// How many letters of a name may be wrong.
const TYPOS_MAX: usize = 2;

/// Prints which variables have no effect, also with `--quiet`: with a misspelt `LEASEHOLD_STORE` the lock would be in
/// another store, and exclude nobody. `served` are the further stores of a watchdog, as `--serve` has them.
pub(crate) fn warn_of_unknown(served: &[String], cli: &Command) {
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if let Some(advice) = advice(&name, served, cli) {
            note!("leasehold: the variable {name} has no effect: {advice}");
        }
    }
}

/// What to do about a variable. `None`: it is known, or not meant for this program.
fn advice(name: &str, served: &[String], cli: &Command) -> Option<String> {
    if KNOWN.contains(&name) || !name.starts_with(MISSPELT_PREFIX) || is_of_kubernetes(name) {
        return None;
    }
    let of_store = |store: &String| {
        let store = store.split('=').next().unwrap_or_default();
        name == format!("{PASSWORD_OF}{}", store.to_ascii_uppercase())
    };
    if served.iter().any(of_store) {
        return None;
    }
    if let Some(known) = similar(name) {
        return Some(format!("did you mean {known}?"));
    }
    let rest = name.strip_prefix(PREFIX)?;
    if name.starts_with(PASSWORD_OF) {
        return None;
    }
    if let Some(option) = option(rest, cli) {
        return Some(format!("use the option {option}"));
    }
    if rest.contains("URL") || rest.contains("REDIS") {
        return Some(format!("did you mean {STORE}?"));
    }
    Some("leasehold --help lists those that have one".to_owned())
}

/// The known variable with a similar name, or with the same beginning.
fn similar(name: &str) -> Option<&'static str> {
    let distances = KNOWN.map(|known| (distance(name, known), known));
    let (typos, known) = distances.into_iter().min()?;
    let is_extended = name.starts_with("LEASEHOLD_STORE_");
    let rest = name.strip_prefix(PREFIX).map_or(name.len(), str::len);
    match typos <= TYPOS_MAX.min(rest / 3) {
        true => Some(known),
        false => is_extended.then_some(STORE),
    }
}

/// The option whose name a variable has.
fn option(name: &str, cli: &Command) -> Option<String> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let mut options = cli.get_subcommands().flat_map(|it| it.get_arguments());
    let is_option = options.any(|option| option.get_long() == Some(&name));
    is_option.then(|| format!("--{name}"))
}

/// Whether Kubernetes sets a variable of this name, for a service whose name begins with `leasehold`.
fn is_of_kubernetes(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_")
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

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn a_variable_without_effect_has_advice() {
        let option = |name: &'static str| Arg::new(name).long(name);
        let run = Command::new("run").args([option("ttl"), option("socket-mode")]);
        let cli = Command::new("leasehold").subcommand(run);
        let store = "did you mean LEASEHOLD_STORE?";
        for (name, expected) in [
            ("LEASEHOLD_STORES", store),
            ("LEASHOLD_STORE", store),
            ("LEASEHOLDSTORE", store),
            ("LEASEHOLD_STORE_URL", store),
            ("LEASEHOLD_REDIS_URL", store),
            ("LEASEHOLD_URL", store),
            ("LEASEHOLD_NAMESPCE", "did you mean LEASEHOLD_NAMESPACE?"),
            (
                "LEASEHOLD_PASSWORD_FLIE",
                "did you mean LEASEHOLD_PASSWORD_FILE?",
            ),
            ("LEASEHOLD_TTL", "use the option --ttl"),
            ("LEASEHOLD_SOCKET_MODE", "use the option --socket-mode"),
            (
                "LEASEHOLD_COLOUR",
                "leasehold --help lists those that have one",
            ),
        ] {
            assert_eq!(advice(name, &[], &cli).as_deref(), Some(expected), "{name}");
        }
        for name in [
            "LEASE",
            "LEASE_TIME",
            "PATH",
            "LEASEHOLD_PASSWORD_ORDERS",
            "LEASEHOLD_PORT",
            "LEASEHOLD_PORT_6379_TCP_ADDR",
            "LEASEHOLD_WATCHDOG_SERVICE_HOST",
        ] {
            assert_eq!(advice(name, &[], &cli), None, "{name}");
        }
        assert_eq!(
            advice(
                "LEASEHOLD_PASSWORD_FILES",
                &["files=redis://h".to_owned()],
                &cli
            ),
            None
        );
    }
}
