//! The arguments of all commands: the store, and where its URL is from.

use std::fmt;
use std::path::PathBuf;

use clap::Args;

use crate::variables::{self, STORE};

/// The file with the URL of the store of all users of this machine.
pub(crate) const MACHINE_FILE: &str = "/etc/leasehold/store";

/// The options that name the store.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The store of the locks: sqlite:PATH, postgres://HOST/DB, etcd://HOST,HOST,HOST, zookeeper://HOST,HOST,HOST, s3://BUCKET,
    /// redis://HOST, rediss://HOST, redis+unix:PATH, redis+sentinel://HOST,HOST,HOST/MASTER, redis+cluster://HOST,HOST or redlock://HOST,HOST,HOST
    ///
    /// The default is the URL in /etc/leasehold/store, or without this file a SQLite file in your state directory, for
    /// the programs of this user on this machine. A password is refused here, because other users can read it: set LEASEHOLD_STORE or
    /// LEASEHOLD_PASSWORD_FILE instead.
    #[arg(long, global = true, value_name = "URL", env = variables::STORE, hide_env_values = true)]
    pub(crate) store: Option<String>,
    /// A file whose first line is the store's password
    #[arg(long, global = true, value_name = "FILE", env = variables::PASSWORD_FILE)]
    pub(crate) password_file: Option<PathBuf>,
    /// The namespace of the locks; `jobs@64` has 64 buckets for a Redis Cluster
    #[arg(long, global = true, value_name = "TEXT", env = variables::NAMESPACE, default_value = "leasehold")]
    pub(crate) namespace: String,
    /// The tenant inside the namespace
    #[arg(long, global = true, value_name = "TEXT", env = variables::TENANT, default_value = "default")]
    pub(crate) tenant: String,
    #[arg(skip)]
    pub(crate) origin: Origin,
}

/// Where the URL of the store is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    #[default]
    Option,
    Variable,
    /// The file of the machine.
    Machine,
    /// Nothing names a store.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Option => "--store",
            Self::Variable => STORE,
            Self::Machine => MACHINE_FILE,
            Self::Default => "default",
        })
    }
}
