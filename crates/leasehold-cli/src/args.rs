//! The command line: one definition for parser, help, man pages and completions.

mod elections;
mod jobs;
mod lock;
mod share;
mod store;
mod watchdog;

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{
    Arg, ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
    ValueHint,
};
use leasehold::ReplicaCount;

pub(crate) use self::elections::{ElectCommand, EventsArgs, LeaderArgs, address};
pub(crate) use self::jobs::{Anchor, JobArgs, JobsArgs, OnceCommand, RunCommand};
pub(crate) use self::lock::{LockArgs, LockWatchdogArgs};
pub(crate) use self::share::ShareArgs;
pub(crate) use self::store::{MACHINE_FILE, Origin, StoreArgs};
pub(crate) use self::watchdog::{LogFormat, ServeArgs, StatusArgs, WatchdogArgs, WatchdogCommand};
use crate::{duration, help, hints, misplaced};

/// Run a command under a lock that knows when it is lost.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 100, after_long_help = help::LEASEHOLD)]
#[command(mut_subcommands = allow_hyphens)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Lets the value of a duration begin with a hyphen: its parser names what is wrong with `-5s`.
fn allow_hyphens(subcommand: clap::Command) -> clap::Command {
    subcommand.mut_args(|option| {
        let values = option.get_value_names().unwrap_or_default();
        let is_duration = values.iter().any(|value| value.as_str() == "DURATION");
        match is_duration {
            true => option.allow_hyphen_values(true),
            false => option,
        }
    })
}

impl Cli {
    /// The command line of this process, and its values as they were given.
    pub(crate) fn of_process() -> Result<(Self, ArgMatches), clap::Error> {
        let arguments: Vec<_> = env::args_os().collect();
        let given = Self::command().try_get_matches_from(&arguments);
        let parsed = given.and_then(|given| {
            let cli = Self::from_arg_matches(&given);
            let mut cli = cli.map_err(|error| error.format(&mut Self::command()))?;
            if let Some(message) = cli.misplaced(&arguments) {
                return Err(Self::command().error(ErrorKind::ValueValidation, message));
            }
            refuse_name_after_escape(&arguments)?;
            cli.command.apply_implied();
            Ok((cli, given))
        });
        parsed.map_err(|error| {
            let misses_argument = error.kind() == ErrorKind::MissingRequiredArgument;
            match refuse_name_after_escape(&arguments) {
                Err(error) if misses_argument => error,
                _ => hints::with_hint(error, &arguments, &Self::command()),
            }
        })
    }

    /// The message for a name, a key, a label or a command line that is valid, but hardly what its user has meant.
    fn misplaced(&self, arguments: &[OsString]) -> Option<String> {
        let (name, lock) = self.command.acquired()?;
        let run = self.command.run_args();
        misplaced::of_name(name, arguments, &Self::command())
            .or_else(|| misplaced::of_text("the name of the lock", name))
            .or_else(|| misplaced::of_further_names(name, self.command.further_names()))
            .or_else(|| misplaced::of_variable("--label", &lock.label))
            .or_else(|| misplaced::of_program(name, &run?.command, arguments))
            .or_else(|| {
                let line = run?.shell_command.as_ref()?;
                let message = "-c has an empty command line; is a variable of your script unset?";
                line.is_empty().then(|| message.to_owned())
            })
            .or_else(|| match &self.command {
                Command::Elect(elect) => misplaced::of_variable("the value", &elect.value),
                Command::Once(once) => misplaced::of_key(&once.key, &once.run.command, arguments)
                    .or_else(|| misplaced::of_text("the key", &once.key)),
                _ => None,
            })
    }
}

/// Refuses a run whose `--` stands before the name of the lock: its command would be taken for the name.
fn refuse_name_after_escape(arguments: &[OsString]) -> Result<(), clap::Error> {
    let Some(escape) = arguments.iter().position(|argument| argument == "--") else {
        return Ok(());
    };
    let partial = Cli::command().ignore_errors(true);
    let matches = partial.try_get_matches_from(&arguments[..escape])?;
    let (subcommand, run) = matches.subcommand().unwrap_or(("run", &matches));
    let runs = ["run", "once", "elect"].contains(&subcommand);
    if !runs || run.try_contains_id("name").unwrap_or_default() {
        return Ok(());
    }
    let message =
        format!("the name of the lock is missing before '--': leasehold {subcommand} NAME COMMAND");
    Err(Cli::command().error(ErrorKind::MissingRequiredArgument, message))
}

/// A command with a longer help text has it on its arguments, because a comment on the variant here
/// would replace that text.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunCommand>),
    Once(Box<OnceCommand>),
    Hold(Box<HoldArgs>),
    Jobs(JobsArgs),
    Elect(Box<ElectCommand>),
    Leader(LeaderArgs),
    Ls(LsArgs),
    Show(ShowArgs),
    #[command(name = "watch")]
    Events(EventsArgs),
    Release(ReleaseArgs),
    Doctor(DoctorArgs),
    Watchdog(Box<WatchdogArgs>),
    /// Print a completion script for your shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

