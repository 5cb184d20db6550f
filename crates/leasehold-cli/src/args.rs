//! The command line: one definition for parser, help, man pages and completions.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use leasehold::ReplicaCount;

use crate::duration;
use crate::run_watchdog::RunWatchdogArgs;
use crate::watchdog::WatchdogArgs;

/// Run a command under a lock that knows when it is lost.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 100, after_long_help = ENVIRONMENT)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The options that name the store.
#[derive(Debug, Args)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// The store of the locks: sqlite:PATH, redis://HOST, rediss://HOST, redis+unix:PATH,
    /// redis+sentinel://HOST,HOST,HOST/MASTER, redis+cluster://HOST,HOST or redlock://HOST,HOST,HOST
    ///
    /// The default is a SQLite file in your state directory, for the programs of this user on this
    /// machine. A password is refused here, because other users can read it: set LEASEHOLD_STORE or
    /// LEASEHOLD_PASSWORD_FILE instead.
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
    /// The namespace of the locks; `jobs@64` has 64 buckets for a Redis Cluster
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

/// A command with a longer help text has it on its arguments, because a comment on the variant here
/// would replace that text.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
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

impl Command {
    /// Whether the output is JSON, and so is a failure.
    pub(crate) fn asks_for_json(&self) -> bool {
        match self {
            Self::Ls(args) => args.json,
            Self::Show(args) => args.json,
            Self::Release(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Watchdog(args) => args.asks_for_json(),
            Self::Run(_) | Self::Completions(_) | Self::Man(_) => false,
        }
    }

    /// The name of the lock that is shown or released.
    pub(crate) fn lock(&self) -> Option<String> {
        match self {
            Self::Show(args) => Some(args.name.clone()),
            Self::Release(args) => Some(args.name.clone()),
            _ => None,
        }
    }
}

/// Acquire a lock, run a command, release the lock.
///
/// The lease is renewed while the command runs. If renewals fail, the command is stopped before
/// another client can acquire the lock.
#[derive(Debug, Args)]
#[command(after_long_help = RUN)]
pub(crate) struct RunArgs {
    /// The name of the lock: 1 to 512 bytes, no braces, no control characters
    pub(crate) name: String,
    /// The command and its arguments, after `--`; no shell interprets them
    #[arg(required = true, last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    /// Do not wait: exit with 75 if another client holds the lock
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Wait at most this time, then exit with 124; at least one attempt is made
    #[arg(short = 'w', long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// The exit code if the lock was not acquired, instead of 75 and 124
    #[arg(short = 'E', long, value_name = "CODE", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Exit with 0 without running the command if the lock is held elsewhere; wait only with -w
    #[arg(long, conflicts_with = "conflict_exit_code")]
    pub(crate) skip_ok: bool,

    /// The time that the lock outlives a killed runner; renewed every third of it
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "30s",
        conflicts_with = "lease"
    )]
    pub(crate) ttl: Duration,
    /// A fixed lease of this time, which is not renewed
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) lease: Option<Duration>,

    /// Number of replicas (or all) that must acknowledge the grant and each renewal
    #[arg(long, value_name = "N|all")]
    pub(crate) replicas: Option<ReplicaCount>,
    /// The time limit for the replicas
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::parse,
        default_value = "1s",
        requires = "replicas"
    )]
    pub(crate) replicas_timeout: Duration,

    /// The action on the command when the lock is lost
    #[arg(long, value_name = "ACTION", value_enum, default_value_t = OnLost::Term)]
    pub(crate) on_lost: OnLost,
    /// The time from TERM to KILL; shorter if the lease ends before [default: 5s; 500ms if another
    /// client may hold the lock already]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) kill_after: Option<Duration>,
    /// The exit code if the lock was lost while the command ran
    #[arg(long, value_name = "CODE", default_value_t = crate::exit::LOST,
          value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) lost_exit_code: u8,
    /// Keep the lock until the background processes of the command have ended, too
    #[arg(long)]
    pub(crate) wait_all: bool,

    /// A text for ls and show
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) label: String,
    /// Print the holder that is waited for, refusals of the store, waiting time, holding time and token on stderr
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print only errors on stderr: those that make the exit code 122, 125, 126 or 127
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    // Last: the heading of these options is also that of the options after them.
    #[command(flatten)]
    pub(crate) watchdog: RunWatchdogArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    /// TERM to all processes of the command, then KILL
    Term,
    /// KILL to all processes of the command at once
    Kill,
    /// No signal: the command goes on without the lock, with a message
    Ignore,
}

