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
    outcome: Result<Completion, String>,
}

/// How a step without a failure ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// Everything was checked.
    Full,
    /// A part was skipped for this reason. The summary states it, because it is not a success.
    Partial(String),
}

impl Steps {
    /// Runs a step. Later steps run even if it fails, so that one run shows all faults.
    pub(crate) fn run(&mut self, title: &str, step: impl FnOnce() -> Result<(), String>) {
        self.run_partly(title, || step().map(|()| Completion::Full));
    }

    /// Runs a step that may have to skip a part of its work.
    pub(crate) fn run_partly(
        &mut self,
        title: &str,
        step: impl FnOnce() -> Result<Completion, String>,
    ) {
        println!("\n==> {title}");
        let start = Instant::now();
        let outcome = step();
        match &outcome {
            Ok(Completion::Full) => {}
            Ok(Completion::Partial(reason)) => println!("==> SKIPPED: {title}: {reason}"),
            Err(failure) => println!("==> FAILED: {title}: {failure}"),
        }
        self.0.push(Step {
            title: title.to_owned(),
            duration: start.elapsed(),
            outcome,
        });
    }

    /// Whether a step has failed.
    pub(crate) fn failed(&self) -> bool {
        self.0.iter().any(|step| step.outcome.is_err())
    }

    /// Prints the table.
    pub(crate) fn finish(self) -> ExitCode {
        println!("\n==> Summary");
        for step in &self.0 {
            let (seconds, title) = (step.duration.as_secs_f64(), &step.title);
            let outcome = match &step.outcome {
                Ok(Completion::Full) => "ok".into(),
                Ok(Completion::Partial(reason)) => format!("SKIPPED in part: {reason}"),
                Err(failure) => format!("FAILED: {failure}"),
            };
            println!("{seconds:>8.1} s  {title:<40} {outcome}");
        }
        let total: Duration = self.0.iter().map(|step| step.duration).sum();
        println!("{:>8.1} s  in all", total.as_secs_f64());
        ExitCode::from(u8::from(self.failed()))
    }
}
