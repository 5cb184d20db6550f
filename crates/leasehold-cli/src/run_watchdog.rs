//! The watchdog options of a run.

use std::path::PathBuf;

use clap::Args;
use leasehold::watchdog::Watchdog;

use crate::exit::Failure;
use crate::secret::first_line;

/// The value that stands for the node on this machine, at its default socket.
const LOCAL: &str = "local";

/// The watchdog that renews the lock while this run cannot.
#[derive(Debug, Args)]
#[command(next_help_heading = "Watchdog")]
pub(crate) struct RunWatchdogArgs {
    /// Let a watchdog renew the lock while this run is stopped, and release it after the death of this run: the
    /// local node, or nodes at unix:PATH or tcp://HOST:PORT
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = LOCAL,
        value_delimiter = ',',
        env = "LEASEHOLD_WATCHDOG"
    )]
    watchdog: Vec<String>,
    /// Run the command only if a node has registered the lock
    #[arg(long, requires = "watchdog")]
    watchdog_required: bool,
    /// The name of the store at the nodes, instead of its URL
    #[arg(long, value_name = "NAME", env = "LEASEHOLD_WATCHDOG_STORE")]
    watchdog_store: Option<String>,
    /// A file whose first line is the access token for nodes on other machines
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_WATCHDOG_TOKEN_FILE")]
    watchdog_token_file: Option<PathBuf>,
    /// The certificates that sign nodes on other machines, in PEM; default: the system's
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_WATCHDOG_CA_FILE")]
    watchdog_ca_file: Option<PathBuf>,
}

impl RunWatchdogArgs {
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
            return Ok(None);
        };
        if self.watchdog_required {
            watchdog = watchdog.required();
        }
        if let Some(name) = &self.watchdog_store {
            watchdog = watchdog.store_name(name);
        }
        if let Some(file) = &self.watchdog_token_file {
            watchdog = watchdog.token(first_line("token file", file)?);
        }
        if let Some(file) = &self.watchdog_ca_file {
            watchdog = watchdog.ca_file(file);
        }
        Ok(Some(watchdog))
    }
}