/// List the held locks and their holders.
#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Only the locks whose whole name matches: * stands for any text, ? for one character
    #[arg(long, value_name = "GLOB")]
    pub(crate) filter: Option<String>,
    /// The order of the locks
    #[arg(long, value_name = "KEY", value_enum, default_value_t = Sort::Age)]
    pub(crate) sort: Sort,
    /// List them again and again, in place at a terminal, until Ctrl-C [default interval: 2s]
    #[arg(
        long,
        value_name = "INTERVAL",
        num_args = 0..=1,
        default_missing_value = "2s",
        value_parser = interval
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
pub(crate) struct ShowArgs {
    /// The name of the lock
    pub(crate) name: String,
    /// Print a JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// Free a lock by force.
///
/// The holder is cut off: another client can acquire the lock at once. The holder is notified at once where the
/// store can push messages to it, as SQLite and Redis do; otherwise its next renewal fails, after up to a third of
/// its ttl. Until then only a resource that checks fencing tokens is safe. Prints which holder was cut off. Exits
/// with 0 if one was, with 1 if the lock was free.
#[derive(Debug, Args)]
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

/// Report settings of the store that would lose locks, and how to fix them.
///
/// Checks eviction, memory, persistence, replicas, clocks, rights and versions, or the file and its
/// file system. Changes nothing. What the user of the store may not read is unknown, and the text names
/// a user that may.
#[derive(Debug, Args)]
#[command(after_long_help = DOCTOR)]
pub(crate) struct DoctorArgs {
    /// The ttl of the planned locks
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "30s")]
    pub(crate) ttl: Duration,
    /// Number of replicas (or all) for the planned locks, as with run; needs a further right
    #[arg(long, value_name = "N|all")]
    pub(crate) replicas: Option<ReplicaCount>,
    /// Print a JSON object instead of text
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
    /// Write a page for each command into this directory instead
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) dir: Option<PathBuf>,
}

/// The shortest interval of `ls --watch`. Each listing reads all locks of the namespace.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        interval if interval < INTERVAL_MIN => Err("an interval is at least 100ms".to_owned()),
        interval => Ok(interval),
    }
}

const ENVIRONMENT: &str = "\
ENVIRONMENT
  LEASEHOLD_STORE          the store, as --store; may contain a password
  LEASEHOLD_PASSWORD       the store's password
  LEASEHOLD_PASSWORD_FILE  a file with it, as --password-file
  LEASEHOLD_SENTINEL_PASSWORD
                           the password of the sentinels
  LEASEHOLD_WATCHDOG       the watchdog of runs, as --watchdog of run
  LEASEHOLD_NAMESPACE      as --namespace
  LEASEHOLD_TENANT         as --tenant
  LEASEHOLD_LOG            the log filter for stderr, for example leasehold=debug
  XDG_STATE_HOME           the state directory; default ~/.local/state
  XDG_RUNTIME_DIR          the directory of the local watchdog socket";

const DOCTOR: &str = "\
EXIT STATUS
  0    nothing wrong in what could be seen; there may be notes
  1    warnings: locks may be lost when something else fails, too; or a part could not be seen
  2    dangers: locks would be lost, or cannot be acquired
  125  the store is unreachable or refuses access, or the arguments are wrong";

const RUN: &str = "\
THE COMMAND has these variables:
  LEASEHOLD_NAME      the name of the lock
  LEASEHOLD_TOKEN     the fencing token: larger than those of all earlier runs
  LEASEHOLD_LEASE     the id of the lease
  LEASEHOLD_DEADLINE  Unix time in milliseconds at which the lease ends, unless renewed
  LEASEHOLD_STORE     the store, without its password
LEASEHOLD_PASSWORD, LEASEHOLD_PASSWORD_FILE and LEASEHOLD_SENTINEL_PASSWORD are passed on unchanged,
for nested runs.

EXIT STATUS
  the command's own, or 128+n if signal n ended it
  75   another client holds the lock (-n)
  122  the lock was lost while the command ran (--lost-exit-code)
  124  the wait timed out (-w)
  125  leasehold failed, or its arguments are wrong
  126  the command cannot be executed
  127  the command was not found
