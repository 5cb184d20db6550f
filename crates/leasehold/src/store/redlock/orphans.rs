//! Leases that were asked for at a master and given up before it answered.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{LeaseId, Op, Outcome, Ttl};

use super::master::Master;
use crate::store::api::{Reply, Request};

/// The leases whose question is under way to one master, and whether they were released meanwhile.
///
/// Two calls may wait for a connection and go out in the other order. So the release of a lease whose
/// question has not been answered is said once more after the answer, unless that is a refusal.
#[derive(Debug, Default)]
pub(super) struct Orphans(Mutex<HashMap<LeaseId, bool>>);

/// The questions of one call.
pub(super) struct Questions {
    node: Arc<Master>,
    /// The leases, their places in the call, and their releases.
    leases: Vec<(LeaseId, usize, Request)>,
}

impl Orphans {
    /// Notes a call. Must be called in the order in which the calls are made.
    pub(super) fn begin(node: &Arc<Master>, requests: &[Request]) -> Questions {
        let mut leases = Vec::new();
        let mut under_way = node.orphans.lock();
        for (place, request) in requests.iter().enumerate() {
            match request.op {
                Op::Acquire { lease, .. } => {
                    under_way.insert(lease, false);
                    leases.push((lease, place, release(request, lease)));
                }
                Op::Release {
                    lease, count: 0, ..
                } => {
                    if let Some(released) = under_way.get_mut(&lease) {
                        *released = true;
                    }
                }
                _ => {}
            }
        }
        Questions {
            node: Arc::clone(node),
            leases,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LeaseId, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Questions {
    /// The call was answered, or never will be: what is to be released once more.
    pub(super) fn end(mut self, replies: &[Reply]) -> Vec<Request> {
        let mut under_way = self.node.orphans.lock();
        let leases = std::mem::take(&mut self.leases).into_iter();
        let released = leases.filter(|(lease, place, _)| {
            under_way.remove(lease) == Some(true) && !is_refusal(replies.get(*place))
        });
        released.map(|(_, _, release)| release).collect()
    }
}

impl Drop for Questions {
    fn drop(&mut self) {
        let mut under_way = self.node.orphans.lock();
        for (lease, ..) in &self.leases {
            under_way.remove(lease);
        }
    }
}

/// Whether an answer says that the lease was not granted.
fn is_refusal(reply: Option<&Reply>) -> bool {
    let granted = |outcome: &Outcome| matches!(outcome, Outcome::Granted { .. });
    match reply {
        Some(Reply::Applied { outcome, .. }) => !granted(outcome),
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
    use crate::store::options::OpenOptions;
    use crate::store::redis::RedisStore;
    use crate::store::redis::deployment::Deployment;

    fn node() -> Arc<Master> {
        let Ok(Deployment::Single(address)) = Deployment::parse("redis://127.0.0.1:1") else {
            unreachable!()
        };
        let store = RedisStore::one_of_many(address, &OpenOptions::default());
        Arc::new(Master::new(store))
    }

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
        let node = node();
        let ([acquire, release], [other, _]) = (requests(1), requests(2));
        let asked = Orphans::begin(&node, &[acquire, other]);
        assert!(Orphans::begin(&node, &[release]).end(&[]).is_empty());
        let again = asked.end(&[]);
        assert_eq!(again.len(), 1);
        assert!(matches!(again[0].op, Op::Release { lease, count: 0, .. } if lease.number == 1));
        assert!(node.orphans.lock().is_empty());
    }

    #[test]
    fn what_was_refused_is_not_released_again() {
        let node = node();
        let [acquire, release] = requests(1);
        let asked = Orphans::begin(&node, &[acquire]);
        drop(Orphans::begin(&node, &[release]));
        let outcome = Outcome::Refused {
            left: Duration::ZERO,
            place: None,
        };
        let now = StoreTime::default();
        let refused = Reply::Applied { outcome, now };
        assert!(asked.end(&[refused]).is_empty());
    }

    #[test]
    fn what_is_released_after_its_answer_or_never_sent_is_not() {
        let node = node();
        let [acquire, release] = requests(1);
        let asked = Orphans::begin(&node, std::slice::from_ref(&acquire));
        assert!(asked.end(&[]).is_empty());
        drop(Orphans::begin(&node, &[acquire]));
        assert!(Orphans::begin(&node, &[release]).end(&[]).is_empty());
        assert!(node.orphans.lock().is_empty());
    }
}
