//! The releases that were cut off by the end of the runtime.
//!
//! A program that returns from `main` drops its runtime, and with it the tasks that were about to tell
//! the store of guards dropped a moment before. So that such a program leaves nothing held, the driver
//! tells it in the end, on a thread and a runtime of its own, and waits for that. In a runtime that
//! lives there is nothing to wait for.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use super::batcher::BATCH_MAX;
use crate::store::{Reply, Request, Store};

/// How long a program waits for the store in its end.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pause between two tries.
const RETRY: Duration = Duration::from_millis(50);

/// Tells a store of releases, and waits until it knows, for [`PATIENCE`] at most.
pub(super) fn say(store: &Arc<dyn Store>, releases: Vec<Request>) {
    if releases.is_empty() {
        return;
    }
    let (told, ended) = mpsc::channel();
    let store = Arc::clone(store);
    let count = releases.len();
    let thread = std::thread::Builder::new().name("leasehold-farewell".into());
    let spawned = thread.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        if let Ok(runtime) = runtime {
            runtime.block_on(async {
                let _ = tokio::time::timeout(PATIENCE, tell(&*store, releases)).await;
            });
        }
        // Whoever waited may be gone.
        let _ = told.send(());
    });
    if spawned.is_err() || ended.recv_timeout(PATIENCE * 2).is_err() {
        tracing::warn!(count, "releases were cut off; their leases end them");
    }
}

async fn tell(store: &dyn Store, mut releases: Vec<Request>) {
    loop {
        let mut left = Vec::new();
        for part in releases.chunks(BATCH_MAX) {
            let replies = store.apply(part.to_vec()).await;
            let replies = part.iter().zip(replies);
            left.extend(
                replies
                    .filter(|(_, reply)| !matches!(reply, Reply::Applied { .. }))
                    .map(|(release, _)| release.clone()),
            );
        }
        if left.is_empty() {
            return;
        }
        releases = left;
        tokio::time::sleep(RETRY).await;
    }
}
