//! Leases that were released before a master replied to their acquisition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use leasehold_core::{LeaseId, Op, Outcome, Ttl};

use crate::store::api::{Reply, Request};
use crate::store::lock::lock;

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
        let mut in_flight = lock(&self.0);
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
}

impl InFlight {
    /// Ends the call, by its replies or without. Returns the releases to repeat.
    pub(super) fn end(mut self, replies: &[Reply]) -> Vec<Request> {
        let mut in_flight = lock(&self.orphans.0);
        let leases = std::mem::take(&mut self.leases).into_iter();
        let released = leases.filter(|(lease, nth, _)| {
            in_flight.remove(lease) == Some(true) && !is_refusal(replies.get(*nth))
        });
        released.map(|(_, _, release)| release).collect()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut in_flight = lock(&self.orphans.0);
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

    use super::*;
    use crate::store::api::fixture;

    #[test]
    fn only_a_release_before_the_reply_of_a_grant_is_repeated() {
        let (lease, ttl) = (fixture::lease(1), Ttl::MAX);
        let acquire = Op::Acquire {
            lease,
            count: NonZeroU32::MIN,
            ttl,
            tokens: NonZeroU32::MIN,
            proposal: None,
            wait: false,
        };
        let count = 0;
        let request = |op| [Request::new(fixture::key("n"), op)];
        let acquire = request(acquire);
        let release = request(Op::Release { lease, count, ttl });
        let outcome = Outcome::Exhausted;
        let refused = Reply::Applied { outcome, now: None };
        let orphans = Orphans::default();

        let in_flight = orphans.begin(&acquire);
        assert!(orphans.begin(&release).end(&[]).is_empty());
        let again = in_flight.end(&[]);
        assert_eq!(again.len(), 1);
        assert!(matches!(again[0].op, Op::Release { count: 0, .. }));

        let in_flight = orphans.begin(&acquire);
        drop(orphans.begin(&release));
        assert!(in_flight.end(&[refused]).is_empty());

        assert!(orphans.begin(&acquire).end(&[]).is_empty());
        drop(orphans.begin(&acquire));
        assert!(orphans.begin(&release).end(&[]).is_empty());
        assert!(lock(&orphans.0).is_empty());
    }
}
