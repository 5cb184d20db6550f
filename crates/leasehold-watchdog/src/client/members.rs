//! The processes of a client.

use std::sync::Arc;

use leasehold::__private::wire::Refusal;
use tokio::task::AbortHandle;

use crate::process::{Identity, Process};

/// How many processes of a client are watched at most.
const MEMBERS_MAX: usize = 64;

/// The processes that must end before a client is dead. The first is the one that sent the hello.
#[derive(Debug, Default)]
pub(super) struct Members(Vec<Member>);

/// A process of a client.
#[derive(Debug)]
pub(super) struct Member {
    process: Arc<Process>,
    gone: bool,
    watch: Option<AbortHandle>,
    /// The number under which the service manager keeps its descriptor.
    pub(super) place: Option<u64>,
}

impl Members {
    pub(super) fn has(&self, identity: Identity) -> bool {
        self.0
            .iter()
            .any(|member| member.process.identity() == identity)
    }

    /// Makes room for one more by removing ended ones. Returns the numbers under which those were kept.
    pub(super) fn make_room(&mut self) -> Result<Vec<u64>, Refusal> {
        let mut left = Vec::new();
        if self.0.len() >= MEMBERS_MAX {
            let mut first = true;
            self.0.retain(|member| {
                let stays = std::mem::take(&mut first) || !member.gone;
                left.extend(member.place.filter(|_| !stays));
                stays
            });
        }
        match self.0.len() < MEMBERS_MAX {
            true => Ok(left),
            false => Err(Refusal::Processes),
        }
    }

    pub(super) fn push(&mut self, process: Arc<Process>, place: Option<u64>) {
        self.0.push(Member {
            process,
            gone: false,
            watch: None,
            place,
        });
    }

    /// Adds the task that watches a process. It is aborted when that process is removed.
    pub(super) fn watched_by(&mut self, identity: Identity, watch: AbortHandle) {
        match self.find(identity) {
            Some(member) => member.watch = Some(watch),
            None => watch.abort(),
        }
    }

    /// Handles the end of a process. Returns whether all have ended.
    pub(super) fn gone(&mut self, identity: Identity) -> bool {
        if let Some(member) = self.find(identity) {
            member.gone = true;
        }
        !self.0.is_empty() && self.0.iter().all(|member| member.gone)
    }

    /// The number of processes that have not ended.
    pub(super) fn alive(&self) -> usize {
        self.0.iter().filter(|member| !member.gone).count()
    }

    /// The likely reason for the silence of the first process, for people.
    pub(super) fn why(&self) -> String {
        let first = self.0.first();
        first.map_or_else(String::new, |member| member.process.why())
    }

    /// The numbers under which the service manager keeps them.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> {
        self.0.iter().filter_map(|member| member.place)
    }

    fn find(&mut self, identity: Identity) -> Option<&mut Member> {
        let mut members = self.0.iter_mut();
        members.find(|member| member.process.identity() == identity)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.abort();
        }
    }
}
