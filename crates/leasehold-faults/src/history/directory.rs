//! The directory of a history.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::events::{Event, Note};
use super::journal::EventReader;
use crate::clock::Nanos;

/// The events of one world.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) processes: Vec<Process>,
    pub(crate) notes: Vec<(Nanos, Note)>,
}

/// The events of one process.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) events: Vec<(Nanos, Event)>,
    /// Its standard error.
    pub(crate) stderr: String,
}

/// The file of a process's events in the directory of a world.
pub(crate) fn file_of(directory: &Path, process: &str) -> PathBuf {
    directory.join(format!("holder-{process}.jsonl"))
}

/// Reads the history in a directory.
pub(crate) fn read(directory: &Path) -> History {
    let mut history = History::default();
    let entries = fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(name) = name.strip_suffix(".jsonl") else {
            continue;
        };
        match name.strip_prefix("holder-") {
            Some(process) => history.processes.push(Process {
                name: process.to_owned(),
                events: read_all(&path),
                stderr: fs::read_to_string(path.with_extension("err")).unwrap_or_default(),
            }),
            None => history.notes.extend(read_all(&path)),
        }
    }
    history.notes.sort_by_key(|(at, _)| *at);
    history
}

fn read_all<T: DeserializeOwned>(path: &Path) -> Vec<(Nanos, T)> {
    let mut reader = EventReader::open(path);
    std::iter::from_fn(|| reader.next()).collect()
}
