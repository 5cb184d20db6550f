//! Development tasks: `cargo xtask test`, `ci`, `bench compare`, `faults` and `model`.

mod advisories;
mod bench;
mod dependencies;
mod expression;
mod faults;
mod licences;
mod metadata;
mod model;
mod packages;
mod processes;
mod servers;
mod steps;
mod tasks;
mod tidy;
mod tools;

use std::env;
use std::process::ExitCode;

const HELP: &str = "\
Development tasks of Leasehold.

Usage: cargo xtask TASK

Tasks:
  test          all tests: installs redis-server and postgresql where they are missing, and
                leaves no process behind
  ci            test, and everything else that a change must pass
  bench compare [--seconds S] [--rounds N] [--only LIBRARY,..]
                the same work done by Leasehold and by other libraries; writes docs/bench
  faults [--seed N] [--short | --minutes M | --long] [--only single|masters]
                random faults against real servers and holders, and a judge of what they
                believed; all but the short form of 30 s and parts writes docs/faults
  faults watchdog [--short | --times-percent N] [--only CASE,..]
                holders and nodes of the watchdog that are stopped, killed and cut off; what
                was measured goes into docs/faults, but for the short form and single cases
  model [--short] [--traces] [PART OF A KEY]
                every state of small models of the lock; all of them take minutes and two
                gigabytes of memory, and go into docs/model.md

Parts of ci:
  lint          formatting, clippy, documentation, the fuzz targets
  licences      the licence of every dependency is one that deny.toml allows
  dependencies  what the shipped crates may depend on
  advisories    known faults in dependencies, if cargo-deny or cargo-audit can tell
  tidy          rules for files that no compiler knows
  help          this text
";

fn main() -> ExitCode {
    let args: Vec<_> = env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match args[..] {
        [] | ["help" | "-h" | "--help"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        ["bench", "compare", ..] => match bench::compare(&args[2..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => usage(&error),
        },
        ["faults", ..] => match faults::campaign(&args[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("xtask: {error}");
                ExitCode::FAILURE
            }
        },
        ["model", ..] => match model::explore(&args[1..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("xtask: {error}");
                ExitCode::FAILURE
            }
        },
        [task] => match tasks::run(task) {
            Some(code) => code,
            None => usage(&format!("there is no task {task:?}")),
        },
        _ => usage("this task takes no arguments"),
    }
}

fn usage(what: &str) -> ExitCode {
    eprintln!("xtask: {what}; cargo xtask help lists the tasks");
    ExitCode::from(2)
}
