//! The handover to the next node: the journal and the descriptors of the watched processes. The service manager
//! keeps them.

use std::sync::Arc;

use leasehold::__private::wire::Introduction;
use leasehold_core::{ClientId, Instant};

use crate::client::{Client, Origin, Program};
use crate::journal::{self, Entry, Journal, Known, Saved};
use crate::process::Process;
use crate::service_manager::{Given, ServiceManager};
use crate::shared::Shared;

/// The journal of a node and the descriptors that the service manager keeps for the next one.
#[derive(Debug)]
pub(crate) struct Handover {
    manager: Arc<ServiceManager>,
    journal: Journal,
}

impl Handover {
    /// A handover with an empty journal of the next generation.
    pub(crate) fn new(manager: &Arc<ServiceManager>, given: &Given) -> std::io::Result<Self> {
        let last = given.journals.last_key_value();
        let generation = last.map_or(0, |(last, _)| last.saturating_add(1));
        for place in given.processes.keys() {
            manager.keeps_process(*place);
        }
        Ok(Self {
            manager: Arc::clone(manager),
            journal: Journal::new(generation)?,
        })
    }

    pub(crate) fn write(&self, entry: &Entry) {
        self.journal.write(entry);
    }

    /// Has the service manager keep the descriptor of a process. Returns its number there.
    pub(crate) fn keep(&self, process: &Arc<Process>) -> u64 {
        self.manager.keep_process(process)
    }

    pub(crate) fn forget(&self, place: u64) {
        self.manager.forget_process(place);
    }

    /// Restores the clients of an earlier node, and has the service manager forget that node's journal and unused
    /// descriptors.
    pub(crate) fn take_over(&self, shared: &Arc<Shared>, given: Given, now: Instant) {
        let Given {
            mut processes,
            mut journals,
            ..
        } = given;
        if let Some((_, last)) = journals.pop_last() {
            for (id, saved) in journal::read(last) {
                let found = saved.processes.iter();
                let found: Vec<_> = found
                    .filter_map(|place| Some((*place, processes.remove(place)?)))
                    .collect();
                let whole = found.len() == saved.processes.len() && !found.is_empty();
                let found = found.into_iter().map(|(place, descriptor)| {
                    let process = Process::new(descriptor, shared.count_file()).ok()?;
                    Some((place, Arc::new(process)))
                });
                let found: Option<Vec<_>> = found.collect();
                // Without the descriptors of all its processes, its death could not be noticed.
                let client = found
                    .filter(|_| whole)
                    .and_then(|found| shared.restore(id, saved, found, now));
                match client {
                    Some(client) => tracing::info!(client = %client.id, "took over a client"),
                    None => tracing::warn!("could not take over a client, it has to connect again"),
                }
            }
        }
        if let Ok((generation, file)) = self.journal.is_whole() {
            self.manager
                .keep_journal(generation, file, generation.checked_sub(1));
        }
        for place in processes.keys() {
            self.manager.forget_process(*place);
        }
    }

    /// Rewrites the journal if most of its entries are obsolete.
    pub(crate) fn tidy_up(&self, shared: &Shared) {
        if !self.journal.is_long() {
            return;
        }
        if let Err(error) = self.journal.begin_anew() {
            tracing::warn!(%error, "cannot begin a new journal");
            return;
        }
        for client in shared.clients.all() {
            client.write_all();
        }
        if let Ok((generation, file)) = self.journal.is_whole() {
            self.manager
                .keep_journal(generation, file, generation.checked_sub(1));
        }
    }
}

impl Shared {
    /// Restores a client of an earlier node. It has no connection, and its leases are renewed at once, because the
    /// time of their last renewal is unknown.
    fn restore(
        self: &Arc<Self>,
        id: journal::Id,
        saved: Saved,
        processes: Vec<(u64, Arc<Process>)>,
        now: Instant,
    ) -> Option<Arc<Client>> {
        let Saved {
            known,
            leases,
            silent_since,
            ..
        } = saved;
        let patience = leases.values().map(|lease| lease.patience_ms).min();
        let patience = std::time::Duration::from_millis(patience.unwrap_or(0));
        let silent = silent_since.map_or(now, Instant::from_nanos);
        let program = Program {
            process_nonce: known.process_nonce,
            drawn: known.drawn,
            since: Instant::from_nanos(known.since),
        };
        let origin = Origin::Local(processes.first()?.1.identity());
        let store = Arc::clone(self.store(&known.store)?);
        let heard = silent.min(now.before(patience));
        let client =
            self.clients
                .restore(introduction(id, known), origin, program, store, heard)?;
        client.restore_leases(leases, heard);
        for (place, process) in processes {
            client.rejoin(place, &process);
            self.watch(&client, &process);
        }
        self.look_again(&client, now);
        Some(client)
    }
}

fn introduction(id: journal::Id, known: Known) -> (ClientId, Introduction) {
    let introduction = Introduction {
        process_nonce: known.process_nonce,
        store: known.store,
        namespace: known.namespace,
        tenant: known.tenant,
        host: known.host,
        pid: known.pid,
        program: known.program,
        label: known.label,
    };
    (ClientId::from_random(id), introduction)
}
