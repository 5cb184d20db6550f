//! The files of a history, while they are written.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::events::{Event, HoldEvent};
use crate::clock::{self, Nanos};

/// A file of a history. Each line is written by one call, so a killed process leaves whole lines.
#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().append(true).create(true).open(path);
        Self(file.unwrap())
    }

    /// Records an event of this instant, and returns the instant.
    pub(crate) fn record(&self, event: &impl Serialize) -> Nanos {
        let now = clock::now();
        self.record_at(now, event);
        now
    }

    pub(crate) fn record_hold(&self, hold: u64, event: HoldEvent) -> Nanos {
        self.record(&Event::Hold(hold, event))
    }

    pub(crate) fn record_at(&self, at: Nanos, event: &impl Serialize) {
        let mut line = serde_json::to_vec(&(at, event)).unwrap();
        line.push(b'\n');
        (&self.0).write_all(&line).unwrap();
    }
}

/// Reads a file of a history, perhaps while it is written.
#[derive(Debug)]
pub(crate) struct EventReader {
    file: BufReader<File>,
    line: String,
}

impl EventReader {
    /// Reads a file from its beginning, which is created if it does not exist.
    pub(crate) fn open(path: &Path) -> Self {
        drop(Journal::open(path));
        Self {
            file: BufReader::new(File::open(path).unwrap()),
            line: String::new(),
        }
    }

    /// The next event. `None`: it has not been written yet, or not its whole line.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Option<(Nanos, T)> {
        self.file.read_line(&mut self.line).unwrap();
        self.line.ends_with('\n').then(|| {
            let event = serde_json::from_str(&self.line).unwrap();
            self.line.clear();
            event
        })
    }
}
