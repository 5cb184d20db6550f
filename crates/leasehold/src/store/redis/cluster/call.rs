//! What is asked of the node that has a slot.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::{Op, Outcome, ScopeName, Ttl};
use redis::{Cmd, Value};

use super::super::codec::{self, REQUESTS_MAX, text};
use super::super::renew_script;
use super::node::ClusterNode;
use super::slots;
use crate::store::api::{Key, Reply, Request};

/// One call. All its keys are in one slot.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) slot: u16,
    pub(super) work: Work,
    /// For each request of it the addr in what was asked for.
    pub(super) addrs: Vec<usize>,
    /// The node to which the slot is on its way, if the owner said that what is asked for is not there.
    pub(super) asked: Option<Arc<ClusterNode>>,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Operations by the rule, in their order.
    Rule(Vec<Request>),
    /// RenewScript for the same ttl, by the short way.
    RenewScript(Ttl, Vec<Request>),
    /// Any command.
    Plain(Cmd),
}

impl Work {
    /// Which script it calls, as a number. `None`: none.
    pub(super) fn script(&self) -> Option<usize> {
        match self {
            Self::Rule(_) => Some(0),
            Self::RenewScript(..) => Some(1),
            Self::Plain(_) => None,
        }
    }

    pub(super) fn requests(&self) -> &[Request] {
        match self {
            Self::Rule(requests) | Self::RenewScript(_, requests) => requests,
            Self::Plain(_) => &[],
        }
    }
}

/// Requests with their addrs.
type Placed = Vec<(usize, Request)>;

impl Call {
    fn new(slot: u16, placed: Placed, work: impl FnOnce(Vec<Request>) -> Work) -> Self {
        let (addrs, requests) = placed.into_iter().unzip();
        Self {
            slot,
            work: work(requests),
            addrs,
            asked: None,
        }
    }

    /// The only command on a key.
    pub(super) fn plain(key: &str, cmd: Cmd, addr: usize) -> Self {
        Self {
            slot: slots::of_text(key),
            work: Work::Plain(cmd),
            addrs: vec![addr],
            asked: None,
        }
    }

    /// Calls of the rule: those of a slot in the order of the requests. One namespace may have rights that
    /// another has not.
    pub(super) fn by_rule(placed: Placed) -> Vec<Self> {
        let mut groups = BTreeMap::<(u16, ScopeName), Placed>::new();
        for (addr, request) in placed {
            let namespace = request.key.space.namespace().clone();
            let group = groups.entry((slots::of(&request.key), namespace));
            group.or_default().push((addr, request));
        }
        let groups = groups.into_iter();
        groups
            .map(|((slot, _), placed)| Self::new(slot, placed, Work::Rule))
            .collect()
    }

    /// Calls of the short way, of a batch of renewals.
    pub(super) fn renewals(batch: Placed) -> Vec<Self> {
        let mut groups = BTreeMap::<(u16, Ttl), Placed>::new();
        for (addr, request) in batch {
            if let Op::Renew { ttl, .. } = request.op {
                let slot = slots::of(&request.key);
                let group = groups.entry((slot, ttl)).or_default();
                group.push((addr, request));
            }
        }
        let mut calls = Vec::with_capacity(groups.len());
        for ((slot, ttl), mut group) in groups {
            while !group.is_empty() {
                let rest = group.split_off(group.len().min(REQUESTS_MAX));
                let part = std::mem::replace(&mut group, rest);
                let work = |requests| Work::RenewScript(ttl, requests);
                calls.push(Self::new(slot, part, work));
            }
        }
        calls
    }

    /// A call for each name, those of a name in their order. A node that has some keys of a call and not
    /// others refuses all of it, and names may be on different sides.
    pub(super) fn by_name(self) -> Vec<Self> {
        let (slot, ttl) = match &self.work {
            Work::Plain(_) => return vec![self],
            Work::Rule(_) => (self.slot, None),
            Work::RenewScript(ttl, _) => (self.slot, Some(*ttl)),
        };
        let mut names = BTreeMap::<Key, Placed>::new();
        for (addr, request) in self.into_placed() {
            let name = names.entry(request.key.clone()).or_default();
            name.push((addr, request));
        }
        let work = |requests| match ttl {
            Some(ttl) => Work::RenewScript(ttl, requests),
            None => Work::Rule(requests),
        };
        let names = names.into_values();
        names.map(|placed| Self::new(slot, placed, work)).collect()
    }

    /// The same for the node to which the slot is on its way, a call for each request.
    pub(super) fn asking(self, node: &Arc<ClusterNode>) -> Vec<Self> {
        let asked = |call: Self| Self {
            asked: Some(Arc::clone(node)),
            ..call
        };
        let (slot, ttl) = match &self.work {
            Work::Plain(_) => return vec![asked(self)],
            Work::Rule(_) => (self.slot, None),
            Work::RenewScript(ttl, _) => (self.slot, Some(*ttl)),
        };
        let work = |requests| match ttl {
            Some(ttl) => Work::RenewScript(ttl, requests),
            None => Work::Rule(requests),
        };
        let placed = self.into_placed().into_iter();
        placed
            .map(|placed| asked(Self::new(slot, vec![placed], work)))
            .collect()
    }

    /// How many names it is about.
    pub(super) fn is_about_many(&self) -> bool {
        let requests = self.work.requests();
        requests
            .iter()
            .any(|request| request.key != requests[0].key)
    }

    pub(super) fn into_placed(self) -> Placed {
        match self.work {
            Work::Rule(requests) | Work::RenewScript(_, requests) => {
                self.addrs.into_iter().zip(requests).collect()
            }
            Work::Plain(_) => Vec::new(),
        }
    }

    /// The replies in an answer, for each request of it. `None`: it was certainly not applied, and is to
    /// be asked of the rule.
    pub(super) fn replies(&self, answer: Value) -> Vec<Option<Reply>> {
        match &self.work {
            Work::Rule(requests) => {
                let elsewhere = elsewhere(&answer);
                let replies = codec::decode(requests, answer).into_iter().enumerate();
                replies
                    .map(|(nth, reply)| match reply {
                        Reply::Rejected(_) if elsewhere.contains(&nth) => None,
                        reply => Some(reply),
                    })
                    .collect()
            }
            Work::RenewScript(_, requests) => {
                let Some((now, left)) = renew_script::decode(&answer) else {
                    return vec![None; requests.len()];
                };
                let outcome = Outcome::Renewed;
                let reply = |nth| {
                    let renewed = !left.contains(&nth);
                    renewed.then_some(Reply::Applied { outcome, now })
                };
                (0..requests.len()).map(reply).collect()
            }
            Work::Plain(_) => Vec::new(),
        }
    }
}

/// The requests of a call of the rule that came upon a key that is gone, in a slot that is on its way to
/// another node: what an operation before it has deleted cannot be made there again.
fn elsewhere(answer: &Value) -> Vec<usize> {
    let Value::Array(items) = answer else {
        return Vec::new();
    };
    let values = items.iter().skip(2).step_by(2).enumerate();
    let is_elsewhere = |value: &Value| match value {
        Value::Array(pair) => matches!(
            pair.as_slice(),
            [_, words] if text(words).is_some_and(|words| words.contains("non local key"))
        ),
        _ => false,
    };
    values
        .filter(|(_, value)| is_elsewhere(value))
        .map(|(nth, _)| nth)
        .collect()
}
