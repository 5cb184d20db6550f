//! Attempts that do not wait.

use std::sync::Arc;

use super::super::Driver;
use super::{AcquireRequest, Acquired, Contender};
use crate::Result;

/// Acquires a lock without waiting, past the queue if there is one.
pub(super) async fn try_acquire(
    driver: &Arc<Driver>,
    request: &AcquireRequest,
) -> Result<Acquired> {
    let Some((contender, past_the_queue)) = attempt(driver, request) else {
        return Ok(Acquired::Refused);
    };
    // A shutdown does not find it in the queue.
    let _call = driver.releases.call();
    let acquired = Box::pin(contender.run()).await?;
    Ok(unless_overtaken(driver, request, past_the_queue, acquired))
}

/// The contender for one attempt, and whether it is past the queue. `None`: it would be refused.
pub(super) fn attempt(driver: &Arc<Driver>, request: &AcquireRequest) -> Option<(Contender, bool)> {
    let AcquireRequest { key, options, .. } = request;
    let head = driver.queues.of(options.claim.kind()).enter_if_empty(key);
    let past_the_queue = head.is_none();
    // Only the store knows whether a run is complete, or how many permits are free.
    let store_decides = options.is_shared() || options.run.is_some();
    if past_the_queue && !store_decides && driver.holds(key) {
        return None;
    }
    let contender = Contender::new(driver, key, options, head, false);
    Some((contender, past_the_queue))
}

/// The result of an attempt. Those in the queue may not have sent their request yet, and come first.
pub(super) fn unless_overtaken(
    driver: &Driver,
    request: &AcquireRequest,
    past_the_queue: bool,
    acquired: Acquired,
) -> Acquired {
    let AcquireRequest { key, options, .. } = request;
    let queues = driver.queues.of(options.claim.kind());
    let overtakes = || match options.is_shared() {
        false => queues.is_open(key),
        // The head alone does not wait: its request was before this one.
        true => queues.is_followed(key),
    };
    match acquired {
        Acquired::Held(..) if past_the_queue && overtakes() => Acquired::Refused,
        acquired => acquired,
    }
}