It is never 0 if the command did not run, except with --skip-ok.

SIGNALS are passed on to the command. At a terminal it is in the process group of leasehold and gets
them directly; otherwise it has its own group. During the wait for the lock a signal ends leasehold
with 128+n. Background processes that outlive the command go on without the lock, with a message.
With --wait-all they keep the lock and get the signals.

STOPPING the command stops all its processes: TERM, and KILL after --kill-after.
The guardian, a process between leasehold and the command, kills them if leasehold is killed with
-9. If leasehold is stopped, the guardian kills them before the lease ends, unless a watchdog keeps
it. Without a guardian the command is not run. If the guardian is killed, the run ends with 125.
A lock that was freed by force, deleted or taken over can have a new holder before the command has
ended: for 500 ms, or for --kill-after if it is given.
A process of another user (sudo) cannot be stopped. leasehold names it on stderr and exits with the
code of a lost lock when the others have ended. If leasehold was killed, the lease ends by its ttl,
although such a process goes on.

EXAMPLES
  leasehold run nightly-report -- ./report.sh
  leasehold run -n --skip-ok cleanup -- find /tmp/cache -mtime +7 -delete
  leasehold run -w 2m --ttl 1m deploy -- ./deploy.sh production
  leasehold run --watchdog backup -- ./backup.sh
  LEASEHOLD_STORE=redis://db LEASEHOLD_PASSWORD_FILE=/run/secrets/db \\
    leasehold run import -- sh -c 'import --fence \"$LEASEHOLD_TOKEN\"'";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Arg, ArgAction, CommandFactory as _};

    use super::*;
    use crate::exit;

    const PAGE: &str = include_str!("../../../docs/cli.md");

    /// The text below a heading, up to the next heading of its level.
    fn section(heading: &str) -> &'static str {
        let (level, _) = heading.split_once(' ').unwrap();
        let (_, rest) = PAGE.split_once(&format!("\n{heading}\n")).unwrap();
        rest.split_once(&format!("\n{level} "))
            .map_or(rest, |(text, _)| text)
    }

    /// The pieces of code in a text.
    fn code(text: &str) -> Vec<String> {
        let pieces = text.split('`').skip(1).step_by(2);
        pieces.map(|piece| piece.replace("\\|", "|")).collect()
    }

    /// The subcommands with the parts of the page that describe their options.
    fn described() -> Vec<(clap::Command, &'static str)> {
        let (cli, store) = (Cli::command(), "## Options for the store");
        let command = |name: &str| cli.find_subcommand(name).unwrap().clone();
        let status = command("watchdog")
            .find_subcommand("status")
            .unwrap()
            .clone();
        let (intro, _) = PAGE.split_once("\n## ").unwrap();
        let listings = section("## `ls`, `show`, `release`");
        vec![
            (cli.clone(), section(store)),
            (command("run"), section("## `run`")),
            (command("ls"), listings),
            (command("show"), listings),
            (command("release"), listings),
            (command("doctor"), section("## `doctor`")),
            (command("watchdog"), section("## `watchdog`")),
            (status, section("## `watchdog`")),
            (command("completions"), intro),
            (command("man"), intro),
        ]
    }

    /// An option as the page writes it.
    fn usage(option: &Arg) -> String {
        let long = format!("--{}", option.get_long().unwrap());
        let value = match option.get_action() {
            ArgAction::Set | ArgAction::Append => option.get_value_names().unwrap()[0].as_str(),
            _ => return long,
        };
        let more = option.get_value_delimiter().map_or("", |_| ",...");
        match option.is_require_equals_set() {
            true => format!("{long}[={value}{more}]"),
            false => format!("{long} {value}{more}"),
        }
    }

    #[test]
    fn the_page_describes_every_option_with_its_values_and_default() {
        for (command, text) in described() {
            for option in command.get_arguments() {
                if option.get_long().is_none() {
                    continue;
                }
                let usage = usage(option);
                let is_usage = |piece: String| format!(" {piece} ").contains(&format!(" {usage} "));
                let named = |line: &&str| code(line).into_iter().any(is_usage);
                let line = text.lines().find(named);
                let line = line.unwrap_or_else(|| panic!("{usage} of {}", command.get_name()));
                let values = option.get_possible_values();
                let values = values.iter().map(|it| it.get_name().into());
                let defaults = option.get_default_values().iter();
                let stated = values.chain(defaults.map(|it| it.to_string_lossy()));
                // The page separates thousands.
                let line = line.replace(',', "");
                for value in stated.filter(|_| option.get_action().takes_values()) {
                    assert!(line.contains(&*value), "{usage}: {value}");
                }
                if let Some(short) = option.get_short() {
                    assert!(line.contains(&format!("`-{short}`")), "-{short}");
                }
            }
        }
    }

    #[test]
    fn every_option_in_a_page_exists() {
        let mut known = BTreeSet::from(["--help".to_owned(), "--version".to_owned()]);
        for (command, _) in described() {
            for option in command.get_arguments() {
                known.extend(option.get_long().map(|long| format!("--{long}")));
                known.extend(option.get_short().map(|short| format!("-{short}")));
            }
        }
        let watchdog = include_str!("../../../docs/watchdog.md");
        let is_option = |word: &&str| {
            let name = word.trim_start_matches('-');
            name.len() < word.len()
                && name.starts_with(|c: char| c.is_ascii_alphabetic())
                && name.chars().all(|c| c.is_ascii_alphabetic() || c == '-')
        };
        for piece in [PAGE, watchdog].into_iter().flat_map(code) {
            for line in piece.lines() {
                // Behind `--` are the arguments of a command.
                let words = line.split([' ', '[', '=']).take_while(|word| *word != "--");
                let unknown = |word: &&str| is_option(word) && !known.contains(*word);
                assert_eq!({ words }.find(unknown), None, "in {line:?}");
            }
        }
    }

    #[test]
    fn the_page_describes_every_subcommand_and_no_other() {
        let cli = Cli::command();
        let commands: BTreeSet<_> = cli.get_subcommands().map(clap::Command::get_name).collect();
        let (intro, sections) = PAGE.split_once("\n## ").unwrap();
        let headings = sections
            .split("\n## ")
            .map(|text| text.lines().next().unwrap());
        let named: BTreeSet<_> = headings.flat_map(code).collect();
        assert!(
            named.iter().all(|name| commands.contains(name.as_str())),
            "{named:?}"
        );
        for name in commands {
            let first = |piece: String| piece.split(' ').next() == Some(name);
            assert!(code(intro).into_iter().any(first), "{name}");
        }
    }

    #[test]
    fn page_and_help_list_every_exit_code() {
        let own = [
            exit::REFUSED,
            exit::LOST,
            exit::TIMED_OUT,
            exit::FAILED,
            exit::NOT_EXECUTABLE,
            exit::NOT_FOUND,
        ];
        let numbers = |cell: &str| {
            let numbers = cell.split(", ").map(|number| number.trim().parse().ok());
            numbers.collect::<Option<Vec<u8>>>().unwrap_or_default()
        };
        let rows = section("### Exit codes").lines();
        let page: Vec<_> = rows
            .filter_map(|row| row.strip_prefix("| ")?.split(" |").next())
            .flat_map(numbers)
            .collect();
        assert_eq!(page, own);
        let (_, help) = RUN.split_once("EXIT STATUS").unwrap();
        let help = help
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        assert_eq!(help.flat_map(numbers).collect::<Vec<_>>(), own);
    }

    #[test]
    fn the_page_describes_every_variable() {
        let own = |text: &str| -> BTreeSet<String> {
            let words = text.split(|c: char| !c.is_ascii_uppercase() && c != '_');
            let own =
                words.filter(|word| word.starts_with("LEASEHOLD_") || word.starts_with("XDG_"));
            own.map(str::to_owned).collect()
        };
        let mut variables = own(ENVIRONMENT);
        for (command, _) in described() {
            let options = command.get_arguments().filter_map(Arg::get_env);
            variables.extend(options.map(|variable| variable.to_string_lossy().into_owned()));
        }
        assert_eq!(own(section("## Environment")), variables);
        let (help, _) = RUN.split_once("are passed on").unwrap();
        let (help, passed_on) = help.rsplit_once("password\n").unwrap();
        assert_eq!(own(section("### Variables of the command")), own(help));
        assert!(own(passed_on).is_subset(&variables));
    }
}
