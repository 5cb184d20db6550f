//! The environment variables of the command line, and the warning of one that has no effect.

use std::env;

use clap::CommandFactory as _;
use leasehold::store::distance;

use crate::args::Cli;

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
const KNOWN: [&str; 18] = [
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
pub(crate) fn warn_of_unknown(served: &[String]) {
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        if let Some(advice) = advice(&name, served) {
            note!("leasehold: the variable {name} has no effect: {advice}");
        }
    }
}

/// What to do about a variable. `None`: it is known, or not meant for this program.
fn advice(name: &str, served: &[String]) -> Option<String> {
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
    if let Some(option) = option(rest) {
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
fn option(name: &str) -> Option<String> {
    let name = name.to_ascii_lowercase().replace('_', "-");
    let cli = Cli::command();
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
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_variable_without_effect_has_advice() {
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
            assert_eq!(advice(name, &[]).as_deref(), Some(expected), "{name}");
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
            assert_eq!(advice(name, &[]), None, "{name}");
        }
        assert_eq!(
            advice("LEASEHOLD_PASSWORD_FILES", &["files=redis://h".to_owned()]),
            None
        );
    }

    /// All that the parser reads, all in the sources, and all in the documentation.
    #[test]
    fn every_variable_is_known() {
        let mut cli = Cli::command();
        cli.build();
        let mut named: Vec<String> = Vec::new();
        for subcommand in cli.get_subcommands().chain([&cli]) {
            let variables = subcommand.get_arguments().filter_map(|arg| arg.get_env());
            named.extend(variables.map(|name| name.to_str().unwrap().to_owned()));
        }
        assert!(named.len() > 10, "{named:?}");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let guide = fs::read_to_string(root.join("../../docs/cli.md")).unwrap();
        let mut texts = vec![crate::help::LEASEHOLD.to_owned(), guide.clone()];
        let mut directories = vec![root.join("src")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => directories.push(path),
                    // Its tests have misspelt ones.
                    false if path.ends_with("src/variables.rs") => {}
                    false => texts.push(fs::read_to_string(path).unwrap()),
                }
            }
        }
        for text in &texts {
            let parts = text.match_indices(PREFIX).map(|(at, _)| {
                let is_letter = |c: char| c == '_' || c.is_ascii_uppercase();
                let end = text[at..].find(|c| !is_letter(c));
                text[at..at + end.unwrap_or(text.len() - at)].to_owned()
            });
            named.extend(parts);
        }
        // The name of a store stands for all names.
        let is_example =
            |name: &str| [PREFIX, PASSWORD_OF, "LEASEHOLD_PASSWORD_NAME"].contains(&name);
        for name in &named {
            assert!(KNOWN.contains(&&**name) || is_example(name), "{name}");
        }
        for name in KNOWN {
            assert!(
                guide.contains(&format!("`{name}`")),
                "{name} is not documented"
            );
        }
    }
}
