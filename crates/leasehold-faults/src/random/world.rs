//! Servers, their holders and the fenced resource that these write to.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::plan::Plan;
use super::servers::Servers;
use crate::history::{FaultEvent, Journal, Note};

/// The state that all threads of a world share.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) directory: PathBuf,
    pub(super) servers: Servers,
    /// The port of the fenced resource.
    pub(super) fence: u16,
    pub(super) begin: Instant,
    pub(super) journal: Arc<Journal>,
}

impl World {
    pub(super) fn note(&self, note: &Note) {
        self.journal.record(note);
    }

    pub(super) fn record_fault(&self, event: FaultEvent) {
        self.note(&Note::Fault(event));
    }

    /// Sleeps until a time of the plan; not at all if it has passed.
    pub(super) fn sleep_until(&self, at_ms: u64) {
        let at = self.begin + Duration::from_millis(at_ms);
        thread::sleep(at.saturating_duration_since(Instant::now()));
    }
}
