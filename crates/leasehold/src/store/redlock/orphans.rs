//! Leases that were released before a master replied to their acquisition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use leasehold_core::{Acquire, LeaseId, Op, Outcome};

use crate::store::api::{Reply, Request};
use crate::store::lock::lock;
use crate::store::redis::master::ConnectionId;

/// The acquisitions in flight to one master.
///
/// Two calls may wait for a connection and be sent in the other order. So the release of a lease whose
/// acquisition is in flight is repeated after its reply, unless that is a refusal, or a reply to a call that was sent
/// over the same connection before.
#[derive(Clone, Debug, Default)]
pub(super) struct Orphans(Arc<Mutex<HashMap<LeaseId, Acquisitions>>>);

/// The acquisitions of a lease in flight: mostly one, and a second one that restores it.
#[derive(Debug)]
struct Acquisitions {
    count: usize,
    /// The connection over which all of them were sent at once, if there was one.
    connection: Option<ConnectionId>,
    release: ReleaseState,
}

impl Acquisitions {
    fn add(&mut self, connection: Option<ConnectionId>) {
        self.count += 1;
        if self.connection != connection {
            self.connection = None;
        }
        if self.release == ReleaseState::Behind {
            self.release = ReleaseState::Unordered;
        }
    }

    fn note_release(&mut self, connection: Option<ConnectionId>) {
        let behind = connection.is_some() && self.connection == connection;
        self.release = match (behind, self.release) {
            (true, ReleaseState::None | ReleaseState::Behind) => ReleaseState::Behind,
            _ => ReleaseState::Unordered,
        };
    }
}

/// Whether the lease of acquisitions in flight was released.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ReleaseState {
    None,
    /// Behind the acquisitions, over the same connection.
    Behind,
    Unordered,
}

/// The acquisitions of one call.
pub(super) struct InFlight {
    orphans: Orphans,
    /// The leases, their positions in the call, and their releases.
    leases: Vec<(LeaseId, usize, Request)>,
}

impl Orphans {
    /// Registers a call that is sent over `connection` at once, if there is one. Must be called in the order in which
    /// the calls are made.
    pub(super) fn begin(&self, requests: &[Request], connection: Option<ConnectionId>) -> InFlight {
        let mut leases = Vec::new();
        let mut in_flight = lock(&self.0);
        for (nth, request) in requests.iter().enumerate() {
            match &request.op {
                Op::Acquire(Acquire { lease, .. }) => {
                    let others = in_flight.entry(*lease).or_insert(Acquisitions {
                        count: 0,
                        connection,
                        release: ReleaseState::None,
                    });
                    others.add(connection);
                    leases.push((*lease, nth, release(request, *lease)));
                }
                Op::Release { lease, .. } => {
                    if let Some(acquisitions) = in_flight.get_mut(lease) {
                        acquisitions.note_release(connection);
                    }
                }
                _ => {}
            }
        }
        let orphans = self.clone();
        InFlight { orphans, leases }
    }
}

impl InFlight {
    /// Ends the call, by its replies or without, while requests are sent over `connection`. Returns the releases to
    /// repeat.
    pub(super) fn end(
        mut self,
        replies: &[Reply],
        connection: Option<ConnectionId>,
    ) -> Vec<Request> {
        let mut in_flight = lock(&self.orphans.0);
        let leases = std::mem::take(&mut self.leases).into_iter();
        let released = leases.filter(|(lease, nth, _)| {
            let reply = replies.get(*nth);
            let Some((sent_over, release)) = remove(&mut in_flight, *lease) else {
                return false;
            };
            let certain = matches!(reply, Some(Reply::Applied { .. }));
            match release {
                ReleaseState::None => false,
                ReleaseState::Behind if certain && sent_over == connection => false,
                ReleaseState::Behind | ReleaseState::Unordered => !is_refusal(reply),
            }
        });
        released.map(|(_, _, release)| release).collect()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut in_flight = lock(&self.orphans.0);
        for (lease, ..) in &self.leases {
            remove(&mut in_flight, *lease);
        }
    }
}

/// Removes one acquisition of a lease. Returns the connection of those in flight, and whether the lease was released.
fn remove(
    in_flight: &mut HashMap<LeaseId, Acquisitions>,
    lease: LeaseId,
) -> Option<(Option<ConnectionId>, ReleaseState)> {
    let acquisitions = in_flight.get_mut(&lease)?;
    acquisitions.count -= 1;
    let state = (acquisitions.connection, acquisitions.release);
    if acquisitions.count == 0 {
        in_flight.remove(&lease);
    }
    Some(state)
}

