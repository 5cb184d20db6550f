//! The options of a lock, which `run`, `once`, `elect` and `hold` have in common.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use leasehold::ReplicaCount;
use leasehold::watchdog::Watchdog;

use crate::exit::{self, Failure};
use crate::secret::first_line;
use crate::{duration, variables};

/// The value that stands for the node on this machine, at its default socket.
const LOCAL: &str = "local";

/// How a lock is waited for, and its lease.
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// Do not wait: exit with 75 if another client holds the lock
    #[arg(short = 'n', long, aliases = ["nonblock", "nb"], conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait at most this time, then exit with 124; at least one attempt is made
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// A text for ls and show
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) label: String,
    /// Print the store, the holder that is waited for, refusals of the store, waiting time, holding time and token on stderr
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print only errors that make the exit code 125 to 127, a lost lock, processes that run on without it, settings without
    /// effect, and at a terminal what a job recorded
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// The time that the lock outlives a killed leasehold; renewed every third of it
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::parse_ttl,
        default_value = "30s",
        conflicts_with = "lease",
        help_heading = "Lease"
    )]
    pub(crate) ttl: Duration,
    /// A fixed lease of this time, which is not renewed
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl, help_heading = "Lease")]
    pub(crate) lease: Option<Duration>,
    /// The time that the lock stays taken at least, from its acquisition, also after a failed command; up to 24h
    ///
    /// So a machine whose clock is a little behind does not run a short job again. Ends early only by release --force,
    /// if the lock is lost, or if leasehold is killed.
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::within(..=duration::TTL_MAX, "at most 24h"),
        help_heading = "Lease"
    )]
    pub(crate) at_least: Option<Duration>,
    /// Number of replicas (or all) that must acknowledge the grant and each renewal
    #[arg(
        long,
        value_name = "N|all",
        allow_negative_numbers = true,
        help_heading = "Lease"
    )]
    pub(crate) replicas: Option<ReplicaCount>,
    /// The time limit for the replicas
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::within(Duration::from_millis(1).., "at least 1ms"),
        default_value = "1s",
        requires = "replicas",
        help_heading = "Lease"
    )]
    pub(crate) replicas_timeout: Duration,
}

impl LockArgs {
    /// The length of the lease: fixed, or from one renewal on.
    pub(crate) fn lease_length(&self) -> Duration {
        self.lease.unwrap_or(self.ttl)
    }

    /// The exit code if the lock was not acquired.
    pub(crate) fn refusal_code(&self) -> u8 {
        match self.wait {
            Some(_) => exit::TIMED_OUT,
            None => exit::REFUSED,
        }
    }
}

/// The watchdog that renews the lock while this process cannot.
#[derive(Debug, Args)]
#[command(next_help_heading = "Watchdog")]
pub(crate) struct LockWatchdogArgs {
    /// Let a watchdog renew the lock while leasehold is stopped, and release it after the death of leasehold: the
    /// local node, or nodes at unix:PATH or tcp://HOST:PORT
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = LOCAL,
        value_delimiter = ',',
        env = variables::WATCHDOG
    )]
    watchdog: Vec<String>,
    /// Fail unless a node has registered the lock
    #[arg(long, requires = "watchdog")]
    pub(crate) watchdog_required: bool,
    /// The name of the store at the nodes, instead of its URL
    #[arg(long, value_name = "NAME", env = variables::WATCHDOG_STORE)]
    watchdog_store: Option<String>,
    /// A file whose first line is the access token for nodes on other machines
    #[arg(long, value_name = "FILE", env = variables::WATCHDOG_TOKEN_FILE)]
    watchdog_token_file: Option<PathBuf>,
    /// The certificates that sign nodes on other machines, in PEM; default: the system's
    #[arg(long, value_name = "FILE", env = variables::WATCHDOG_CA_FILE)]
    watchdog_ca_file: Option<PathBuf>,
}

impl LockWatchdogArgs {
    /// The watchdog of these options. `None`: there is no address.
    pub(crate) fn settings(&self) -> Result<Option<Watchdog>, Failure> {
        let mut watchdog: Option<Watchdog> = None;
        for address in &self.watchdog {
            watchdog = Some(match (watchdog, address.as_str()) {
                (None, LOCAL) => Watchdog::local(),
                (None, address) => Watchdog::at(address)?,
                (Some(watchdog), LOCAL) => watchdog.and_local(),
                (Some(watchdog), address) => watchdog.and(address)?,
            });
        }
        let Some(mut watchdog) = watchdog else {
            return self.refuse_unused().map(|()| None);
        };
        if self.watchdog_required {
            watchdog = watchdog.required();
        }
        if let Some(name) = &self.watchdog_store {
            watchdog = watchdog.store_name(name);
        }
        if let Some(file) = &self.watchdog_token_file {
            watchdog = watchdog.token(first_line("token file", file)?.expose());
        }
        if let Some(file) = &self.watchdog_ca_file {
            watchdog = watchdog.ca_file(file);
        }
        Ok(Some(watchdog))
    }

    /// Refuses options of a watchdog without one. Variables may be set for all commands.
    fn refuse_unused(&self) -> Result<(), Failure> {
        let store = self.watchdog_store.as_deref().map(OsStr::new);
        let [token, ca] = [&self.watchdog_token_file, &self.watchdog_ca_file]
            .map(|file| file.as_deref().map(Path::as_os_str));
        let token_variable = variables::WATCHDOG_TOKEN_FILE;
        for (option, variable, value) in [
            ("--watchdog-store", variables::WATCHDOG_STORE, store),
            ("--watchdog-token-file", token_variable, token),
            ("--watchdog-ca-file", variables::WATCHDOG_CA_FILE, ca),
        ] {
            if value.is_some() && value != env::var_os(variable).as_deref() {
                let message = format!(
                    "{option} has no effect without --watchdog; add it, or leave {option} out"
                );
                return Err(Failure::usage(message));
            }
        }
        Ok(())
    }
}
