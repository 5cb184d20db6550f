//! `leasehold`: run a command under a lock that knows when it is lost.

/// Prints a line to stderr. A closed stderr must not end a run.
macro_rules! note {
    ($($text:tt)*) => { crate::output::to_stderr(format_args!($($text)*)) };
}

mod args;
mod completions;
mod connect;
mod credentials;
mod default_store;
mod doctor;
mod duration;
mod events;
mod exit;
mod help;
mod hints;
mod hold;
mod jobs;
mod json;
mod leader;
mod lock;
mod log;
mod ls;
mod man;
mod misplaced;
mod output;
mod release;
mod run;
mod secret;
mod shell;
mod show;
mod signals;
mod stderr;
mod variables;
mod watchdog;

use std::io::ErrorKind;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory as _};
use tokio::runtime::Builder;

use self::args::{Cli, Command, OnLost, WatchdogCommand};
use self::exit::Failure;
use self::lock::plan::Plan;

fn main() -> ExitCode {
    // Before the environment is parsed for arguments: a guardian is started by `run`, not by a user.
    if let Some(code) = run::guard() {
        return ExitCode::from(code);
    }
    if let Some(code) = completions::reply() {
        return ExitCode::from(code);
    }
    let (cli, given) = match Cli::of_process() {
        Ok(parsed) => parsed,
        Err(error) => {
            let code = if error.use_stderr() { exit::FAILED } else { 0 };
            if code != 0 && json::is_requested(std::env::args_os().skip(1)) {
                json::report(&Failure::from(error), None);
            } else if let Err(error) = error.print()
                // A reader may close the pipe early.
                && error.kind() != ErrorKind::BrokenPipe
            {
                return ExitCode::from(exit::FAILED);
            }
            return ExitCode::from(code);
        }
    };
    if cli.command.keeps_leases() {
        stderr::start_thread();
    }
    // The watchdog sets up its own logging.
    if !matches!(cli.command, Command::Watchdog(_)) {
        log::init();
    }
    let (as_json, lock) = cli.command.json_and_lock();
    let lock = lock.map(str::to_owned);
    let code = dispatch(cli, &given).unwrap_or_else(|failure| {
        match as_json {
            true => json::report(&failure, lock.as_deref()),
            false => failure.report(),
        }
        failure.code()
    });
    stderr::flush();
    ExitCode::from(code)
}

/// Prints what is valid in the arguments for a lock, but perhaps not meant. Not for a quiet command.
fn print_probable_mistakes(command: &Command, given: &ArgMatches, definition: &clap::Command) {
    let Some((name, lock)) = command.acquired() else {
        return;
    };
    if lock.quiet {
        return;
    }
    misplaced::note_name(name);
    misplaced::note_seconds(given, definition);
    if let Command::Once(once) = command {
        misplaced::note_key(name, &once.key);
    }
    let run = command.run_args().filter(|run| run.on_lost == OnLost::Term);
    let kill_after = run.and_then(|run| run.kill_after);
    if let Some(kill_after) = kill_after.filter(|time| *time > lock.lease_length()) {
        note!(
            "leasehold: --kill-after {} is longer than the lease of {}: KILL is sent before the lease ends",
            duration::format(kill_after),
            duration::format(lock.lease_length())
        );
    }
}

fn dispatch(mut cli: Cli, given: &ArgMatches) -> Result<u8, Failure> {
    let definition = Cli::command();
    if cli.command.has_store() {
        cli.store
            .check_variables(cli.command.served(), &definition)?;
        cli.store = cli.store.resolved()?;
    }
    let lock = cli.command.acquired().map(|(_, lock)| lock);
    connect::print_store(&cli.store, lock, cli.command.relies_on_records());
    if let Some(run) = cli.command.run_args() {
        misplaced::warn_of_options(&run.command, &definition);
    }
    print_probable_mistakes(&cli.command, given, &definition);
    match cli.command {
        Command::Watchdog(args) => match &args.command {
            Some(WatchdogCommand::Status(args)) => watchdog::status(args),
            None => watchdog::serve(&args.serve, &cli.store),
        },
        Command::Completions(args) => completions::print(&args),
        Command::Man(args) => man::print(&args),
        Command::Run(args) => wait_for(run::run(&args.run, &Plan::of(&args), &cli.store)),
        Command::Once(args) => wait_for(run::run(&args.run, &Plan::Once(&args), &cli.store)),
        Command::Elect(args) => wait_for(run::elect(&args, &cli.store)),
        Command::Leader(args) => wait_for(leader::leader(&args, &cli.store)),
        Command::Events(args) => wait_for(events::events(&args, &cli.store)),
        Command::Hold(args) => wait_for(hold::hold(&args, &cli.store)),
        Command::Jobs(args) => wait_for(jobs::jobs(&args, &cli.store)),
        Command::Ls(args) => wait_for(ls::ls(&args, &cli.store)),
        Command::Show(args) => wait_for(show::show(&args, &cli.store)),
        Command::Doctor(args) => wait_for(doctor::doctor(&args, &cli.store)),
        Command::Release(args) => wait_for(release::release(&args, &cli.store)),
    }
}

/// Runs on this thread only: the parent-death signal of a child fires when the thread that started it ends, so that
/// must be the main thread.
fn wait_for(work: impl Future<Output = Result<u8, Failure>>) -> Result<u8, Failure> {
    exit::start_runtime(Builder::new_current_thread())?.block_on(work)
}
