//! The arguments of `leasehold watchdog`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::duration;

/// Keep the locks of paused processes, and free those of dead ones at once.
///
/// Runs until it is told to end. Clients on this machine come to its socket; those on others over TLS, with
/// a token. It connects only to the stores that are named here.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = WATCHDOG)]
pub(crate) struct WatchdogArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    #[command(subcommand)]
    pub(crate) command: Option<WatchdogCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WatchdogCommand {
    Status(StatusArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen: unix:PATH, tcp://HOST:PORT (TLS), or systemd: for the sockets it opened
    ///
    /// Without it, at the place where clients on this machine look.
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        env = "LEASEHOLD_WATCHDOG_LISTEN"
    )]
    pub(crate) listen: Vec<String>,
    /// Serve this store beside --store; clients may call it by the name
    ///
    /// Its password is read from LEASEHOLD_PASSWORD_NAME, the name in capitals.
    #[arg(long, value_name = "NAME=URL")]
    pub(crate) serve: Vec<String>,
    /// For how long a client that is paused is kept
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5m")]
    pub(crate) max_pause: Duration,
    /// The name of this node; that of the machine if not set
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// Who may come to its sockets, as the mode of their files
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "600")]
    pub(crate) socket_mode: u32,

    /// Which user or group may register locks of which namespaces: user:NAME=NAMESPACE,... or group:NAME=...
    ///
    /// * stands for all namespaces. May be given several times. Without it, everybody may who may connect.
    #[arg(long, value_name = "WHO=NAMESPACE,...")]
    pub(crate) allow: Vec<String>,

    /// The certificate for tcp://, and those above it, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        help_heading = "Other machines"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The certificate's key, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Other machines"
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Who may come over tcp://: one token in a line, behind it clients=N leases=N name=TEXT namespaces=A,B if wanted
    #[arg(long, value_name = "FILE", help_heading = "Other machines")]
    pub(crate) token_file: Option<PathBuf>,

    /// How many clients it takes
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_clients: Option<usize>,
    /// How many leases it takes
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_leases: Option<usize>,
    /// How many leases it takes of one client
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_leases_per_client: Option<usize>,

    /// Tell figures at http://HOST:PORT/metrics, and how it is at /readyz and /healthz
    #[arg(long, value_name = "HOST:PORT", help_heading = "Seeing it")]
    pub(crate) metrics: Option<SocketAddr>,
    /// How to log on stderr
    #[arg(long, value_name = "FORM", value_enum, default_value_t = LogForm::Text, help_heading = "Seeing it")]
    pub(crate) log: LogForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// A line for people
    Text,
    /// An object for programs
    Json,
}

/// Show the clients of the watchdog on this machine.
///
/// Exits with 0 if it answers, with 1 if there is none.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Its socket; where clients on this machine look if not set
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// One JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("a mode is an octal number such as 660".to_owned()),
    }
}

const WATCHDOG: &str = "\
WHAT IT DOES
  A client renews its leases itself. When one on this machine falls silent and its processes are alive,
  the watchdog renews them, up to --max-pause. When all its processes are gone, it releases them at
  once. A client on another machine is kept as long as its connection stands; nothing of it is ever
  released, for a lost connection proves no death.
  TERM and INT end it; what it keeps alive is renewed once more before.

EXAMPLES
  leasehold watchdog &
  leasehold run --watchdog nightly-report -- ./report.sh
  leasehold watchdog status

  LEASEHOLD_STORE=redis://db LEASEHOLD_PASSWORD_FILE=/run/secrets/db \\
    leasehold watchdog --listen unix:/run/leasehold/watchdog.sock --socket-mode 660 \\
      --metrics 127.0.0.1:9420
  leasehold watchdog --store redis://db --listen tcp://0.0.0.0:7420 \\
    --tls-cert node.pem --tls-key node.key --token-file tokens";
