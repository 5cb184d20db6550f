//! Leases that were released before a master has replied to their acquisition.

use std::collections::BTreeMap;

use crate::id::LeaseId;
use crate::record::{Acquire, Op};

/// The acquisitions in flight to one master. `C` identifies a connection for the order of its calls.
///
/// Two calls may wait for a connection and be sent in the other order. So the release of a lease whose
/// acquisition is in flight is repeated after its reply, unless that is a refusal, or a reply to a call that was sent
/// over the same connection before.
#[derive(Clone, Debug)]
pub struct Orphans<C> {
    in_flight: BTreeMap<LeaseId, Acquisitions<C>>,
}

/// The acquisitions of a lease in flight: mostly one, and a second one that restores it.
#[derive(Clone, Debug)]
struct Acquisitions<C> {
    count: usize,
    /// The connection over which all of them were sent immediately, if there was one.
    connection: Option<C>,
    release: Release,
}

/// Whether the lease of acquisitions in flight was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    None,
    /// Behind the acquisitions, over the same connection.
    Behind,
    Unordered,
}

/// The reply to an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replied {
    /// The lease holds.
    Granted,
    /// The lease certainly does not hold.
    Refused,
    /// There was none.
    Unknown,
}

impl<C> Default for Orphans<C> {
    fn default() -> Self {
        Self {
            in_flight: BTreeMap::new(),
        }
    }
}

impl<C: Copy + PartialEq> Orphans<C> {
    /// Registers an operation that is sent over `connection` immediately, if there is one. Must be called in the order
    /// in which the calls are made.
    pub fn begin(&mut self, op: &Op, connection: Option<C>) {
        match op {
            Op::Acquire(Acquire { lease, .. }) => {
                let acquisitions = self.in_flight.entry(*lease).or_insert(Acquisitions {
                    count: 0,
                    connection,
                    release: Release::None,
                });
                acquisitions.count += 1;
                if acquisitions.connection != connection {
                    acquisitions.connection = None;
                }
                if acquisitions.release == Release::Behind {
                    acquisitions.release = Release::Unordered;
                }
            }
            Op::Release { lease, .. } => {
                if let Some(acquisitions) = self.in_flight.get_mut(lease) {
                    let is_behind = connection.is_some() && acquisitions.connection == connection;
                    acquisitions.release = match (is_behind, acquisitions.release) {
                        (true, Release::None | Release::Behind) => Release::Behind,
                        _ => Release::Unordered,
                    };
                }
            }
            _ => {}
        }
    }

    /// Ends an acquisition, while requests are sent over `connection`. Returns whether the release of its lease is to be
    /// repeated.
    pub fn end(&mut self, lease: LeaseId, replied: Replied, connection: Option<C>) -> bool {
        let Some(acquisitions) = self.in_flight.get_mut(&lease) else {
            return false;
        };
        acquisitions.count -= 1;
        let (sent_over, release) = (acquisitions.connection, acquisitions.release);
        if acquisitions.count == 0 {
            self.in_flight.remove(&lease);
        }
        match (release, replied) {
            (Release::None, _) | (_, Replied::Refused) => false,
            (Release::Behind, Replied::Granted) => sent_over != connection,
            (Release::Behind | Release::Unordered, _) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::lease;
    use crate::time::Ttl;

    const LEASE: LeaseId = lease(1);

    /// A connection, and how often a call was sent again over it.
    const HERE: Option<(u64, u64)> = Some((1, 0));

    fn acquire() -> Op {
        Op::Acquire(Acquire::mutex(LEASE, Ttl::MAX))
    }

    fn release() -> Op {
        Op::release(LEASE)
    }

    #[test]
    fn only_a_release_before_the_reply_of_a_grant_is_repeated() {
        for (replied, repeated) in [
            (Replied::Granted, true),
            (Replied::Unknown, true),
            (Replied::Refused, false),
        ] {
            let mut orphans = Orphans::default();
            orphans.begin(&acquire(), None::<()>);
            orphans.begin(&release(), None);
            assert_eq!(orphans.end(LEASE, replied, None), repeated, "{replied:?}");
            // A release before or after it.
            orphans.begin(&release(), None);
            orphans.begin(&acquire(), None);
            assert!(!orphans.end(LEASE, replied, None));
            assert!(orphans.in_flight.is_empty());
        }
    }

    #[test]
    fn a_release_between_two_acquisitions_of_a_lease_is_repeated() {
        for first_ends_before in [true, false] {
            let mut orphans = Orphans::default();
            orphans.begin(&acquire(), HERE);
            if !first_ends_before {
                orphans.begin(&release(), HERE);
            }
            orphans.begin(&acquire(), HERE);
            assert!(!orphans.end(LEASE, Replied::Refused, HERE));
            if first_ends_before {
                orphans.begin(&release(), None);
            }
            assert!(orphans.end(LEASE, Replied::Unknown, HERE));
            assert!(orphans.in_flight.is_empty());
        }
    }

    #[test]
    fn a_release_behind_its_acquisition_is_not_repeated() {
        let other = Some((2, 0));
        for (sent, released, ended, replied, repeated) in [
            (HERE, HERE, HERE, Replied::Granted, false),
            // Without a reply nothing is known.
            (HERE, HERE, HERE, Replied::Unknown, true),
            // Either waited for a connection.
            (None, HERE, HERE, Replied::Granted, true),
            (HERE, None, HERE, Replied::Granted, true),
            (None, None, HERE, Replied::Granted, true),
            // There was another one in between.
            (HERE, other, other, Replied::Granted, true),
            (HERE, HERE, other, Replied::Granted, true),
            // The acquisition may have been sent again.
            (HERE, HERE, Some((1, 1)), Replied::Granted, true),
        ] {
            let mut orphans = Orphans::default();
            orphans.begin(&acquire(), sent);
            orphans.begin(&release(), released);
            let again = orphans.end(LEASE, replied, ended);
            assert_eq!(again, repeated, "{sent:?} {released:?} {ended:?}");
        }
    }
}
