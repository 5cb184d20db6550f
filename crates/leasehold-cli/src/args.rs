//! The command line: one definition for parser, help, man pages and completions.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use leasehold::ReplicaCount;

use crate::duration;
use crate::watchdog::WatchdogArgs;
use crate::watched::WatchArgs;

/// Run a command under a lock that knows when it is lost.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 100, after_long_help = ENVIRONMENT)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the locks are.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Where the locks are: sqlite:PATH, redis://HOST, rediss://HOST, redis+unix:PATH or
    /// redis+sentinel://HOST,HOST,HOST/MASTER, redis+cluster://HOST,HOST, redlock://HOST,HOST,HOST
    ///
    /// Without it, a file in your state folder: locks between the programs of this user on this
    /// machine. A password does not belong here, where others can read it: see ENVIRONMENT.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        hide_env_values = true
    )]
    pub(crate) store: Option<String>,
    /// A file whose first line is the store's password
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LEASEHOLD_PASSWORD_FILE"
    )]
    pub(crate) password_file: Option<PathBuf>,
    /// The namespace of the locks
    #[arg(
        long,
        global = true,
        value_name = "TEXT",
        env = "LEASEHOLD_NAMESPACE",
        default_value = "leasehold"
    )]
    pub(crate) namespace: String,
    /// The tenant inside the namespace
    #[arg(
        long,
        global = true,
        value_name = "TEXT",
        env = "LEASEHOLD_TENANT",
        default_value = "default"
    )]
    pub(crate) tenant: String,
}

/// What a command does is told at its arguments, where there is more to tell than a line: what is
/// told here would take its place.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    /// List the locks that are held, and by whom
    Ls(LsArgs),
    Show(ShowArgs),
    Release(ReleaseArgs),
    Doctor(DoctorArgs),
    Watchdog(Box<WatchdogArgs>),
    /// Print a completion script for your shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

/// Take a lock, run a command, release the lock.
///
/// The lease is renewed while the command runs. If it is lost all the same, the command is stopped
/// before another can hold the lock.
#[derive(Debug, Args)]
#[command(after_long_help = RUN)]
pub(crate) struct RunArgs {
    /// The name of the lock: 1 to 512 bytes, no braces, no control characters
    pub(crate) name: String,
    /// The command and its arguments, after `--`; they reach it untouched, without a shell
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    /// Do not wait: exit with 75 if another holds the lock
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait no longer than this, then exit with 124; 0 asks once
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// The exit code instead of 75 and 124 if the lock could not be had
    #[arg(short = 'E', long, value_name = "CODE", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Held elsewhere is success: exit with 0 without running the command; without -w it does not wait
    #[arg(long, conflicts_with = "conflict_exit_code")]
    pub(crate) skip_ok: bool,

    /// How long the lock outlives a runner that died; renewed every third of it
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "30s",
        conflicts_with = "lease"
    )]
    pub(crate) ttl: Duration,
    /// Take the lock for this time and no longer; not renewed
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) lease: Option<Duration>,

    /// So many replicas of the store, or all, must have the lock and each renewal before they count
    #[arg(long, value_name = "N|all")]
    pub(crate) replicas: Option<ReplicaCount>,
    /// How long replicas have for it
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "1s",
        requires = "replicas"
    )]
    pub(crate) replicas_timeout: Duration,

    /// What to do with the command when the lock is lost
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,
    /// The time between TERM and KILL; less if the lock could pass on before [default: 5s; 500ms if
    /// another may hold the lock already]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,
    /// The exit code if the lock was lost while the command ran
    #[arg(long, value_name = "CODE", default_value_t = crate::exit::LOST,
          value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) lost_exit_code: u8,
    /// Keep the lock until the background processes of the command have ended, too
    #[arg(long)]
    pub(crate) wait_all: bool,

    #[command(flatten)]
    pub(crate) watchdog: WatchArgs,

    /// A text for those who ask who holds the lock
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) label: String,
    /// Say on stderr why the store refuses for now, how long it waited and held the lock, and its token
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM to all its processes, then KILL
    Term,
    /// KILL to all its processes at once
    Kill,
    /// Let it run on without the lock, and say so
    Ignore,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// One JSON array instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show who holds a lock.
///
/// Exits with 0 if it is held, with 1 if it is free.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The name of the lock
    pub(crate) name: String,
    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Free a lock by force.
