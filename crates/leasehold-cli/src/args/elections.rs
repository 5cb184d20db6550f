//! The arguments of `elect`, `leader` and `watch`.

use std::net::SocketAddr;

use clap::Args;

use super::RunArgs;
use crate::help;

/// Campaign for a leadership, run a command as the leader.
///
/// Others find the value of the leader with leasehold leader. The lease of the leader is renewed while the command runs.
/// If renewals fail, the command is stopped before another client can lead. Options stand before COMMAND; all that follows
/// its first word belongs to it.
#[derive(Debug, Args)]
#[command(override_usage = help::ELECT_USAGE, after_long_help = help::ELECT, next_help_heading = "Election")]
pub(crate) struct ElectCommand {
    /// The value of this leader, such as its address: at most 4096 bytes
    #[arg(long, value_name = "TEXT", value_parser = value)]
    pub(crate) value: String,
    /// Campaign again when the command has ended or the leadership was lost, until a signal ends leasehold
    #[arg(long)]
    pub(crate) again: bool,
    /// Answer probes at http://ADDRESS/healthz: with 500 if the command runs on although the leadership is lost
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub(crate) health: Option<SocketAddr>,
    // Last, as its options are many.
    #[command(flatten, next_help_heading = None::<&'static str>)]
    pub(crate) run: RunArgs,
}

/// Print the value of the leader.
///
/// Exits with 0 if there is a leader, with 1 if there is none, or if it has not proclaimed its value yet.
#[derive(Debug, Args)]
#[command(override_usage = "leasehold leader [OPTIONS] <NAME>", after_long_help = help::LEADER)]
pub(crate) struct LeaderArgs {
    /// The name of the election
    pub(crate) name: String,
    /// Print a JSON object instead of the value
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the events of locks as they happen, one in each line.
///
/// The first line of each lock is its state. Then follow grants, releases, leases that have expired, changes of the queue
/// and of the leader, and completed runs of the periodic job. Completed runs for keys, those of `once`, need --key. The
/// store is read after each change, so leases that come and go between two readings are not listed. A lease is expired if
/// it has ended and its last known end has passed: it may have been renewed and released after the last reading. Failures
/// of the store that may pass are waited for, except at the start.
#[derive(Debug, Args)]
#[command(override_usage = "leasehold watch [OPTIONS] <NAME>...", after_long_help = help::WATCH)]
pub(crate) struct EventsArgs {
    /// The names of the locks
    #[arg(id = "name", required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Print completed runs for this key, not those of the periodic job; grants are those of all runs
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Print a JSON object in each line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

fn value(text: &str) -> Result<String, String> {
    match text.is_empty() {
        true => Err("it is empty; is a variable of your script unset?".to_owned()),
        false => Ok(text.to_owned()),
    }
}

pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse();
    address.map_err(|_| "an address is IP:PORT, such as 0.0.0.0:8081 or [::1]:8081".to_owned())
}
