//! The handover from one node to the next: the next one takes the clients over from the journal and the descriptors
//! that the service manager has kept.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{ClientId, Instant};

use crate::client::{ClientParts, Origin, Program, WatchedClient};
use crate::journal::{self, SavedClient};
use crate::process::Process;
use crate::service_manager::{InheritedDescriptors, ServiceManager};
use crate::shared::Shared;

/// The interval between two checks of the journal's length.
const REWRITE_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Restores the clients of an earlier node, and has the service manager forget that node's journal and unused
/// descriptors.
pub(crate) fn take_over(
    shared: &Arc<Shared>,
    manager: &ServiceManager,
    inherited: InheritedDescriptors,
    now: Instant,
) {
    let InheritedDescriptors {
        mut processes,
        mut journals,
        ..
    } = inherited;
    if let Some((_, last)) = journals.pop_last() {
        for (id, saved) in journal::read(last) {
            let ids = saved.processes.iter();
            let found = ids.map(|id| Some((*id, processes.remove(id)?)));
            // All are removed, even if one is missing.
            let found: Vec<_> = found.collect();
            // Without the descriptors of all its processes, its death could not be noticed.
            let found: Option<Vec<_>> = found.into_iter().collect();
            let client = found.and_then(|found| restore(shared, id, saved, found, now));
            match client {
                Some(client) => tracing::info!(client = %client.id, "took over a client"),
                None => tracing::warn!("could not take over a client, it has to connect again"),
            }
        }
    }
    if let Err(error) = manager.keep_journal() {
        tracing::warn!(%error, "cannot hand the journal to the service manager");
    }
    for descriptor_id in processes.keys() {
        manager.forget_process(*descriptor_id);
    }
}

/// Restores a client of an earlier node. It has no connection, and its leases are renewed immediately, because the
/// time of their last renewal is unknown.
fn restore(
    shared: &Arc<Shared>,
    id: journal::Id,
    saved: SavedClient,
    descriptors: Vec<(u64, OwnedFd)>,
    now: Instant,
) -> Option<Arc<WatchedClient>> {
    let SavedClient { record, leases, .. } = saved;
    let open = |(id, descriptor)| {
        let process = Process::new(descriptor, shared.permits.file()).ok()?;
        Some((id, Arc::new(process)))
    };
    let processes: Option<Vec<(u64, _)>> = descriptors.into_iter().map(open).collect();
    let processes = processes?;
    let silence_timeout_ms = leases.values().map(|lease| lease.silence_timeout_ms).min();
    let silence_timeout = Duration::from_millis(silence_timeout_ms.unwrap_or(0));
    let silent_since = saved.silent_since.map_or(now, Instant::from_nanos);
    let last_received = silent_since.min(now.before(silence_timeout));
    let parts = ClientParts {
        id: ClientId::from_random(id),
        origin: Origin::Local(processes.first()?.1.identity()),
        program: Program {
            process_nonce: record.info.process_nonce,
            address_hash: record.address_hash,
            since: Instant::from_nanos(record.since),
        },
        store: Arc::clone(shared.store(&record.info.store)?),
        info: record.info,
    };
    let client = shared.clients.restore(parts, last_received)?;
    client.restore_leases(leases, last_received);
    for (descriptor_id, process) in processes {
        client.restore_process(descriptor_id, &process);
        shared.watch_process(&client, &process);
    }
    if client.lock().monitor.is_empty() {
        // It connects again, and has not ended.
        shared.clients.forget(&client);
    } else {
        shared.reschedule(&client, now);
    }
    Some(client)
}

/// Rewrites the journal whenever most of its entries are obsolete.
pub(crate) async fn rewrite_journal(shared: Arc<Shared>, manager: Arc<ServiceManager>) {
    loop {
        tokio::time::sleep(REWRITE_CHECK_INTERVAL).await;
        if !manager.journal.needs_rewrite() {
            continue;
        }
        let rewritten = manager.journal.begin_rewrite().and_then(|()| {
            for client in shared.clients.all() {
                client.write_all();
            }
            manager.keep_journal()
        });
        if let Err(error) = rewritten {
            tracing::warn!(%error, "cannot rewrite the journal");
        }
    }
}
