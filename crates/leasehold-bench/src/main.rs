//! `leasehold-bench`: what a lock costs at a store, uncontended and contended, and beside the same
//! work done without Leasehold.

mod baseline;
mod clock;
mod exclusion;
mod format;
mod latencies;
mod metrics_recorder;
mod options;
mod report;
mod scenario;
mod server_stats;
mod sleep;
mod target;
mod usage;
mod worker;
mod workers;

use std::error::Error;
use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use self::options::Options;

/// The exit code of every failure, as of the command line.
const FAILED: u8 = 125;

type Failure = Box<dyn Error + Send + Sync>;
type Result<T, E = Failure> = std::result::Result<T, E>;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(workers::COMMAND) {
        return ExitCode::from(worker::serve(scenario::serve));
    }
    let options = match Options::parse_line(std::env::args_os()) {
        Ok(options) => options,
        Err(error) => {
            // A reader may close the pipe early.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { FAILED } else { 0 });
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("leasehold-bench: {}", with_sources(&*failure));
            ExitCode::from(FAILED)
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let target = options.target();
    let report = scenario::measure(&options.settings, &target)?;
    let text = match options.json {
        true => report.json(),
        false => report.text(),
    };
    match writeln!(io::stdout(), "{}", text.trim_end()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
        _ => {}
    }
    report.failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// A runtime for the tasks of one process.
fn runtime(threads: u16) -> Result<tokio::runtime::Runtime> {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(threads.into());
    let runtime = builder.enable_all().build();
    runtime.map_err(failed("the runtime could not be started"))
}

/// Prints the present step to a terminal.
fn print_step(step: &str) {
    if io::stderr().is_terminal() {
        eprintln!("{step} ...");
    }
}

/// Prefixes an error with the operation that failed.
fn failed<E: Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| format!("{what}: {error}").into()
}

/// An error with its causes, each once.
fn with_sources(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    text
}
