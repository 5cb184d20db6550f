//! Inspects the masters, and admits those that are new or may have forgotten leases, by the rule of
//! [`decide`].
//!
//! Every client that finds a master that is not admitted does this; no separate process is needed. The
//! progress is stored in the masters themselves, so that short-lived programs continue it one after the other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_core::quorum::{Decision, MasterInfo, Size, decide};
use leasehold_core::{Namespace, Ttl};
use tokio::time::Instant;

use super::fan_out::{WaitLimits, fan_out};
use super::master::Master;
use crate::store::lock::lock;
use crate::store::redis::master::Inspection;

/// The longest and the shortest interval of inspections while a master is not admitted.
const INTERVAL_MAX: Duration = Duration::from_secs(1);
const INTERVAL_MIN: Duration = Duration::from_millis(20);

/// How long the first request in a namespace waits for an inspection. A silent master is inspected again
/// when it refuses a request.
const LIMITS: WaitLimits = WaitLimits {
    majority: Some(Duration::from_secs(1)),
    others: Duration::from_millis(250),
};

/// The admission of the masters, separately for each namespace.
#[derive(Debug)]
pub(super) struct Admission {
    nodes: Vec<Arc<Master>>,
    size: Size,
    longest: Ttl,
    namespaces: Mutex<HashMap<Namespace, Progress>>,
}

/// The progress of the admission for a namespace.
#[derive(Debug)]
struct Progress {
    /// The masters were inspected before the first request.
    opened: bool,
    /// A task inspects the masters until they are admitted.
    running: bool,
    statuses: Vec<Status>,
}

/// Whether a master is admitted, as far as this process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Unknown,
    Admitted,
    KeptOut { until: Instant },
}

/// The inspections of the masters. `None`: no reply in time.
type Inspections = Vec<Option<Inspection>>;

impl Admission {
    pub(super) fn new(nodes: Vec<Arc<Master>>, size: Size, longest: Ttl) -> Self {
        Self {
            nodes,
            size,
            longest,
            namespaces: Mutex::default(),
        }
    }

    /// Admits the masters that can be admitted immediately, before the first request in a namespace.
    pub(super) async fn open(self: &Arc<Self>, namespace: &Namespace) {
        if self.progress(namespace, |progress| progress.opened) {
            return;
        }
        if self.advance(namespace).await.is_some() {
            self.start(namespace);
        }
        self.progress(namespace, |progress| progress.opened = true);
    }

    /// Starts the admission of a master that refused a request because it is not admitted.
    pub(super) fn note_refusal(self: &Arc<Self>, master: usize, namespace: &Namespace) {
        self.progress(namespace, |progress| {
            let status = &mut progress.statuses[master];
            if *status == Status::Admitted {
                *status = Status::Unknown;
            }
        });
        self.start(namespace);
    }

    /// The time until a majority can be expected to be admitted. `None`: it is admitted as far as this process
    /// knows, or unknown because too few masters reply.
    pub(super) fn kept_out(&self, namespace: &Namespace) -> Option<Duration> {
        let majority = self.size.majority();
        let until = self.progress(namespace, |it| majority_at(&it.statuses, majority))?;
        Some(until.saturating_duration_since(Instant::now()))
    }

    /// Inspects the masters in the background until all that reply are admitted.
    fn start(self: &Arc<Self>, namespace: &Namespace) {
        if self.progress(namespace, |it| std::mem::replace(&mut it.running, true)) {
            return;
        }
        let running = Running {
            admission: Arc::downgrade(self),
            namespace: namespace.clone(),
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(run(running));
        }
    }

    /// Inspects the masters, and admits those that are due. Returns when to do so again; `None`: all that
    /// replied are admitted.
    async fn advance(&self, namespace: &Namespace) -> Option<Duration> {
        let mut before: Inspections = self.nodes.iter().map(|_| None).collect();
        let mut inspected = self.inspect(namespace).await;
        let mut decisions = self.decide(&before, &inspected);
        let over = Decision::KeepOut {
            remaining: Duration::ZERO,
        };
        if decisions.contains(&over) {
            // Everything written until the end of the wait must be observed.
            before = inspected;
            inspected = self.inspect(namespace).await;
            decisions = self.decide(&before, &inspected);
        }
        let carried_out = decisions.into_iter().enumerate();
        let carried_out = carried_out.map(|(master, decision)| {
            self.carry_out(master, namespace, decision, inspected[master].as_ref())
        });
        let statuses = join_all(carried_out).await;
        let now = Instant::now();
        let waits = statuses.iter().zip(&inspected);
        let waits = waits.filter_map(|(status, inspected)| match status {
            Status::Admitted => None,
            Status::KeptOut { until } => Some(until.saturating_duration_since(now)),
            Status::Unknown => inspected.as_ref().map(|_| INTERVAL_MAX),
        });
        let wait = waits.min();
        self.progress(namespace, |progress| progress.statuses = statuses);
        wait.map(|wait| wait.clamp(INTERVAL_MIN, INTERVAL_MAX))
    }

