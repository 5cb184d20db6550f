//! The output of `jobs`.

use std::time::SystemTime;

use leasehold::Completion;
use serde::Serialize;

use super::millis;
use crate::output;

/// The output of `jobs`.
#[derive(Debug, Serialize)]
pub(crate) struct Jobs<'a> {
    store: String,
    jobs: Vec<CompletedRun<'a>>,
    missing: &'a [&'a str],
}

/// The output of `jobs --reset`.
#[derive(Debug, Serialize)]
pub(crate) struct JobsReset<'a> {
    store: String,
    name: &'a str,
    key: Option<&'a str>,
    reset: bool,
}

/// The last completed run of a job.
#[derive(Debug, Serialize)]
struct CompletedRun<'a> {
    name: &'a str,
    key: Option<&'a str>,
    period_ms: Option<u64>,
    slot: Option<String>,
    next_slot: Option<String>,
    overdue: bool,
    started: Option<String>,
    finished: Option<String>,
    took_ms: u64,
    exit_code: u8,
    host: &'a str,
    program: &'a str,
    label: &'a str,
    lease: String,
    token: u64,
}

impl<'a> Jobs<'a> {
    pub(crate) fn new(
        client: &leasehold::Client,
        runs: &'a [Completion],
        missing: &'a [&'a str],
        now: SystemTime,
    ) -> Self {
        Self {
            store: client.store().to_string(),
            jobs: runs.iter().map(|run| CompletedRun::new(run, now)).collect(),
            missing,
        }
    }
}

impl<'a> JobsReset<'a> {
    pub(crate) fn new(
        client: &leasehold::Client,
        name: &'a str,
        key: Option<&'a str>,
        reset: bool,
    ) -> Self {
        Self {
            store: client.store().to_string(),
            name,
            key,
            reset,
        }
    }
}

impl<'a> CompletedRun<'a> {
    fn new(run: &'a Completion, now: SystemTime) -> Self {
        Self {
            name: &run.name,
            key: run.key.as_deref(),
            period_ms: run.period.map(millis),
            slot: run.slot.and_then(output::rfc3339),
            next_slot: run.next_slot.and_then(output::rfc3339),
            overdue: run.is_overdue(now),
            started: output::rfc3339(run.started),
            finished: output::rfc3339(run.finished),
            took_ms: millis(run.took()),
            exit_code: run.exit_code,
            host: &run.host,
            program: &run.program,
            label: &run.label,
            lease: run.lease.to_string(),
            token: run.token.get(),
        }
    }
}
