//! Takes in masters that are new, or were started again: by the rule of
//! [`Master`](leasehold_core::quorum::Master).
//!
//! Whoever finds a master that is not armed does what is due: nobody has to run for it. What was seen
//! stands in the master itself, so that short programs get on with it one after the other.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold_core::quorum::{Size, Waiting};
use leasehold_core::{Scope, Token, Ttl};

use super::ballot::Ballot;
use super::gather::{Patience, gather};
use super::node::Node;
use crate::store::Reply;
use crate::store::redis::errors::is_unarmed;
use crate::store::redis::master::Sight;
use futures_util::future::join_all;
use tokio::time::Instant;

/// How often a master is looked at that is not armed yet, at least.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whoever wants a lock waits so long for the first look. What was not seen then is seen to later, when a
/// master refuses.
const PATIENCE: Patience = Patience {
    majority: Some(Duration::from_secs(1)),
    others: Duration::from_millis(250),
};

/// The masters' marks.
#[derive(Debug)]
pub(super) struct Admission {
    nodes: Vec<Arc<Node>>,
    size: Size,
    longest: Ttl,
    /// The namespaces that were looked at once.
    opened: Mutex<HashSet<Scope>>,
    /// What is being armed at this moment.
    arming: Mutex<HashSet<(usize, Scope)>>,
    /// How each master stood when it was last inspected.
    statuses: Mutex<HashMap<Scope, Vec<Status>>>,
}

/// Whether a master is admitted, as far as this process knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Status {
    #[default]
    Unknown,
    Admitted,
    KeptOut {
        until: Instant,
    },
}

impl Admission {
    pub(super) fn new(nodes: Vec<Arc<Node>>, size: Size, longest: Ttl) -> Self {
        Self {
            nodes,
            size,
            longest,
            opened: Mutex::default(),
            arming: Mutex::default(),
            statuses: Mutex::default(),
        }
    }

    /// Arms what can be armed at once, before a namespace is used the first time.
    pub(super) async fn open(self: &Arc<Self>, namespace: &Scope) {
        if lock(&self.opened).contains(namespace) {
            return;
        }
        let sights = self.look(namespace).await;
        for (master, sight) in sights.iter().enumerate() {
            if sight.as_ref().is_some_and(Sight::is_armed) {
                self.set_status(master, namespace, Status::Admitted);
            }
        }
        let unarmed = |sight: &Option<Sight>| sight.as_ref().is_some_and(|sight| !sight.is_armed());
        let unarmed: Vec<_> = (0..sights.len())
            .filter(|nth| unarmed(&sights[*nth]))
            .collect();
        let arm = |master: &usize| self.try_to_arm(*master, namespace, &sights);
        join_all(unarmed.iter().map(arm)).await;
        for master in unarmed {
            self.arm_later(master, namespace);
        }
        lock(&self.opened).insert(namespace.clone());
    }

    /// Sees to masters that say that they are not armed.
    pub(super) fn note_replies(
        self: &Arc<Self>,
        master: usize,
        replies: &[Reply],
        places: &[usize],
        ballots: &[Ballot],
    ) {
        let found = replies
            .iter()
            .position(|reply| matches!(reply, Reply::Rejected(error) if is_unarmed(error)));
        let ballot = found.and_then(|nth| ballots.get(*places.get(nth)?));
        if let Some(ballot) = ballot {
            self.arm_later(master, ballot.namespace());
        }
    }

