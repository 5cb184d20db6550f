//! Development tasks: `cargo xtask help` lists them.

mod api;
mod background;
mod bench;
mod dependencies;
mod faults;
mod matrix;
mod model;
mod processes;
mod requirements;
mod servers;
mod steps;
mod tasks;
mod tidy;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development tasks of Leasehold.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Runs all tests, and prints first what they need. Installs redis-server and postgresql if they are missing; leaves
    /// no process behind.
    Test,
    /// Runs conformance suite, tests of the doctor and random faults on Redis 7.0 and 8.0, Valkey 8.0 and 8.1, the tests of
    /// PostgreSQL on versions 17 and 18 and behind PgBouncer, those of etcd on version 3.6, those of buckets on SeaweedFS and
    /// Azurite, and the conformance suite on three members of etcd and of ZooKeeper.
    ///
    /// The servers are packages of Debian and npm and modules of Go, made in target/servers. Not part of test or ci.
    Matrix,
    /// Runs the tests and all other checks that a change must pass.
    Ci,
    /// Runs the checks of ci that start no server, with low priority.
    Checks,
    /// Runs the checks of test that start no server.
    FewChecks,
    /// Checks formatting, clippy, documentation and the fuzz targets. Part of ci.
    Lint,
    /// Checks the rules for files: lengths, links, retired words, import cycles. Part of test.
    Tidy,
    /// Checks what the library and its core are built from. Part of test.
    Dependencies,
    /// Compares the public items of the library with crates/leasehold/public-api.txt. Part of ci.
    Api {
        /// Writes the file instead.
        #[arg(long)]
        bless: bool,
    },
    /// Runs benchmarks.
    #[command(subcommand)]
    Bench(Bench),
    /// Injects faults into real servers, holders and nodes of the watchdog, and checks the history.
    ///
    /// Options are those of the campaign: --short (a minute, the default), --minutes M, --seed N, --times-percent N,
    /// --only NAME,... with single, masters, random, leaders, watchdog or the scenarios of the last two, or soak. Complete
    /// campaigns write docs/faults.
    Faults {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Visits every state of small models of the lock.
    ///
    /// Options are those of the program: --short, --traces, and a part of a variant's description. The complete run
    /// takes minutes and two gigabytes of memory. It replaces the table in docs/model.md if every result has the
    /// expected properties. The row of a new variant is first added by hand.
    Model {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Measures Leasehold and other libraries at the same work, and writes docs/bench.
    #[command(disable_help_flag = true)]
    Compare {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    let outcome = match Args::parse().task {
        Task::Test => return tasks::start(tasks::test),
        Task::Matrix => return tasks::start(matrix::test),
        Task::Ci => return tasks::start(tasks::ci),
        Task::Checks => return tasks::start_behind(tasks::checks),
        Task::FewChecks => return tasks::start(tasks::few_checks),
        Task::Lint => return tasks::start(tasks::lint),
        Task::Dependencies => return tasks::start(tasks::dependencies),
        Task::Tidy => tidy::check(tools::root()),
        Task::Api { bless } => api::check(bless),
        Task::Bench(Bench::Compare { args }) => bench::compare(&args),
        Task::Faults { args } => faults::campaign(&args),
        Task::Model { args } => model::explore(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