    async fn inspect(&self, namespace: &Namespace) -> Inspections {
        let nodes = self.nodes.iter();
        let inspected = nodes.map(|node| async move {
            let inspection = node.store.inspect_master(namespace, None).await?;
            node.note_time(inspection.info.now, Instant::now());
            Ok(inspection)
        });
        let inspected = fan_out(inspected, self.size, LIMITS).await;
        let inspected = inspected.into_iter();
        inspected.map(|inspection| inspection?.ok()).collect()
    }

    fn decide(&self, before: &Inspections, inspected: &Inspections) -> Vec<Decision> {
        let observed = |it: &Option<Inspection>| it.as_ref().map(|it| it.info);
        let inspected: Vec<Option<MasterInfo>> = inspected.iter().map(observed).collect();
        let before = before.iter().map(observed).enumerate();
        let decided = before.map(|(place, before)| {
            decide(self.size, self.longest, place, before.as_ref(), &inspected)
        });
        decided.collect()
    }

    async fn carry_out(
        &self,
        master: usize,
        namespace: &Namespace,
        decision: Decision,
        inspected: Option<&Inspection>,
    ) -> Status {
        let store = &self.nodes[master].store;
        match (decision, inspected) {
            (Decision::Admitted, _) => Status::Admitted,
            (Decision::Admit { floor }, Some(candidate)) => {
                let admit = Some((candidate, floor));
                match store.inspect_master(namespace, admit).await {
                    Ok(inspected) if inspected.info.is_admitted() => {
                        tracing::info!(master = %store, %namespace, ?floor, "admitted");
                        return Status::Admitted;
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(master = %store, %error, "not admitted"),
                }
                Status::Unknown
            }
            (Decision::KeepOut { remaining }, _) => {
                tracing::info!(
                    master = %store, %namespace, ?remaining,
                    "kept out until the leases that it may have forgotten have ended",
                );
                let until = Instant::now() + remaining;
                Status::KeptOut { until }
            }
            (Decision::TooFewReplies, Some(_)) => {
                tracing::info!(
                    master = %store, %namespace,
                    "kept out until all masters reply, or a majority that is admitted",
                );
                Status::Unknown
            }
            (Decision::TooFewReplies | Decision::Admit { .. }, _) => Status::Unknown,
        }
    }

    fn progress<T>(&self, namespace: &Namespace, access: impl FnOnce(&mut Progress) -> T) -> T {
        let mut namespaces = lock(&self.namespaces);
        if let Some(progress) = namespaces.get_mut(namespace) {
            return access(progress);
        }
        let progress = Progress {
            opened: false,
            running: false,
            statuses: vec![Status::Unknown; self.nodes.len()],
        };
        access(namespaces.entry(namespace.clone()).or_insert(progress))
    }
}

/// Continues the admission for a namespace as long as the store is in use and a master that replies is not
/// admitted.
async fn run(running: Running) {
    loop {
        let wait = {
            let Some(admission) = running.admission.upgrade() else {
                return;
            };
            admission.advance(&running.namespace).await
        };
        match wait {
            Some(wait) => tokio::time::sleep(wait).await,
            None => return,
        }
    }
}

/// The task that inspects the masters for a namespace. Its runtime may end before the store does.
struct Running {
    admission: Weak<Admission>,
    namespace: Namespace,
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.upgrade() {
            admission.progress(&self.namespace, |progress| progress.running = false);
        }
    }
}

/// The time at which a majority can be admitted. `None`: a majority is admitted already, or the end of the
/// wait is unknown for some of the missing masters.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_expected_when_as_many_as_are_lacking_are_admitted() {
        use super::Status::{Admitted, Unknown};

        let now = Instant::now();
        let [one, two, three] = [1, 2, 3].map(|seconds| now + Duration::from_secs(seconds));
        let kept_out = |until| Status::KeptOut { until };
        let [first, second, third] = [one, two, three].map(kept_out);
        for (statuses, expected) in [
            ([third, first, second], Some(two)),
            ([third, Admitted, second], Some(two)),
            ([third, Unknown, second], Some(three)),
            ([third, Unknown, Unknown], None),
            ([third, Admitted, Admitted], None),
        ] {
            assert_eq!(majority_at(&statuses, 2), expected, "{statuses:?}");
        }
    }
}
