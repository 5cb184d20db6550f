//! What the processes of a world have recorded so far.

use std::collections::BTreeMap;
use std::path::Path;

use crate::clock::Nanos;
use crate::history::{Event, EventReader, HoldEvent, file_of};

/// The grants and the observed leaders of all elections.
#[derive(Debug, Default)]
pub(super) struct Progress {
    readers: BTreeMap<String, EventReader>,
    /// The election of each acquisition, by its process and its number.
    requested: BTreeMap<(String, u64), String>,
    /// The leader with the largest term in each election.
    leaders: BTreeMap<String, Leader>,
    /// The lease that the observer in each process was told last for each election.
    observed: BTreeMap<(String, String), Option<String>>,
    grants: usize,
}

/// A grant.
#[derive(Clone, Debug)]
pub(super) struct Leader {
    pub(super) process: String,
    pub(super) lease: String,
    pub(super) term: u64,
    pub(super) at: Nanos,
}

impl Progress {
    /// Reads the events of a process from now on.
    pub(super) fn add(&mut self, directory: &Path, process: &str) {
        let reader = EventReader::open(&file_of(directory, process));
        self.readers.insert(process.to_owned(), reader);
    }

    /// Reads the last events of a process that has ended.
    pub(super) fn remove(&mut self, process: &str) {
        self.update();
        self.readers.remove(process);
        self.observed.retain(|(observer, _), _| observer != process);
    }

    /// Reads all new events.
    pub(super) fn update(&mut self) {
        let mut readers = std::mem::take(&mut self.readers);
        for (process, reader) in &mut readers {
            while let Some((at, event)) = reader.next() {
                self.take(process, at, event);
            }
        }
        self.readers = readers;
    }

    fn take(&mut self, process: &str, at: Nanos, event: Event) {
        match event {
            Event::Hold(hold, HoldEvent::Requested { name, .. }) => {
                self.requested.insert((process.to_owned(), hold), name);
            }
            Event::Hold(hold, HoldEvent::Granted { lease, token, .. }) => {
                let request = (process.to_owned(), hold);
                let Some(election) = self.requested.get(&request) else {
                    return;
                };
                self.grants += 1;
                let leader = Leader {
                    process: request.0,
                    lease,
                    term: token,
                    at,
                };
                let last = self.leaders.entry(election.clone());
                let last = last.or_insert_with(|| leader.clone());
                if last.term < leader.term {
                    *last = leader;
                }
            }
            Event::LeaderObserved { election, leader } => {
                let observer = (process.to_owned(), election);
                let lease = leader.map(|leader| leader.lease);
                self.observed.insert(observer, lease);
            }
            _ => {}
        }
    }

    /// The leader of an election with the largest term. `None`: it has had none.
    pub(super) fn leader(&self, election: &str) -> Option<&Leader> {
        self.leaders.get(election)
    }

    /// The number of grants, of all elections.
    pub(super) fn grants(&self) -> usize {
        self.grants
    }

    /// Whether each process has been told this leader of an election last.
    pub(super) fn all_observe(&self, election: &str, lease: &str) -> bool {
        self.readers.keys().all(|process| {
            let observer = (process.clone(), election.to_owned());
            let last = self.observed.get(&observer);
            last.is_some_and(|last| last.as_deref() == Some(lease))
        })
    }
}