///
/// The holder is cut off: another can take the lock at once, and the holder learns of it at its next
/// renewal. Only a resource that checks fencing tokens is safe until then. Exits with 0 if somebody
/// was cut off, with 1 if the lock was free.
#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The name of the lock
    pub(crate) name: String,
    /// Yes, cut the holder off
    #[arg(long)]
    pub(crate) force: bool,
    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Say what would lose locks in this store, and how to fix it.
///
/// Looks at eviction, memory, persistence, replicas, clocks, rights and versions, or at the place of
/// the file. Changes nothing. What the user of the store may not see is a note, never a failure.
#[derive(Debug, Args)]
#[command(after_long_help = DOCTOR)]
pub(crate) struct DoctorArgs {
    /// The ttl of the locks that will be kept there
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "30s")]
    pub(crate) ttl: Duration,
    /// So many replicas of the store, or all, must have them, as with run: needs another right
    #[arg(long, value_name = "N|all")]
    pub(crate) replicas: Option<ReplicaCount>,
    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write a page per command into this folder instead
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
}

const ENVIRONMENT: &str = "\
ENVIRONMENT
  LEASEHOLD_STORE          the store, as --store; may contain a password
  LEASEHOLD_PASSWORD       the store's password
  LEASEHOLD_PASSWORD_FILE  a file with it, as --password-file
  LEASEHOLD_SENTINEL_PASSWORD
                           the password of the sentinels, if they ask for one
  LEASEHOLD_WATCHDOG       who keeps the locks of runs, as --watchdog of run
  LEASEHOLD_NAMESPACE      as --namespace
  LEASEHOLD_TENANT         as --tenant
  LEASEHOLD_LOG            what to log on stderr, for example leasehold=debug
  XDG_STATE_HOME           the state folder; ~/.local/state if not set";

const DOCTOR: &str = "\
EXIT STATUS
  0    healthy; there may be notes
  1    warnings: locks may be lost when something else fails, too
  2    dangers: locks would be lost, or cannot be had
  125  the store could not be reached or refused us, or leasehold was called in a wrong way";

const RUN: &str = "\
THE COMMAND sees these variables:
  LEASEHOLD_NAME      the name of the lock
  LEASEHOLD_TOKEN     the fencing token: larger than that of every run before
  LEASEHOLD_LEASE     the id of the lease
  LEASEHOLD_DEADLINE  Unix time in milliseconds at which the lease ends; moves on while it is renewed
  LEASEHOLD_STORE     the store, without its password
LEASEHOLD_PASSWORD, LEASEHOLD_PASSWORD_FILE and LEASEHOLD_SENTINEL_PASSWORD are passed on as they are,
for nested runs.

EXIT STATUS
  the command's own, or 128+n if signal n ended it
  75   another holds the lock (-n)
  122  the lock was lost while the command ran (--lost-exit-code)
  124  the wait timed out (-w)
  125  leasehold itself failed, or was called in a wrong way
  126  the command cannot be executed
  127  the command was not found
It is never 0 if the command did not run, unless --skip-ok says so.

SIGNALS are passed on to the command: at a terminal they reach it directly, as its process group is
leasehold's; otherwise it gets a group of its own. While waiting for the lock, a signal ends the wait
with 128+n. Background processes that the command leaves behind run on without the lock, with a
warning. With --wait-all they keep the lock, and signals are passed on to them.

STOPPING the command means all its processes: TERM, and KILL after --kill-after. If leasehold itself is
killed with -9, its guardian, a process between leasehold and the command, kills them; if leasehold is
stopped, they are killed before the lease ends, unless a watchdog keeps it. Without a guardian the
command is not run, and a guardian that is killed ends the run with 125.
A lock that was freed by force, deleted or taken over may be another's before the command has ended: for
500 ms, or for --kill-after if that is given.
A process of another user, as sudo starts them, cannot be stopped. leasehold names it on stderr and
exits with the code of a lost lock when the others have ended. If leasehold was killed, the lease ends
by its ttl though such a process works on.

EXAMPLES
  leasehold run nightly-report -- ./report.sh
  leasehold run -n --skip-ok cleanup -- find /tmp/cache -mtime +7 -delete
  leasehold run -w 2m --ttl 1m deploy -- ./deploy.sh production
  leasehold run --watchdog backup -- ./backup.sh
  LEASEHOLD_STORE=redis://db LEASEHOLD_PASSWORD_FILE=/run/secrets/db \\
    leasehold run import -- sh -c 'import --fence \"$LEASEHOLD_TOKEN\"'";
