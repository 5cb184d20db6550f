//! The processes of a client.

use std::sync::Arc;

use leasehold::__private::wire::Refusal;
use tokio::task::AbortHandle;

use crate::process::{Identity, Process};

/// How many processes of a client are watched at most.
const PROCESSES_MAX: usize = 64;

/// The processes that must end before a client is dead. The first is the one that sent the hello.
#[derive(Debug, Default)]
pub(crate) struct Processes(Vec<ClientProcess>);

/// A process of a client.
#[derive(Debug)]
struct ClientProcess {
    process: Arc<Process>,
    ended: bool,
    watch: Option<AbortHandle>,
    /// The number under which the service manager keeps its descriptor.
    descriptor_id: Option<u64>,
}

impl Processes {
    pub(crate) fn has(&self, identity: Identity) -> bool {
        self.0.iter().any(|it| it.process.identity() == identity)
    }

    /// Makes room for one more by removing ended ones. Returns the numbers of their descriptors.
    pub(super) fn make_room(&mut self) -> Result<Vec<u64>, Refusal> {
        if self.0.len() < PROCESSES_MAX {
            return Ok(Vec::new());
        }
        let removed = self.0.extract_if(1.., |process| process.ended);
        let removed: Vec<_> = removed.collect();
        match removed.is_empty() {
            true => Err(Refusal::Processes),
            false => Ok(removed.iter().filter_map(|it| it.descriptor_id).collect()),
        }
    }

    pub(super) fn push(&mut self, process: Arc<Process>, descriptor_id: Option<u64>) {
        self.0.push(ClientProcess {
            process,
            ended: false,
            watch: None,
            descriptor_id,
        });
    }

    /// Adds the task that watches a process. It is aborted when the process is removed or the client is forgotten.
    pub(crate) fn set_watch_task(&mut self, identity: Identity, watch: AbortHandle) {
        match self.find(identity) {
            Some(process) => process.watch = Some(watch),
            None => watch.abort(),
        }
    }

    /// Notes the end of a process.
    pub(super) fn ended(&mut self, identity: Identity) {
        if let Some(process) = self.find(identity) {
            process.ended = true;
        }
    }

    /// Whether all have ended.
    pub(super) fn have_ended(&self) -> bool {
        !self.0.is_empty() && self.alive() == 0
    }

    /// The number of processes that have not ended.
    pub(crate) fn alive(&self) -> usize {
        self.0.iter().filter(|process| !process.ended).count()
    }

    /// The likely reason for the silence of the first process, for people.
    pub(crate) fn silence_reason(&self) -> String {
        let first = self.0.first();
        first.map_or_else(String::new, |it| it.process.silence_reason())
    }

    /// The numbers under which the service manager keeps their descriptors.
    pub(super) fn descriptor_ids(&self) -> impl Iterator<Item = u64> {
        self.0.iter().filter_map(|process| process.descriptor_id)
    }

    fn find(&mut self, identity: Identity) -> Option<&mut ClientProcess> {
        let mut processes = self.0.iter_mut();
        processes.find(|it| it.process.identity() == identity)
    }
}

impl Drop for ClientProcess {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}
