//! A holder process from outside, and the faults that hit it.

use std::fs::File;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use leasehold_testkit::{Helper, found_within};
use rustix::process::Signal;

use crate::clock::{self, MILLI, Nanos};
use crate::history::{Fault, FaultEvent, Journal, Note};
use crate::holder::HolderConfig;

/// How long a holder may take to end. Its shutdown alone may take 5 s.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// A holder process. Faults that hit it are recorded.
#[derive(Debug)]
pub(crate) struct HolderProcess {
    pub(crate) helper: Helper,
    pub(crate) name: String,
    journal: Arc<Journal>,
    ttl: Nanos,
    /// When it was stopped: before, and after.
    stopped: Option<(Nanos, Nanos)>,
}

impl HolderProcess {
    /// Starts a process that records its events, and its standard error beside them.
    pub(crate) fn start(journal: &Arc<Journal>, config: &HolderConfig) -> Self {
        let mut command = Helper::command();
        command.stderr(File::create(config.history().with_extension("err")).unwrap());
        let process = Self {
            helper: Helper::spawn(command),
            name: config.process.clone(),
            journal: Arc::clone(journal),
            ttl: config.ttl_ms * MILLI,
            stopped: None,
        };
        process.run(config);
        process
    }

    fn run(&self, config: &HolderConfig) {
        let config = serde_json::to_string(config).unwrap();
        self.helper.send(&format!("holder {config}"));
    }

    /// Executes the program anew in the process, which then has another name in the history.
    pub(crate) fn exec(&mut self, config: &HolderConfig) {
        let begin = clock::now();
        assert_eq!(self.helper.request("exec"), "executed");
        self.record(Fault::ExecHolder, (begin, begin), (begin, begin));
        self.name.clone_from(&config.process);
        self.run(config);
    }

    pub(crate) fn stop(&mut self) {
        let begin = clock::now();
        self.helper.stop();
        self.stopped = Some((begin, clock::now()));
    }

    /// Resumes it after a stop.
    pub(crate) fn resume(&mut self) {
        let resumed = clock::now();
        self.helper.resume();
        if let Some((begin, stopped)) = self.stopped.take() {
            let outer = (begin, clock::now());
            let fault = match resumed - stopped > self.ttl {
                true => Fault::PauseHolderLong,
                false => Fault::PauseHolder,
            };
            self.record(fault, outer, (stopped, resumed));
        }
    }

    /// Stops it for a duration.
    pub(crate) fn pause(&mut self, duration: Duration) {
        self.stop();
        thread::sleep(duration);
        self.resume();
    }

    /// Kills it and reaps it.
    pub(crate) fn kill(&mut self) {
        let begin = clock::now();
        self.helper.kill();
        let end = clock::now();
        self.record(Fault::KillHolder, (begin, end), (end, end));
    }

    /// Kills it, and leaves a zombie.
    pub(crate) fn kill_unreaped(&mut self) {
        let begin = clock::now();
        self.helper.signal(Signal::KILL);
        self.record(Fault::KillHolder, (begin, begin), (begin, begin));
    }

    /// Whether it has ended by itself, which is recorded as a violation.
    pub(crate) fn has_failed(&mut self) -> bool {
        let ended = self.helper.ended();
        if let Some(status) = ended {
            self.record_failure(&format!("it ended by itself with {status}"));
        }
        ended.is_some()
    }

    /// Requests its tasks to rest. Returns whether they do in time.
    pub(crate) fn rest(&self) -> bool {
        self.helper.send("rest");
        let rests = self.helper.reply_within(END_TIMEOUT).is_some();
        if !rests {
            self.record_failure("its tasks did not end what they were doing");
        }
        rests
    }

    /// Ends the rest of its tasks.
    pub(crate) fn work(&self) {
        self.helper.send("work");
    }

    /// Requests it to end, and waits for that.
    pub(crate) fn end(mut self) {
        self.helper.close();
        match found_within(END_TIMEOUT, || self.helper.ended()) {
            Some(status) if status.success() => {}
            Some(status) => self.record_failure(&format!("it ended with {status}")),
            None => self.record_failure("it did not end when it was requested to"),
        }
    }

    fn record_failure(&self, reason: &str) {
        let failure = format!("holder process {} failed: {reason}", self.name);
        self.journal.record(&Note::Violation(failure));
    }

    fn record(&self, fault: Fault, outer: (Nanos, Nanos), inner: (Nanos, Nanos)) {
        let event = FaultEvent::new(fault, Some(&self.name), outer, inner);
        self.journal.record(&Note::Fault(event));
    }
}

impl Drop for HolderProcess {
    /// A death at the end of a scenario is also in the history.
    fn drop(&mut self) {
        if self.helper.ended().is_none() {
            self.kill();
        }
    }
}
