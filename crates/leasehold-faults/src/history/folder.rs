//! The folder of a world's history.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::lines::{Event, Note};
use crate::clock::Nanos;

/// All that was written down in one world.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) processes: Vec<Process>,
    pub(crate) notes: Vec<(Nanos, Note)>,
}

/// One holder process, from its start to its end.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) events: Vec<(Nanos, Event)>,
    /// What it wrote to its standard error.
    pub(crate) complaint: String,
}

/// Reads the folder of a world.
///
/// # Errors
///
/// What cannot be read or understood.
pub(crate) fn read(folder: &Path) -> Result<History, String> {
    let mut history = History::default();
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let Some(name) = name.strip_suffix(".jsonl") else {
            continue;
        };
        match name.strip_prefix("holder-") {
            Some(process) => history.processes.push(Process {
                name: process.to_owned(),
                events: lines(&path)?,
                complaint: fs::read_to_string(path.with_extension("err")).unwrap_or_default(),
            }),
            None => history.notes.extend(lines(&path)?),
        }
    }
    history.notes.sort_by_key(|(at, _)| *at);
    Ok(history)
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<(Nanos, T)>, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let parse =
        |line| serde_json::from_str(line).map_err(|error| format!("{}: {error}", path.display()));
    // A killed process may leave a torn line at the very end.
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(parse)
        .collect()
}
