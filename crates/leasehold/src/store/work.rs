//! A batch of requests, as the rule applies it in one transaction.

use std::borrow::Cow;
#[cfg(feature = "__documents")]
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[cfg(feature = "__documents")]
use leasehold_core::LeaseId;
use leasehold_core::record::{self, Applied};
use leasehold_core::{Acquire, Environment, Op, Outcome};

#[cfg(any(feature = "postgres", feature = "__documents"))]
use super::api::Key;
use super::api::{Reply, Request};
use super::hub::{Hub, Notices};
use super::records::{Record, Transaction};
use crate::Error;

/// A batch of requests.
///
/// A backend calls [`run`](Work::run) inside a transaction, and then [`finish`](Work::finish) or [`fail`](Work::fail).
#[derive(Debug)]
pub struct Work {
    requests: Vec<Request>,
    results: Vec<RequestResult>,
    notices: Notices,
}

/// The result of a request, valid once its transaction is committed.
#[derive(Debug)]
struct RequestResult {
    reply: Reply,
    /// Whether observers see a difference.
    is_visible: bool,
    /// Whether waiters are left that might be granted.
    is_unfinished: bool,
}

/// Why a transaction failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The error.
    pub error: Error,
    /// Whether nothing was applied for sure.
    pub is_certain: bool,
    /// The error of requests of holders, if the store has lost their leases.
    pub lost: Option<Error>,
}

impl Work {
    pub(super) fn new(hub: &Arc<Hub>, requests: Vec<Request>) -> Self {
        Self {
            results: Vec::with_capacity(requests.len()),
            requests,
            notices: Notices::new(Arc::clone(hub)),
        }
    }

    /// The number of requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// The work of nobody.
    #[cfg(feature = "__documents")]
    pub(super) fn nothing() -> Self {
        Self::new(&Arc::default(), Vec::new())
    }

    /// Its requests by name, in their order, with their positions.
    #[cfg(feature = "__documents")]
    pub(super) fn by_name(self) -> Vec<(Key, Vec<usize>, Self)> {
        let hub = Arc::clone(self.notices.hub());
        let mut parts = BTreeMap::<Key, (Vec<usize>, Vec<Request>)>::new();
        for (position, request) in self.requests.into_iter().enumerate() {
            let (positions, requests) = parts.entry(request.key.clone()).or_default();
            positions.push(position);
            requests.push(request);
        }
        let parts = parts.into_iter();
        let part = |(key, (positions, requests))| (key, positions, Self::new(&hub, requests));
        parts.map(part).collect()
    }

    /// The requests.
    #[cfg(any(feature = "postgres", feature = "__documents"))]
    pub(super) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Whether there are no requests.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Applies all requests in their order, inside a transaction. May be called again if that fails. A damaged record is
    /// the error of its own requests.
    ///
    /// # Errors
    ///
    /// That of the transaction, of which nothing may be stored then.
    pub fn run<T: Transaction>(&mut self, transaction: &mut T) -> Result<(), T::Error> {
        self.results.clear();
        self.notices.clear();
        for request in &self.requests {
            let result = run(request, &mut self.notices, transaction)?;
            self.results.push(result);
        }
        Ok(())
    }

    /// The names of requests whose replies may say what was stored before, by the same request or by another one.
    #[cfg(feature = "postgres")]
    pub(super) fn confirmed(&self) -> impl Iterator<Item = &Key> {
        let results = self.requests.iter().zip(&self.results);
        let confirmed = results.filter(|(_, result)| {
            use Outcome::{Arrived, Complete, Released, Removed};

            let outcome = result.reply.outcome();
            matches!(
                outcome,
                Ok(Complete(_) | Released | Arrived(_) | Removed(_))
            )
        });
        confirmed.map(|(request, _)| &request.key)
    }

    /// The leases whose clients count time from these requests: since when they hold, or wait.
    #[cfg(feature = "__documents")]
    pub(super) fn timed_leases(&self) -> BTreeSet<LeaseId> {
        let is_timed = |result: &RequestResult| match result.reply.outcome() {
            Ok(Outcome::Granted { .. } | Outcome::Kept) => true,
            Ok(Outcome::Refused { queue_position, .. }) => queue_position.is_some(),
            _ => false,
        };
        let results = self.requests.iter().zip(&self.results);
        let timed = results.filter(|(_, result)| is_timed(result));
        timed
            .filter_map(|(request, _)| request.op.lease())
            .collect()
    }