impl Command {
    /// Whether the process renews leases, so that no writing may block it.
    pub(crate) fn keeps_leases(&self) -> bool {
        self.acquired().is_some() || matches!(self, Self::Watchdog(args) if args.is_node())
    }

    /// Whether output and failures are JSON, and the name of the lock that is shown or released.
    pub(crate) fn json_and_lock(&self) -> (bool, Option<&str>) {
        match self {
            Self::Ls(args) => (args.json, None),
            Self::Show(args) => (args.json, Some(args.name.as_str())),
            Self::Release(args) => (args.json, Some(args.name.as_str())),
            Self::Leader(args) => (args.json, Some(args.name.as_str())),
            Self::Jobs(args) => (args.json, args.reset.as_deref()),
            Self::Doctor(args) => (args.json, None),
            Self::Events(args) => (args.json, None),
            Self::Watchdog(args) => match &args.command {
                Some(WatchdogCommand::Status(args)) => (args.json, None),
                None => (false, None),
            },
            _ => (false, None),
        }
    }

    /// The name and the options of the lock that is acquired.
    pub(crate) fn acquired(&self) -> Option<(&str, &LockArgs)> {
        match self {
            Self::Hold(args) => Some((&args.name, &args.lock)),
            _ => self.run_args().map(|run| (&*run.name, &run.lock)),
        }
    }

    /// The names of the further locks that are acquired.
    fn further_names(&self) -> &[String] {
        match self {
            Self::Run(command) => &command.share.and,
            Self::Hold(args) => &args.share.and,
            _ => &[],
        }
    }

    /// Whether it relies on the records of jobs, to run or to check one.
    pub(crate) fn relies_on_records(&self) -> bool {
        match self {
            Self::Run(command) => command.every.is_some(),
            Self::Once(_) | Self::Jobs(_) => true,
            _ => false,
        }
    }

    /// The arguments of a command that runs another one.
    pub(crate) fn run_args(&self) -> Option<&RunArgs> {
        match self {
            Self::Run(command) => Some(&command.run),
            Self::Once(command) => Some(&command.run),
            Self::Elect(command) => Some(&command.run),
            _ => None,
        }
    }

    /// Whether it has a store, which it opens or serves.
    pub(crate) fn has_store(&self) -> bool {
        match self {
            Self::Watchdog(args) => args.is_node(),
            Self::Completions(_) | Self::Man(_) => false,
            _ => true,
        }
    }

    /// The further stores of a watchdog.
    pub(crate) fn served(&self) -> &[String] {
        match self {
            Self::Watchdog(args) => &args.serve.serve,
            _ => &[],
        }
    }

    /// Sets what options of a command that runs another one imply: `-c` the command of a shell, `--skip-ok` without `-w`
    /// that nothing is waited for, and `--no-record` that nothing keeps the next start from running the job.
    fn apply_implied(&mut self) {
        let (run, no_record) = match self {
            Self::Run(command) => (&mut command.run, command.job.no_record),
            Self::Once(command) => (&mut command.run, command.job.no_record),
            Self::Elect(command) => (&mut command.run, false),
            _ => return,
        };
        if let Some(line) = run.shell_command.take() {
            run.command = vec!["sh".into(), "-c".into(), line];
        }
        run.lock.no_wait |= run.skip_ok && run.lock.wait.is_none();
        if no_record {
            run.lock.at_least = None;
        }
    }
}

/// The name of a lock, a command, and how it is run under the lock.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The name of the lock: 1 to 512 bytes, no braces, control characters or outer spaces
    pub(crate) name: String,
    /// The command and its arguments; no shell interprets them
    #[arg(
        required_unless_present = "shell_command",
        trailing_var_arg = true,
        value_name = "COMMAND",
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
    /// Run this command line instead, with sh -c; the exit code of a pipe is that of its last command
    #[arg(
        short = 'c',
        long = "command",
        value_name = "STRING",
        conflicts_with = "command"
    )]
    shell_command: Option<OsString>,

    #[command(flatten)]
    pub(crate) lock: LockArgs,
    /// The exit code if the lock was not acquired, instead of 75 and 124
    #[arg(
        short = 'E',
        long,
        value_name = "CODE",
        value_parser = clap::value_parser!(u8).range(1..),
        allow_negative_numbers = true
    )]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Exit with 0 without running the command if the lock is held elsewhere, even if the job is not complete; wait
    /// only with -w
    #[arg(long, conflicts_with = "conflict_exit_code")]
    pub(crate) skip_ok: bool,
    /// The action on the command when the lock is lost
    #[arg(
        long,
        value_name = "ACTION",
        value_enum,
        default_value_t = OnLost::Term,
        help_heading = "End of the command"
    )]
    pub(crate) on_lost: OnLost,
    /// The time from TERM to KILL; shorter if the lease ends before [default: 5s; 500ms if another
    /// client may hold the lock already]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, help_heading = "End of the command")]
    pub(crate) kill_after: Option<Duration>,
    /// The exit code if the lock was lost while the command ran
    #[arg(
        long,
        value_name = "CODE",
        default_value_t = crate::exit::LOST,
        value_parser = clap::value_parser!(u8).range(1..),
        allow_negative_numbers = true,
        help_heading = "End of the command"
    )]
    pub(crate) lost_exit_code: u8,
    /// Keep the lock until the background processes of the command have ended
    #[arg(long, help_heading = "End of the command")]
    pub(crate) wait_all: bool,

    // Last: the heading of these options is also that of the options after them.
    #[command(flatten)]
    pub(crate) watchdog: LockWatchdogArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM to all processes of the command, then KILL
    Term,
    /// KILL to all processes of the command
    Kill,
    /// No signal: the command goes on without the lock, with a message
    Ignore,
}