    /// How long until a majority can be expected to be admitted. `None`: it is admitted as far as this
    /// process knows, or no time can be given, as too few masters answer.
    #[allow(dead_code, reason = "for the errors of a store without a majority")]
    pub(super) fn kept_out(&self, namespace: &Scope) -> Option<Duration> {
        let statuses = lock(&self.statuses);
        let statuses = statuses.get(namespace)?;
        let until = majority_at(statuses, self.size.majority())?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    fn set_status(&self, master: usize, namespace: &Scope, status: Status) {
        let mut statuses = lock(&self.statuses);
        let statuses = statuses.entry(namespace.clone());
        let statuses = statuses.or_insert_with(|| vec![Status::default(); self.nodes.len()]);
        statuses[master] = status;
    }

    fn arm_later(self: &Arc<Self>, master: usize, namespace: &Scope) {
        let what = (master, namespace.clone());
        if !lock(&self.arming).insert(what.clone()) {
            return;
        }
        let me = Arc::downgrade(self);
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { arm(me, what).await })),
            Err(_) => drop(lock(&self.arming).remove(&what)),
        }
    }

    /// The marks of all masters that can be asked.
    async fn look(&self, namespace: &Scope) -> Vec<Option<Sight>> {
        let looked = self.nodes.iter().map(|node| node.store.look(namespace));
        let looked = gather(looked, self.size, PATIENCE).await;
        looked.into_iter().map(|sight| sight?.ok()).collect()
    }

    /// Arms a master if that is due. Answers how long to wait if it is not; `None`: it is armed.
    async fn try_to_arm(
        &self,
        master: usize,
        namespace: &Scope,
        sights: &[Option<Sight>],
    ) -> Option<Duration> {
        let left = self.arm_if_due(master, namespace, sights).await;
        let status = match (&sights[master], left) {
            (None, _) => Status::Unknown,
            (_, None) => Status::Admitted,
            (_, Some(left)) => Status::KeptOut {
                until: Instant::now() + left,
            },
        };
        self.set_status(master, namespace, status);
        left
    }

    async fn arm_if_due(
        &self,
        master: usize,
        namespace: &Scope,
        sights: &[Option<Sight>],
    ) -> Option<Duration> {
        let store = &self.nodes[master].store;
        let sight = sights[master].as_ref()?;
        if sight.is_armed() {
            return None;
        }
        if sight.armed.is_some() && store.keeps_all().await {
            tracing::info!(master = %store, %namespace, "started again with all it had; it is taken in");
            return self.arm(master, namespace, sight, None).await;
        }
        // Nobody has ever used these masters: what was granted, was granted before they were started.
        let new =
            sight.armed.is_none() && others(sights, master).all(|other| other.armed.is_none());
        let known = sight
            .since
            .map_or(Duration::ZERO, |since| since.until(sight.now));
        let since = if new { known.max(sight.up) } else { known };
        if let Waiting::For(left) = Waiting::since(since, self.longest) {
            tracing::info!(
                master = %store, %namespace, ?left,
                "started again; kept out until what it may have forgotten has ended",
            );
            return Some(left);
        }
        // Only now: what was written until the wait was over has to be heard.
        let sights = self.look(namespace).await;
        let others: Vec<_> = others(&sights, master).collect();
        // Who has forgotten, too, knows nothing that others have to hear. Only if all are there to be
        // asked, more than a minority has forgotten: then the clocks keep the tokens growing.
        let armed = others.iter().filter(|other| other.is_armed()).count();
        let all = others.len() + 1 == self.size.masters();
        let enough = match new || all {
            true => others.len() >= self.size.majority(),
            false => armed >= self.size.majority(),
        };
        if !enough {
            tracing::info!(master = %store, %namespace, "kept out: too few others tell their tokens");
            return Some(LOOK_EVERY);
        }
        let floor = others.iter().filter_map(|other| other.high).max();
        self.arm(master, namespace, sight, floor).await
    }

    async fn arm(
        &self,
        master: usize,
        namespace: &Scope,
        sight: &Sight,
        floor: Option<Token>,
    ) -> Option<Duration> {
        let store = &self.nodes[master].store;
        match store.arm(namespace, &sight.run, floor).await {
            Ok(sight) if sight.is_armed() => {
                tracing::info!(master = %store, %namespace, ?floor, "taken in");
                None
            }
            Ok(_) => Some(LOOK_EVERY),
            Err(error) => {
                tracing::debug!(master = %store, %error, "not taken in");
                Some(LOOK_EVERY)
            }
        }
    }
}

/// When a majority is admitted, if too few are now and as many as are lacking are kept out until a known
/// time.
fn majority_at(statuses: &[Status], majority: usize) -> Option<Instant> {
    let admitted = statuses.iter().filter(|it| **it == Status::Admitted);
    let lacking = majority.checked_sub(admitted.count())?.checked_sub(1)?;
    let mut times: Vec<_> = statuses
        .iter()
        .filter_map(|status| match status {
            Status::KeptOut { until } => Some(*until),
            _ => None,
        })
        .collect();
    times.sort_unstable();
    times.get(lacking).copied()
}

/// The marks that were seen of the other masters.
fn others(sights: &[Option<Sight>], master: usize) -> impl Iterator<Item = &Sight> {
    let others = sights.iter().enumerate();
    others.filter_map(move |(nth, sight)| sight.as_ref().filter(|_| nth != master))
}

/// Looks after a master until it is armed, as long as somebody uses the store.
async fn arm(admission: Weak<Admission>, (master, namespace): (usize, Scope)) {
    loop {
        let wait = {
            let Some(admission) = admission.upgrade() else {
                return;
            };
            let sights = admission.look(&namespace).await;
            let left = admission.try_to_arm(master, &namespace, &sights).await;
            let Some(left) = left else {
                lock(&admission.arming).remove(&(master, namespace));
                return;
            };
            left
        };
        tokio::time::sleep(wait.min(LOOK_EVERY)).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_expected_when_as_many_as_are_lacking_are_admitted() {
        let now = Instant::now();
        let in_seconds = |seconds| now + Duration::from_secs(seconds);
        let kept_out = |seconds| Status::KeptOut {
            until: in_seconds(seconds),
        };
        let at = |statuses: &[Status]| majority_at(statuses, 2);
        assert_eq!(
            at(&[kept_out(3), kept_out(1), kept_out(2)]),
            Some(in_seconds(2))
        );
        assert_eq!(
            at(&[kept_out(3), Status::Admitted, kept_out(2)]),
            Some(in_seconds(2))
        );
        assert_eq!(
            at(&[kept_out(3), Status::Unknown, kept_out(2)]),
            Some(in_seconds(3))
        );
        assert_eq!(at(&[kept_out(3), Status::Unknown, Status::Unknown]), None);
        assert_eq!(at(&[kept_out(3), Status::Admitted, Status::Admitted]), None);
    }
}
