//! The options of a lock, which `run`, `once`, `elect` and `hold` have in common.

use std::time::Duration;

use clap::Args;
use leasehold::ReplicaCount;

use crate::{duration, exit};

/// How a lock is waited for, and its lease.
#[derive(Debug, Args)]
pub(crate) struct LockArgs {
    /// Do not wait: exit with 75 if another client holds the lock
    #[arg(short = 'n', long, aliases = ["nonblock", "nb"], conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait at most this time, then exit with 124; at least one attempt is made
    #[arg(
        short = 'w',
        long,
        value_name = "DURATION",
        value_parser = duration::parse,
        allow_hyphen_values = true
    )]
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
    /// Print only errors that make the exit code 125 to 127, a lost lock, settings without effect, and what a job recorded
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// The time that the lock outlives a killed leasehold; renewed every third of it
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::parse_ttl,
        allow_hyphen_values = true,
        default_value = "30s",
        conflicts_with = "lease",
        help_heading = "Lease"
    )]
    pub(crate) ttl: Duration,
    /// A fixed lease of this time, which is not renewed
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::parse_ttl,
        allow_hyphen_values = true,
        help_heading = "Lease"
    )]
    pub(crate) lease: Option<Duration>,
    /// The time that the lock stays taken at least, from its acquisition, also after a failed command; up to 24h
    ///
    /// So a machine whose clock is a little behind does not run a short job again. Ends early only by release --force,
    /// if the lock is lost, or if leasehold is killed.
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::parse_min_hold,
        allow_hyphen_values = true,
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
        value_parser = duration::parse_timeout,
        allow_hyphen_values = true,
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
