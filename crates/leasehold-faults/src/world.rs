//! What every world has: a directory for its history, and a fenced resource.

use std::fs::{self, File};
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

/// The file of the events of the campaign.
const CAMPAIGN: &str = "campaign.jsonl";

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
            journal: Arc::new(Journal::open(&directory.path().join(CAMPAIGN))),
            wall: clock::wall_offset(),
            directory,
        }
    }

    /// Compares the clocks again, when the world begins long after its start.
    pub(crate) fn begin(&mut self) {
        self.wall = clock::wall_offset();
    }

    /// Removes what is recorded, while the processes with these names rest, and no others live.
    pub(crate) fn clear<'a>(&self, living: impl Iterator<Item = &'a str>) {
        let directory = self.directory.path();
        let living = living.map(|process| history::file_of(directory, process));
        let open: Vec<_> = living.chain([directory.join(CAMPAIGN)]).collect();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match open.contains(&path.with_extension("jsonl")) {
                true => drop(File::create(path).unwrap()),
                false => fs::remove_file(path).unwrap(),
            }
        }
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
