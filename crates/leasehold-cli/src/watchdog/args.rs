//! The arguments of `leasehold watchdog`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::duration;

/// Renew the locks of paused processes, and release those of dead ones at once.
///
/// Runs until TERM or INT. Clients on this machine connect to its socket, clients on other machines over TLS with a
/// token. It connects only to the stores that are named here.
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
    /// Without it, at the default socket of clients on this machine.
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        env = "LEASEHOLD_WATCHDOG_LISTEN"
    )]
    pub(crate) listen: Vec<String>,
    /// Serve this store beside --store; clients may use the name instead of its URL
    ///
    /// Its password is read from LEASEHOLD_PASSWORD_NAME, the name in capitals.
    #[arg(long, value_name = "NAME=URL")]
    pub(crate) serve: Vec<String>,
    /// How long the leases of a silent client are renewed
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5m")]
    pub(crate) max_pause: Duration,
    /// The name of this node; the host name if not set
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// The file mode of its sockets
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "600")]
    pub(crate) socket_mode: u32,

    /// Which user or group may register locks of which namespaces: user:NAME=NAMESPACE,... or group:NAME=...
    ///
    /// * stands for all namespaces. May be given several times. Without it, every user who can connect may.
    #[arg(long, value_name = "WHO=NAMESPACE,...")]
    pub(crate) allow: Vec<String>,

    /// The certificate for tcp:// and the intermediate ones, in PEM
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
    /// A file of tokens for tcp://, one per line, each with optional clients=N leases=N name=TEXT namespaces=A,B
    #[arg(long, value_name = "FILE", help_heading = "Other machines")]
    pub(crate) token_file: Option<PathBuf>,

    /// The maximum number of clients
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_clients: Option<usize>,
    /// The maximum number of leases
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_leases: Option<usize>,
    /// The maximum number of leases of one client
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub(crate) max_leases_per_client: Option<usize>,

    /// Serve metrics at http://HOST:PORT/metrics, and health checks at /readyz and /healthz
    #[arg(long, value_name = "HOST:PORT", help_heading = "Seeing it")]
    pub(crate) metrics: Option<SocketAddr>,
    /// The log format on stderr
    #[arg(long, value_name = "FORM", value_enum, default_value_t = LogForm::Text, help_heading = "Seeing it")]
    pub(crate) log: LogForm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// Lines of text
    Text,
    /// JSON objects
    Json,
}

/// Show the clients of the watchdog on this machine.
///
/// Exits with 0 if it replies, with 1 otherwise.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Its socket; the default one if not set
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
  A client renews its leases itself. When a client on this machine falls silent but its processes are
  alive, the watchdog renews the leases, up to --max-pause. When all its processes have ended, the
  watchdog releases them at once. The leases of a client on another machine are renewed as long as its
  connection is open, and never released: a lost connection does not prove that the client is dead.
  TERM and INT end the watchdog. It renews the leases of silent clients once more before.

EXAMPLES
  leasehold watchdog &
  leasehold run --watchdog nightly-report -- ./report.sh
  leasehold watchdog status

  LEASEHOLD_STORE=redis://db LEASEHOLD_PASSWORD_FILE=/run/secrets/db \\
    leasehold watchdog --listen unix:/run/leasehold/watchdog.sock --socket-mode 660 \\
      --metrics 127.0.0.1:9420
  leasehold watchdog --store redis://db --listen tcp://0.0.0.0:7420 \\
    --tls-cert node.pem --tls-key node.key --token-file tokens";
