//! Servers, their holders and the fenced resource that they write to.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::plan::Plan;
use super::servers::Servers;
use crate::history::{Happened, Journal, Note};

/// What all threads that look after a world share.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) folder: PathBuf,
    pub(super) servers: Servers,
    pub(super) fence: u16,
    pub(super) begin: Instant,
    pub(super) journal: Arc<Journal>,
}

impl World {
    pub(super) fn note(&self, note: &Note) {
        self.journal.write(note);
    }

    pub(super) fn happened(&self, happened: Happened) {
        self.note(&Note::Fault(happened));
    }

    /// Sleeps until a time of the plan; not at all if it has passed.
    pub(super) fn sleep_until(&self, at_ms: u64) {
        let at = self.begin + Duration::from_millis(at_ms);
        thread::sleep(at.saturating_duration_since(Instant::now()));
    }
}