/// Hold a lock for a program in any language, until stdin ends.
///
/// Prints a line of JSON when the lock is granted, and one for each change of its state. The program reads these lines
/// from a pipe, and closes the pipe to stdin to release the lock. The lease is renewed meanwhile.
#[derive(Debug, Args)]
#[command(override_usage = "leasehold hold [OPTIONS] <NAME>", after_long_help = help::HOLD)]
pub(crate) struct HoldArgs {
    /// The name of the lock: 1 to 512 bytes, no braces, control characters or outer spaces
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) lock: LockArgs,
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    #[command(flatten)]
    pub(crate) watchdog: LockWatchdogArgs,
}

/// List the held locks and their holders.
#[derive(Debug, Args)]
#[command(after_long_help = help::LS)]
pub(crate) struct LsArgs {
    /// Only the locks whose whole name matches: * stands for any text, ? for one character
    #[arg(long, value_name = "GLOB")]
    pub(crate) filter: Option<String>,
    /// The order of the locks
    #[arg(long, value_name = "KEY", value_enum, default_value_t = Sort::Age)]
    pub(crate) sort: Sort,
    /// Repeat the listing until Ctrl-C, in place at a terminal [default interval: 2s]
    // Each listing reads all locks of the namespace.
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        default_missing_value = "2s",
        value_parser = duration::within(Duration::from_millis(100).., "at least 100ms")
    )]
    pub(crate) watch: Option<Duration>,
    /// Print a JSON object instead of a table; with --watch one in each line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// The oldest first
    Age,
    /// In alphabetical order
    Name,
    /// The shortest time left first
    TimeLeft,
}

/// Show the holder of a lock and the queue behind it.
///
/// Exits with 0 if it is held, with 1 if it is free.
#[derive(Debug, Args)]
#[command(override_usage = "leasehold show [OPTIONS] <NAME>", after_long_help = help::SHOW)]
pub(crate) struct ShowArgs {
    /// The name of the lock
    pub(crate) name: String,
    /// Print a JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Revoke a lock that another client holds.
///
/// The holder is cut off: another client can acquire the lock. The holder is notified immediately if the
/// store can push messages to it, as most can; otherwise its next renewal fails, after up to a third of
/// its ttl. Until then only a resource that checks fencing tokens is safe. Prints which holder was cut off. Exits
/// with 0 if one was, with 1 if the lock was free.
#[derive(Debug, Args)]
#[command(override_usage = "leasehold release [OPTIONS] <NAME>", after_long_help = help::RELEASE)]
pub(crate) struct ReleaseArgs {
    /// The name of the lock
    pub(crate) name: String,
    /// Confirm that the holder is cut off
    #[arg(long)]
    pub(crate) force: bool,
    /// Print a JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Report settings of the store that would lose locks, with fixes.
///
/// Checks eviction, memory, persistence, replicas, poolers, clocks, rights and versions, or the file and its
/// file system. Changes nothing. What the user of the store may not read is unknown, and the text names
/// a user that may.
#[derive(Debug, Args)]
#[command(after_long_help = help::DOCTOR)]
pub(crate) struct DoctorArgs {
    /// The ttl of the planned locks
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl, default_value = "30s")]
    pub(crate) ttl: Duration,
    /// Number of replicas (or all) for the planned locks, as with run; needs a further right
    #[arg(long, value_name = "N|all")]
    pub(crate) replicas: Option<ReplicaCount>,
    /// Print a JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the SQL that creates the schema of a PostgreSQL store, for the owner of the database
    #[arg(long, conflicts_with_all = ["json", "replicas"])]
    pub(crate) setup: bool,
    /// The role to which this SQL grants the rights that locks need
    #[arg(long, value_name = "NAME", requires = "setup")]
    pub(crate) role: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    override_usage = "leasehold completions <bash|elvish|fish|powershell|zsh>",
    after_long_help = help::COMPLETIONS,
    mut_args = hide_store
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
    #[command(flatten)]
    _store: StoreArgs,
}

#[derive(Debug, Args)]
#[command(after_long_help = help::MAN, mut_args = hide_store)]
pub(crate) struct ManArgs {
    /// Write a page for each command into this directory instead
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    _store: StoreArgs,
}

/// Hides the options of the store in the help of a command that uses none. They are accepted there all the same.
fn hide_store(option: Arg) -> Arg {
    let of_store = option.get_help_heading() == Some("Store");
    option.hide(of_store)
}

#[cfg(test)]
mod tests;
