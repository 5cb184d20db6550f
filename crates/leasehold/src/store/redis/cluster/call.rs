//! Calls to the node that has a slot.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::{Namespace, Op, Outcome, Ttl};
use redis::{Cmd, Value};

use super::super::codec::{self, text};
use super::super::script::REQUESTS_MAX;
use super::super::slots;
use super::node::ClusterNode;
use crate::Error;
use crate::store::api::{Key, Reply, Request};

/// One call. All its keys are in one slot.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) slot: u16,
    pub(super) work: Work,
    pub(super) requests: Vec<Request>,
    /// The positions of its requests in the batch.
    pub(super) positions: Vec<usize>,
    /// The node to which the slot is being migrated, if its owner redirected the call.
    pub(super) asking: Option<Arc<ClusterNode>>,
    /// Whether the node is to report the next change of its key.
    pub(super) tracked: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Operations by the rule, in order.
    Rule,
    /// Renewals for the same ttl, on the fast path.
    RenewScript(Ttl),
    /// Any command, without requests.
    Plain(Cmd),
}

/// Requests with their positions in the batch.
type Positioned = Vec<(usize, Request)>;

impl Call {
    fn new(slot: u16, work: Work, positioned: Positioned) -> Self {
        let (positions, requests) = positioned.into_iter().unzip();
        Self {
            slot,
            work,
            requests,
            positions,
            asking: None,
            tracked: false,
        }
    }

    /// A single command on a key.
    pub(super) fn plain(key: &str, cmd: Cmd, position: usize) -> Self {
        Self {
            positions: vec![position],
            ..Self::new(slots::of_text(key), Work::Plain(cmd), Vec::new())
        }
    }

    /// Calls of the rule: those of a slot in the order of the requests. One namespace may have permissions that
    /// another lacks.
    pub(super) fn by_rule(positioned: Positioned) -> Vec<Self> {
        let mut groups = BTreeMap::<(u16, Namespace), Positioned>::new();
        for (position, request) in positioned {
            let namespace = request.key.space.namespace().clone();
            let group = groups.entry((slots::of(&request.key), namespace));
            group.or_default().push((position, request));
        }
        let groups = groups.into_iter();
        groups
            .map(|((slot, _), positioned)| Self::new(slot, Work::Rule, positioned))
            .collect()
    }

    /// Calls on the fast path, for a batch of renewals.
    pub(super) fn renewals(batch: Positioned) -> Vec<Self> {
        let mut groups = BTreeMap::<(u16, Ttl), Positioned>::new();
        for (position, request) in batch {
            if let Op::Renew {
                ttl, count: None, ..
            } = request.op
            {
                let slot = slots::of(&request.key);
                let group = groups.entry((slot, ttl)).or_default();
                group.push((position, request));
            }
        }
        let mut calls = Vec::with_capacity(groups.len());
        for ((slot, ttl), mut group) in groups {
            while !group.is_empty() {
                let rest = group.split_off(group.len().min(REQUESTS_MAX));
                let part = std::mem::replace(&mut group, rest);
                calls.push(Self::new(slot, Work::RenewScript(ttl), part));
            }
        }
        calls
    }

    /// Splits off the requests for which `why` has an error. `None`: none is left for the call.
    pub(super) fn without_denied(
        self,
        why: impl Fn(&Request) -> Option<Error>,
    ) -> (Option<Self>, Vec<(Self, Error)>) {
        if !self.requests.iter().any(|request| why(request).is_some()) {
            return (Some(self), Vec::new());
        }
        let (mut denied, mut allowed) = (Vec::new(), Vec::new());
        let (slot, work) = (self.slot, self.work.clone());
        let asking = self.asking.clone();
        for (position, request) in self.into_positioned() {
            match why(&request) {
                Some(error) => {
                    let call = Self::new(slot, work.clone(), vec![(position, request)]);
                    denied.push((call, error));
                }
                None => allowed.push((position, request)),
            }
        }
        let call = (!allowed.is_empty()).then(|| Self {
            asking,
            ..Self::new(slot, work, allowed)
        });
        (call, denied)
    }

    /// One call per name. A node that has only some keys of a call refuses all of it, and during a migration
    /// names may be on different nodes.
    pub(super) fn by_name(self) -> Vec<Self> {
        let (slot, work) = (self.slot, self.work.clone());
        let mut names = BTreeMap::<Key, Positioned>::new();
        for (position, request) in self.into_positioned() {
            let name = names.entry(request.key.clone()).or_default();
            name.push((position, request));
        }
        let names = names.into_values();
        names
            .map(|positioned| Self::new(slot, work.clone(), positioned))
            .collect()
    }

    /// The same for the node to which the slot is being migrated, with one call per request.
    pub(super) fn redirected_to(self, node: &Arc<ClusterNode>) -> Vec<Self> {
        let asking = Some(Arc::clone(node));
        if let Work::Plain(_) = self.work {
            // `ASKING` and `CLIENT CACHING` each apply to the next command only.
            let tracked = false;
            return vec![Self {
                asking,
                tracked,
                ..self
            }];
        }
        let (slot, work) = (self.slot, self.work.clone());
        let redirected = |positioned| Self {
            asking: asking.clone(),
            ..Self::new(slot, work.clone(), vec![positioned])
        };
        self.into_positioned().into_iter().map(redirected).collect()
    }

    /// Whether it concerns several names.
    pub(super) fn has_many_names(&self) -> bool {
        let mut requests = self.requests.iter();
        requests.any(|request| request.key != self.requests[0].key)
    }

    /// Whether it reads or writes notes.
    pub(super) fn has_notes(&self) -> bool {
        let mut requests = self.requests.iter();
        requests.any(|request| request.op.slot().is_some())
    }

    pub(super) fn into_positioned(self) -> Positioned {
        self.positions.into_iter().zip(self.requests).collect()
    }

    /// The replies in what a server has sent, one per request. `None`: it was certainly not applied, and needs the rule.
    pub(super) fn replies(&self, value: Value) -> Vec<Option<Reply>> {
        match &self.work {
            Work::Rule => {
                let elsewhere = elsewhere(&value);
                let replies = codec::decode(&self.requests, value).into_iter();
                replies
                    .enumerate()
                    .map(|(nth, reply)| match reply {
                        Reply::Rejected(_) if elsewhere.contains(&nth) => None,
                        reply => Some(reply),
                    })
                    .collect()
            }
            Work::RenewScript(_) => {
                let Some((now, left)) = codec::decode_renewals(&value) else {
                    return vec![None; self.requests.len()];
                };
                let now = Some(now);
                let reply = |nth| {
                    let renewed = !left.contains(&nth);
                    let outcome = Outcome::Kept;
                    renewed.then_some(Reply::Applied { outcome, now })
                };
                (0..self.requests.len()).map(reply).collect()
            }
            Work::Plain(_) => Vec::new(),
        }
    }
}

/// The requests of a call of the rule that met a missing key in a slot that is being migrated: a key that an
/// earlier operation has deleted cannot be created again on this node.
fn elsewhere(value: &Value) -> Vec<usize> {
    let Value::Array(items) = value else {
        return Vec::new();
    };
    let values = items.iter().skip(2).step_by(2).enumerate();
    let is_elsewhere = |value: &Value| match value {
        Value::Array(pair) => matches!(
            pair.as_slice(),
            [_, words, ..] if text(words).is_some_and(|words| words.contains("non local key"))
        ),
        _ => false,
    };
    values
        .filter(|(_, value)| is_elsewhere(value))
        .map(|(nth, _)| nth)
        .collect()
}
