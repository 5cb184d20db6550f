//! The arguments of `leasehold watchdog`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use leasehold_watchdog::Limits;

use super::address;
use crate::{duration, variables};

/// Keep locks of paused processes, free those of dead ones immediately.
///
/// Runs until TERM or INT. Clients on this machine connect to its socket, those on other machines over TLS
/// with a token. The node connects only to the stores of --store and --serve.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = WATCHDOG)]
pub(crate) struct WatchdogArgs {
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    #[command(subcommand)]
    pub(crate) command: Option<WatchdogCommand>,
}

impl WatchdogArgs {
    /// Whether the process is a node.
    pub(crate) fn is_node(&self) -> bool {
        self.command.is_none()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum WatchdogCommand {
    Status(StatusArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Addresses to listen at: unix:PATH, tcp://HOST:PORT (TLS), or systemd: for the sockets of its unit
    ///
    /// The default is the local socket, to which clients on this machine connect.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', env = variables::WATCHDOG_LISTEN)]
    pub(crate) listen: Vec<String>,
    /// A further store beside --store; clients can register with it by this name
    ///
    /// LEASEHOLD_PASSWORD_NAME, with the name in capitals, is its password.
    #[arg(long, value_name = "NAME=URL")]
    pub(crate) serve: Vec<String>,
    /// The longest time for which the leases of a silent client are renewed
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "5m")]
    pub(crate) max_pause: Duration,
    /// The name of this node; default: the host name
    #[arg(long, value_name = "TEXT")]
    pub(crate) name: Option<String>,
    /// The file mode of its sockets, which decides who may connect
    #[arg(long, value_name = "MODE", value_parser = mode, default_value = "600")]
    pub(crate) socket_mode: u32,

    /// The namespaces that a user or group may register: user:NAME=NAMESPACE,... or group:NAME=...
    ///
    /// NAMESPACE * stands for all. The option is repeatable. Without it, every client that may connect may
    /// register all namespaces.
    #[arg(long, value_name = "WHO=NAMESPACE,...")]
    pub(crate) allow: Vec<String>,

    /// The certificate chain for tcp://, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        help_heading = "Other machines"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Other machines"
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// The access tokens for tcp://: in each line a token, and optionally clients=N leases=N name=TEXT namespaces=A,B
    #[arg(long, value_name = "FILE", help_heading = "Other machines")]
    pub(crate) token_file: Option<PathBuf>,

    /// The largest number of clients
    #[arg(long, value_name = "N", value_parser = number, default_value_t = Limits::default().clients, help_heading = "Limits")]
    pub(crate) max_clients: usize,
    /// The largest number of leases
    #[arg(long, value_name = "N", value_parser = number, default_value_t = Limits::default().leases, help_heading = "Limits")]
    pub(crate) max_leases: usize,
    /// The largest number of leases of one client
    #[arg(long, value_name = "N", value_parser = number, default_value_t = Limits::default().leases_per_client, help_heading = "Limits")]
    pub(crate) max_leases_per_client: usize,

    /// Serve Prometheus metrics at http://IP:PORT/metrics, and health at /readyz and /healthz
    #[arg(long, value_name = "IP:PORT", value_parser = address, help_heading = "Observability")]
    pub(crate) metrics: Option<SocketAddr>,
    /// The format of the log on stderr
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text, help_heading = "Observability")]
    pub(crate) log: LogFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text
    Text,
    /// A JSON object for each line
    Json,
}

/// Show the clients of the watchdog on this machine.
///
/// Exits with 0 if a node replies, with 1 if none does.
#[derive(Debug, Args)]
#[command(after_long_help = STATUS)]
pub(crate) struct StatusArgs {
    /// The socket of the node; default: the local socket
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// Print a JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

fn number(text: &str) -> Result<usize, String> {
    text.parse()
        .map_err(|_| "it must be a whole number, such as 10000".to_owned())
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("a mode is an octal number such as 660".to_owned()),
    }
}

const WATCHDOG: &str = "\
THE NODE
A client renews its own leases. If a client on this machine is silent and its processes are alive, the node renews its \
leases, up to --max-pause. After the end of all its processes the node releases them immediately. The leases of a \
client on another machine are renewed in the same way while it is connected. They are never released, because a lost connection \
does not prove a death. Before it ends (TERM or INT), the node renews all leases that it keeps once more.

EXIT STATUS
  0    the node was ended by TERM or INT
  125  the node could not start, or its arguments are wrong

EXAMPLES
  leasehold watchdog &
  leasehold run --watchdog nightly-report ./report.sh
  leasehold watchdog status

  LEASEHOLD_STORE=redis://db LEASEHOLD_PASSWORD_FILE=/run/secrets/db \\
    leasehold watchdog --listen unix:/run/leasehold/watchdog.sock \\
      --socket-mode 660 --metrics 127.0.0.1:9420
  leasehold watchdog --store redis://db --listen tcp://0.0.0.0:7420 \\
    --tls-cert node.pem --tls-key node.key --token-file tokens";

const STATUS: &str = "\
EXIT STATUS
  0    a node replied
  1    no node replied
  125  the reply is invalid, or the arguments are wrong

EXAMPLES
  leasehold watchdog status
  leasehold watchdog status --socket /run/leasehold/watchdog.sock --json";
