//! Sends the releases that the end of the runtime has cut off.
//!
//! A program that returns from `main` drops its runtime, and with it the tasks that wait for the releases of
//! guards that were dropped a moment before. So that such a program leaves nothing held, the drop of the
//! driver sends these releases on a thread and a runtime of its own, and waits for them, as soon as the tasks of the store's
//! connections are dropped as well. In a runtime that continues, the background tasks have finished them before.

use std::sync::mpsc;
use std::time::Duration;

use super::batcher::BATCH_MAX;
use super::context::Context;
use super::primitives::after_connections;
use super::release::Release;
use crate::store::Reply;

/// How long a program waits for the store when it ends.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The interval between two attempts.
const RETRY: Duration = Duration::from_millis(50);

/// Flushes releases as soon as no task of a connection is left.
pub(super) fn flush_releases(context: &Context, releases: Vec<Release>) {
    if !releases.is_empty() {
        let owned = context.clone();
        after_connections(&context.runtime, move || flush(owned, releases));
    }
}

/// Sends releases, and waits for their replies for [`TIMEOUT`] at most.
fn flush(context: Context, releases: Vec<Release>) {
    let (sender, done) = mpsc::channel();
    let count = releases.len();
    let thread = std::thread::Builder::new().name("leasehold-flush".into());
    let spawned = thread.spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        if let Ok(runtime) = runtime {
            runtime.block_on(async {
                let _ = tokio::time::timeout(TIMEOUT, send(&context, releases)).await;
            });
        }
        // The receiver may have given up.
        let _ = sender.send(());
    });
    if spawned.is_err() || done.recv_timeout(TIMEOUT * 2).is_err() {
        tracing::warn!(
            count,
            "releases were cut off; the locks are free when their leases expire"
        );
    }
}

async fn send(context: &Context, mut releases: Vec<Release>) {
    loop {
        let mut failed = Vec::new();
        for batch in releases.chunks(BATCH_MAX) {
            let now = context.clock.now();
            let requests = batch.iter().map(|release| release.request(now));
            let replies = context.store.apply(requests.collect()).await;
            let replies = batch.iter().zip(replies);
            let unconfirmed = replies.filter(|(_, reply)| !matches!(reply, Reply::Applied { .. }));
            failed.extend(unconfirmed.map(|(release, _)| release.clone()));
        }
        if failed.is_empty() {
            return;
        }
        releases = failed;
        tokio::time::sleep(RETRY).await;
    }
}
