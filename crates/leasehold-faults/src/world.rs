//! What every world has: a directory for its history, and a fenced resource.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;

use crate::checker::CheckReport;
use crate::clock::{self, Nanos};
use crate::fence;
use crate::history::{self, Journal, Note};
use crate::scenario::Run;

/// How far the wall clock may drift from the other without having been set.
const WALL_DRIFT_MAX: Nanos = clock::MILLI / 2;

/// The history of a world while it is recorded.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Where temporary files are: a holder must not wait for a disk in the middle of a step.
    directory: TempDir,
    pub(crate) journal: Arc<Journal>,
    /// How far the wall clock was ahead at the begin.
    wall: Nanos,
}

impl Recording {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            journal: Arc::new(Journal::open(&directory.path().join("campaign.jsonl"))),
            wall: clock::wall_offset(),
            directory,
        }
    }

    /// Compares the clocks again, when the world begins long after its start.
    pub(crate) fn begin(&mut self) {
        self.wall = clock::wall_offset();
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.directory.path().to_owned()
    }

    /// Starts a fenced resource, and returns its port.
    pub(crate) fn fence(&self) -> u16 {
        fence::start(Arc::clone(&self.journal))
    }

    /// Records what the checks need to know of the world, and checks its history. If `has_times` is true, the time in a
    /// token is that of its grant, unless the wall clock was set meanwhile.
    pub(crate) fn check(
        &self,
        run: &Run,
        label: &str,
        has_times: bool,
        world: history::WorldInfo,
    ) -> CheckReport {
        let moved = clock::wall_offset().abs_diff(self.wall) > WALL_DRIFT_MAX;
        let wall = (has_times && !moved).then_some(self.wall);
        let note = Note::World(history::WorldInfo { wall, ..world });
        self.journal.record(&note);
        run.check(self.directory.path(), label)
    }
}