/// Whether a reply means that the lease was not granted.
fn is_refusal(reply: Option<&Reply>) -> bool {
    match reply {
        Some(Reply::Applied { outcome, .. }) => !matches!(outcome, Outcome::Granted { .. }),
        Some(Reply::Rejected(_)) => true,
        Some(Reply::Unknown(_)) | None => false,
    }
}

fn release(request: &Request, lease: LeaseId) -> Request {
    Request {
        op: Op::release(lease),
        ..request.clone()
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::Ttl;

    use super::*;
    use crate::store::api::fixture;

    /// The acquisition of a lease and its release.
    fn requests() -> [[Request; 1]; 2] {
        let lease = fixture::lease(1);
        let acquire = Op::Acquire(Acquire::mutex(lease, Ttl::MAX));
        let release = Op::release(lease);
        [acquire, release].map(|op| [Request::new(fixture::key("n"), op)])
    }

    #[test]
    fn only_a_release_before_the_reply_of_a_grant_is_repeated() {
        let [acquire, release] = requests();
        let outcome = Outcome::Exhausted;
        let refused = Reply::Applied { outcome, now: None };
        let orphans = Orphans::default();

        let in_flight = orphans.begin(&acquire, None);
        assert!(orphans.begin(&release, None).end(&[], None).is_empty());
        let again = in_flight.end(&[], None);
        assert_eq!(again.len(), 1);
        assert!(matches!(again[0].op, Op::Release { rest: None, .. }));

        let in_flight = orphans.begin(&acquire, None);
        drop(orphans.begin(&release, None));
        assert!(in_flight.end(&[refused], None).is_empty());

        assert!(orphans.begin(&acquire, None).end(&[], None).is_empty());
        drop(orphans.begin(&acquire, None));
        assert!(orphans.begin(&release, None).end(&[], None).is_empty());
        assert!(lock(&orphans.0).is_empty());
    }

    #[test]
    fn a_release_between_two_acquisitions_of_a_lease_is_repeated() {
        let [acquire, release] = requests();
        let here = Some(ConnectionId {
            session: 1,
            resent: 0,
        });
        let outcome = Outcome::Exhausted;
        let refused = [Reply::Applied { outcome, now: None }];
        for first_ends_before in [true, false] {
            let orphans = Orphans::default();
            let first = orphans.begin(&acquire, here);
            if !first_ends_before {
                drop(orphans.begin(&release, here));
            }
            let second = orphans.begin(&acquire, here);
            assert!(first.end(&refused, here).is_empty());
            if first_ends_before {
                drop(orphans.begin(&release, None));
            }
            assert_eq!(second.end(&[], here).len(), 1);
            assert!(lock(&orphans.0).is_empty());
        }
    }

    #[test]
    fn a_release_behind_its_acquisition_is_not_repeated() {
        let [acquire, release] = requests();
        let connection = |session, resent| Some(ConnectionId { session, resent });
        let here = connection(1, 0);
        let first = leasehold_core::Token::MAX;
        let granted = Reply::Applied {
            outcome: Outcome::Granted { first, run: None },
            now: None,
        };
        for (sent, released, ended, repeated) in [
            (here, here, here, 0),
            // Either waited for a connection.
            (None, here, here, 1),
            (here, None, here, 1),
            (None, None, here, 1),
            // There was another one in between.
            (here, connection(2, 0), connection(2, 0), 1),
            (here, here, connection(2, 0), 1),
            // The acquisition may have been sent again.
            (here, here, connection(1, 1), 1),
        ] {
            let orphans = Orphans::default();
            let in_flight = orphans.begin(&acquire, sent);
            drop(orphans.begin(&release, released));
            let again = in_flight.end(std::slice::from_ref(&granted), ended);
            assert_eq!(again.len(), repeated, "{sent:?} {released:?} {ended:?}");
        }
        // Without a reply nothing is known.
        let orphans = Orphans::default();
        let in_flight = orphans.begin(&acquire, here);
        drop(orphans.begin(&release, here));
        assert_eq!(in_flight.end(&[], here).len(), 1);
    }
}
