//! Passing a lease from one task of this process to the next, without a round trip.

use std::sync::Arc;

use leasehold_core::{Instant, Lease};

use super::active_lease::{ActiveLease, Inner};
use super::contender::Turn;
use super::hold::Hold;
use super::sync::report;
use super::{Driver, Terms};

/// Hands a lease that its last hold has just left to the next in line, with a larger token. `false`:
/// it is to be released.
///
/// It goes to a task that wants it renewed alike, and only as far as [`leasehold_core::Handoff`]
/// allows: then others have their turn.
pub(super) fn hand_off(
    driver: &Arc<Driver>,
    held: &Arc<ActiveLease>,
    inner: &mut Inner,
    now: Instant,
) -> bool {
    let Inner {
        lease, chain, head, ..
    } = inner;
    let Some(head) = head.as_ref().filter(|_| chain.pass(now)) else {
        return false;
    };
    let suits = |lease: &Lease, terms: &Terms| {
        let alike = terms.durability == held.durability();
        alike && terms.fixed.is_none() && lease.suits(terms.policy)
    };
    while let Some(next) = head.next_if(|terms| suits(lease, terms)) {
        let id = lease.hand_on(next.about.policy, now);
        let hold = Hold::handed(driver, held, id, chain.token());
        match next.give(Turn::Hold(hold)) {
            Ok(()) => {
                report(|| metrics::counter!("leasehold_handoffs_total").increment(1));
                return true;
            }
            // It left the line in this moment.
            Err(Turn::Hold(hold)) => {
                hold.forget();
                lease.leave(id, now);
            }
            Err(Turn::Contend(_)) => {}
        }
    }
    false
}
