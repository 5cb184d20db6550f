//! Steps with headings, and a table of their durations.

use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The steps of a task so far.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

#[derive(Debug)]
struct Step {
    title: String,
    duration: Duration,
    failure: Option<String>,
}

impl Steps {
    /// Runs a step. Later steps run even if it fails, so that one run shows all faults.
    pub(crate) fn run(&mut self, title: &str, step: impl FnOnce() -> Result<(), String>) {
        println!("\n==> {title}");
        let start = Instant::now();
        let failure = step().err();
        if let Some(failure) = &failure {
            println!("==> FAILED: {title}: {failure}");
        }
        self.0.push(Step {
            title: title.to_owned(),
            duration: start.elapsed(),
            failure,
        });
    }

    /// Whether a step has failed.
    pub(crate) fn failed(&self) -> bool {
        self.0.iter().any(|step| step.failure.is_some())
    }

    /// Prints the table.
    pub(crate) fn finish(self) -> ExitCode {
        println!("\n==> Summary");
        for step in &self.0 {
            let (seconds, title) = (step.duration.as_secs_f64(), &step.title);
            let outcome = match &step.failure {
                Some(failure) => format!("FAILED: {failure}"),
                None => "ok".into(),
            };
            println!("{seconds:>8.1} s  {title:<40} {outcome}");
        }
        let total: Duration = self.0.iter().map(|step| step.duration).sum();
        println!("{:>8.1} s  in all", total.as_secs_f64());
        ExitCode::from(u8::from(self.failed()))
    }
}
