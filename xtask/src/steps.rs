//! Steps with headings, and a table of their durations.

use std::process::ExitCode;
use std::time::Instant;

/// The steps of a task so far.
#[derive(Debug)]
pub(crate) struct Steps {
    start: Instant,
    /// The table.
    rows: Vec<String>,
    failed: bool,
}

impl Steps {
    /// No steps yet.
    pub(crate) fn start() -> Self {
        Self {
            start: Instant::now(),
            rows: Vec::new(),
            failed: false,
        }
    }

    /// Runs a step. Later steps run even if it fails, so that one run shows all faults.
    pub(crate) fn run(&mut self, title: &str, step: impl FnOnce() -> Result<(), String>) {
        println!("\n==> {title}");
        let start = Instant::now();
        let outcome = step();
        let seconds = start.elapsed().as_secs_f64();
        let outcome = match outcome {
            Ok(()) => "ok".into(),
            Err(failure) => {
                println!("==> FAILED: {title}: {failure}");
                self.failed = true;
                format!("FAILED: {failure}")
            }
        };
        self.rows
            .push(format!("{seconds:>8.1} s  {title:<40} {outcome}"));
    }

    /// Whether a step has failed.
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }

    /// Prints the table.
    pub(crate) fn finish(self) -> ExitCode {
        println!("\n==> Summary");
        for row in &self.rows {
            println!("{row}");
        }
        let total = self.start.elapsed().as_secs_f64();
        println!("{total:>8.1} s  in all");
        ExitCode::from(u8::from(self.failed))
    }
}
