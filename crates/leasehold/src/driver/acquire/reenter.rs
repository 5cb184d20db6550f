//! Acquires a lock for an owner that may hold it already.

use std::sync::Arc;

use leasehold_core::OwnerId;
use leasehold_core::record::{Condition, Run};

use super::super::Driver;
use super::super::context::AcquireOptions;
use super::super::hold::Hold;
use super::{AcquireRequest, Acquired, Wait};
use crate::Result;
use crate::store::Parts;

/// Enters the lease that the owner holds, or acquires one.
pub(crate) async fn acquire(
    driver: &Arc<Driver>,
    owner: OwnerId,
    request: &AcquireRequest,
) -> Result<Acquired> {
    // Before anything is waited for: in a fork of the process, no task runs.
    driver.check_open(&request.key)?;
    let slot = driver.reentry_slots.slot(&request.key, owner);
    let lease = match request.wait {
        Wait::Forever => Some(slot.lease.lock().await),
        // Another task of the owner acquires it.
        Wait::No => slot.lease.try_lock().ok(),
        Wait::Until(end) => tokio::select! {
            lease = slot.lease.lock() => Some(lease),
            () = driver.context.clock.sleep_until(end) => None,
        },
    };
    let Some(mut lease) = lease else {
        return Ok(Acquired::Refused);
    };
    if let Some((held, handoffs)) = lease.as_ref() {
        let entered = Hold::enter(driver, (held, *handoffs), &slot, &request.options).await?;
        if let Some(hold) = entered {
            return decide(hold, &request.options).await;
        }
    }
    let mut acquired = super::acquire(driver, request).await?;
    if let Acquired::Held(hold, _) = &mut acquired {
        let handoffs = hold.lease.lock().chain.passed();
        *lease = Some((Arc::clone(&hold.lease), handoffs));
        hold.slot = Some(Arc::clone(&slot));
    }
    Ok(acquired)
}

/// Decides whether the run that was asked for is complete, under a lease that was granted for another purpose: nobody
/// else can complete it now.
pub(super) async fn decide(hold: Hold, options: &AcquireOptions) -> Result<Acquired> {
    let Some(run) = &options.run else {
        return Ok(Acquired::Held(hold, None));
    };
    let (context, key) = (&hold.driver.context, &hold.lease.key);
    let parts = Parts::State(run.unless.slot());
    let view = context.store.view(key, parts).await;
    let view = view.map_err(|error| context.name_error(error, key))?;
    let last = view.annotation().cloned();
    let now = view.calendar.or(view.now).unwrap_or_default();
    let unless = run.unless(context.clock.now());
    let requested_at = now.before_span(unless.asked());
    let condition = Condition {
        unless,
        requested_at,
    };
    Ok(match last {
        Some(last) if condition.is_met(&last.text, now) => Acquired::Complete(last),
        last => Acquired::Held(hold, Some((Run { requested_at, last }, now))),
    })
}
