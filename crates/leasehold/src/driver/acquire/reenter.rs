//! Acquires a lock for an owner that may hold it already.

use std::sync::Arc;

use leasehold_core::OwnerId;

use super::super::Driver;
use super::super::hold::Hold;
use super::{AcquireRequest, Wait};
use crate::Result;

/// Enters the lease that the owner holds, or acquires one.
pub(crate) async fn acquire(
    driver: &Arc<Driver>,
    owner: OwnerId,
    request: &AcquireRequest,
) -> Result<Option<Hold>> {
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
        return Ok(None);
    };
    if let Some((held, handoffs)) = lease.as_ref() {
        let entered = Hold::enter(driver, (held, *handoffs), &slot, request.options).await?;
        if entered.is_some() {
            return Ok(entered);
        }
    }
    let Some(mut hold) = super::acquire(driver, request).await? else {
        return Ok(None);
    };
    let handoffs = hold.lease.lock().chain.passed();
    *lease = Some((Arc::clone(&hold.lease), handoffs));
    hold.slot = Some(Arc::clone(&slot));
    Ok(Some(hold))
}
