//! When the leases of the holders that this process has seen end.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use leasehold_core::{Instant, LeaseId, Rows, StoreTime};

use super::document_text::Header;

/// How long the end of a lease is kept after it, while the document still has the holder.
const KEPT: Duration = Duration::from_secs(60);

/// The ends of the leases of the holders of a document, by the clock of this process.
///
/// A holder has a stamp: the number of the write from which its client counts. While the stamp stays the same, the lease ends
/// when the first version with it that this process has seen says so, whatever others have written since. Each of them counts
/// from its own sight of the version before, so that a dead holder would otherwise outlast its ttl by the sum of what they have
/// not seen: forever, if they ask in turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends(BTreeMap<LeaseId, (u64, Instant)>);

impl Ends {
    /// Replaces them by those of a version. The lease of a holder that was seen with the same stamp ends no later than before.
    pub(super) fn update(&mut self, holders: impl Iterator<Item = (LeaseId, u64, Instant)>) {
        let holders = holders.map(|(lease, stamp, end)| {
            let known = self.0.get(&lease);
            let known = known.filter(|(known, _)| *known == stamp);
            let end = known.map_or(end, |(_, known)| end.min(*known));
            (lease, (stamp, end))
        });
        self.0 = holders.collect();
    }

    /// Shortens the leases in a document to the ends of their stamps, at a time of the store that is a local instant. The ends
    /// may be those of another version.
    pub(super) fn shorten(
        &self,
        (rows, stamps): (&mut Rows, &BTreeMap<LeaseId, u64>),
        now: StoreTime,
        local: Instant,
    ) {
        rows.end_by(|lease| {
            let (stamp, end) = self.0.get(&lease)?;
            if stamps.get(&lease) != Some(stamp) {
                return None;
            }
            let left = local.until(*end);
            // The store's time has no parts of a microsecond.
            let rounded = Duration::from_micros(u64::from(!left.is_zero()));
            Some(now.after_span(left + rounded))
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a lease has ended a short time ago, or has not ended.
    pub(super) fn is_recent(&self, now: Instant) -> bool {
        let mut ends = self.0.values();
        ends.any(|(_, end)| now < end.after(KEPT))
    }
}

/// The stamps of the version that follows one with this header and these rows, if the clients of some leases count anew in it.
pub(super) fn next_stamps(
    header: &Header,
    (before, rows): (&Rows, &Rows),
    timed: &BTreeSet<LeaseId>,
) -> BTreeMap<LeaseId, u64> {
    let unchanged: HashSet<_> = before.all_holders().collect();
    let next = header.commits.wrapping_add(1);
    let stamps = rows.all_holders().map(|holder| {
        let is_same = unchanged.contains(holder) && !timed.contains(&holder.lease);
        let stamp = header.stamps.get(&holder.lease).filter(|_| is_same);
        (holder.lease, stamp.copied().unwrap_or(next))
    });
    stamps.collect()
}