    /// Notifies the clients and observers of this process, after the commit. Returns the replies, and what is left to do
    /// in another transaction, so that none is long. Nobody waits for the replies of that.
    #[must_use]
    pub fn finish(self) -> (Vec<Reply>, Option<Self>) {
        let hub = Arc::clone(self.notices.hub());
        self.notices.send();
        let mut replies = Vec::with_capacity(self.results.len());
        let mut unfinished = Vec::new();
        for (request, result) in self.requests.into_iter().zip(self.results) {
            if result.is_visible {
                hub.changed(&request.key);
            }
            if result.is_unfinished {
                unfinished.push(Request::new(request.key, Op::Serve));
            }
            replies.push(result.reply);
        }
        let rest = (!unfinished.is_empty()).then(|| Self::new(&hub, unfinished));
        (replies, rest)
    }

    /// The replies after a transaction that failed. If it may have been committed, the clients and observers of this process
    /// ask again.
    #[must_use]
    pub fn fail(self, failure: &Failure) -> Vec<Reply> {
        if !failure.is_certain {
            self.interrupt();
        }
        let requests = self.requests.iter();
        let reply = |request: &Request| match (&failure.lost, request.op.lease()) {
            (Some(lost), Some(_)) if !matches!(request.op, Op::Acquire(_)) => {
                Reply::Rejected(lost.clone())
            }
            _ if failure.is_certain => Reply::Rejected(failure.error.clone()),
            _ => Reply::Unknown(failure.error.clone()),
        };
        requests.map(reply).collect()
    }

    /// Notifies the clients and observers of this process that they may have missed something.
    fn interrupt(&self) {
        self.notices.interrupt();
        let results = self.requests.iter().zip(&self.results);
        for (request, _) in results.filter(|(_, result)| result.is_visible) {
            self.notices.hub().changed(&request.key);
        }
    }
}

/// Applies one request.
fn run<T: Transaction>(
    request: &Request,
    notices: &mut Notices,
    transaction: &mut T,
) -> Result<RequestResult, T::Error> {
    let Request { key, op, .. } = request;
    let mut op = Cow::Borrowed(op);
    if let Op::Acquire(Acquire { wait: true, .. }) | Op::Convert { wait: true, .. } = &*op
        && !transaction.can_wait()
        && let Op::Acquire(Acquire { wait, .. }) | Op::Convert { wait, .. } = op.to_mut()
    {
        *wait = false;
    }
    let environment = transaction.environment(key);
    let record = transaction.record(key, |client| notices.reaches(client));
    let applied = match apply(record, &op, &environment) {
        Ok(applied) => applied,
        Err(error) => {
            let error = T::damage(error)?.for_lock(&key.name);
            return Ok(RequestResult {
                reply: Reply::Rejected(error),
                is_visible: false,
                is_unfinished: false,
            });
        }
    };
    for notice in applied.notices {
        if let Some(notice) = notices.add(key, notice) {
            transaction.notify(key, notice);
        }
    }
    if applied.is_visible {
        transaction.changed(key)?;
    }
    if let Outcome::Refused {
        queue_position: Some(_),
        ..
    } = applied.outcome
    {
        transaction.waits();
    }
    Ok(RequestResult {
        reply: Reply::decided(key, applied.outcome, environment.now),
        is_visible: applied.is_visible,
        is_unfinished: applied.unfinished,
    })
}

/// Applies an operation by the rule. One that repairs a damaged record is applied to the repaired one.
fn apply<R: Record>(
    mut record: R,
    op: &Op,
    environment: &Environment,
) -> Result<Applied, R::Error> {
    let mut applied = match record::apply(&mut record, op, environment) {
        Ok(applied) => applied,
        Err(error) => {
            record.repair(op, error)?;
            let mut applied = record::apply(&mut record, op, environment)?;
            applied.is_visible = true;
            if let Op::Remove(_) = op {
                applied.outcome = Outcome::Removed(true);
            }
            applied
        }
    };
    record.store(std::mem::take(&mut applied.changes))?;
    Ok(applied)
}
