//! Leases that were released before a master replied to their acquisition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{LeaseId, Op, Outcome, Ttl};

use crate::store::api::{Reply, Request};

/// The acquisitions in flight to one master, and whether their leases were released meanwhile.
///
/// Two calls may wait for a connection and be sent in the other order. So the release of a lease whose
/// acquisition is in flight is repeated after its reply, unless that is a refusal.
#[derive(Clone, Debug, Default)]
pub(super) struct Orphans(Arc<Mutex<HashMap<LeaseId, bool>>>);

/// The acquisitions of one call.
pub(super) struct InFlight {
    orphans: Orphans,
    /// The leases, their positions in the call, and their releases.
    leases: Vec<(LeaseId, usize, Request)>,
}

impl Orphans {
    /// Registers a call. Must be called in the order in which the calls are made.
    pub(super) fn begin(&self, requests: &[Request]) -> InFlight {
        let mut leases = Vec::new();
        let mut in_flight = self.lock();
        for (nth, request) in requests.iter().enumerate() {
            match request.op {
                Op::Acquire { lease, .. } => {
                    in_flight.insert(lease, false);
                    leases.push((lease, nth, release(request, lease)));
                }
                Op::Release {
                    lease, count: 0, ..
                } => {
                    if let Some(released) = in_flight.get_mut(&lease) {
                        *released = true;
                    }
                }
                _ => {}
            }
        }
        let orphans = self.clone();
        InFlight { orphans, leases }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlight {
    /// Ends the call, by its replies or without. Returns the releases to repeat.
    pub(super) fn end(mut self, replies: &[Reply]) -> Vec<Request> {
        let mut in_flight = self.orphans.lock();
        let leases = std::mem::take(&mut self.leases).into_iter();
        let released = leases.filter(|(lease, nth, _)| {
            in_flight.remove(lease) == Some(true) && !is_refusal(replies.get(*nth))
        });
        released.map(|(_, _, release)| release).collect()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut in_flight = self.orphans.lock();
        for (lease, ..) in &self.leases {
            in_flight.remove(lease);
        }
    }
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
    let op = Op::Release {
        lease,
        count: 0,
        ttl: Ttl::USER_MIN,
    };
    Request {
        op,
        ..request.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use leasehold_core::{ClientId, Name, ScopeName, StoreTime};

    use super::*;
    use crate::store::api::Keyspace;

    fn requests(number: u64) -> [Request; 2] {
        let scope = |text| ScopeName::parse(text).unwrap();
        let key = Keyspace::new(scope("app"), scope("t")).key(Name::parse("n").unwrap());
        let client = ClientId::from_random([1; 16]);
        let lease = LeaseId { client, number };
        let acquire = Op::Acquire {
            lease,
            count: NonZeroU32::MIN,
            ttl: Ttl::MAX,
            tokens: NonZeroU32::MIN,
            wait: false,
        };
        let release = Op::Release {
            lease,
            count: 0,
            ttl: Ttl::MAX,
        };
        [acquire, release].map(|op| Request::new(key.clone(), op))
    }

    #[test]
    fn what_is_released_before_it_was_answered_is_released_again() {
        let orphans = Orphans::default();
        let ([acquire, release], [other, _]) = (requests(1), requests(2));
        let asked = orphans.begin(&[acquire, other]);
        assert!(orphans.begin(&[release]).end(&[]).is_empty());
        let again = asked.end(&[]);
        assert_eq!(again.len(), 1);
        assert!(matches!(again[0].op, Op::Release { lease, count: 0, .. } if lease.number == 1));
        assert!(orphans.lock().is_empty());
    }

    #[test]
    fn what_was_refused_is_not_released_again() {
        let orphans = Orphans::default();
        let [acquire, release] = requests(1);
        let asked = orphans.begin(&[acquire]);
        drop(orphans.begin(&[release]));
        let outcome = Outcome::Refused {
            time_left: Duration::ZERO,
            queue_position: None,
        };
        let now = StoreTime::default();
        let refused = Reply::Applied { outcome, now };
        assert!(asked.end(&[refused]).is_empty());
    }

    #[test]
    fn what_is_released_after_its_answer_or_never_sent_is_not() {
        let orphans = Orphans::default();
        let [acquire, release] = requests(1);
        let asked = orphans.begin(std::slice::from_ref(&acquire));
        assert!(asked.end(&[]).is_empty());
        drop(orphans.begin(&[acquire]));
        assert!(orphans.begin(&[release]).end(&[]).is_empty());
        assert!(orphans.lock().is_empty());
    }
}
