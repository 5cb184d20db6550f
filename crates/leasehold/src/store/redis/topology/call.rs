//! Calls to servers.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::{Cmd, Value};

use crate::Error;
use crate::store::api::{Key, Request};
use crate::store::redis::link::session::Session;
use crate::store::redis::wire::decode::{self, Decoded};
use crate::store::redis::wire::encode::{self, CallContext};
use crate::store::redis::wire::script::Script;
use crate::store::redis::wire::{command, slots};

/// One call. All its keys are in one slot of a cluster, and its requests are of one namespace: the user may have
/// permissions there that it lacks in another.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) slot: u16,
    work: Work,
    pub(crate) requests: Vec<Request>,
    /// The positions of its requests in the batch, or of its command among all.
    pub(crate) positions: Vec<usize>,
    /// Whether it goes to the node to which the slot is being migrated, as its owner has said.
    pub(crate) asking: bool,
    /// Whether the server is to report the next change of its key.
    pub(crate) tracked: bool,
}

#[derive(Clone, Debug)]
enum Work {
    /// Operations, in order.
    Script(Script),
    /// Any other command, for one request or none.
    Command(Cmd),
}

/// The result of a call.
#[derive(Debug)]
pub(crate) enum CallResult {
    /// A server has replied, on this connection.
    Replied(Value, Arc<Session>),
    /// It was certainly not applied.
    NotApplied(Error),
    /// It may have been applied, or may still be.
    NoReply(Error),
}

/// Calls with their results, in any order.
pub(crate) type CallResults = Vec<(Call, CallResult)>;

/// Requests with their positions in the batch.
pub(crate) type Positioned = Vec<(usize, Request)>;

impl Call {
    /// A single command that reads a key.
    pub(crate) fn reading(key: &str, cmd: Cmd, position: usize, tracked: bool) -> Self {
        Self {
            tracked,
            ..Self::new(slots::of_text(key), Work::Command(cmd), position)
        }
    }

    /// Calls that find out which of its keys exist, if it declares several. A user may lack `EXISTS`, but not `PTTL`.
    pub(crate) fn probes(&self, position: usize) -> Vec<Self> {
        let keys = match self.work {
            Work::Script(script) => encode::declared_keys(script, &self.requests),
            Work::Command(_) => Vec::new(),
        };
        if keys.len() < 2 {
            return Vec::new();
        }
        let probe = |key: String| {
            let cmd = command::command("PTTL", &key, &[]);
            Self::reading(&key, cmd, position, false)
        };
        keys.into_iter().map(probe).collect()
    }

    fn new(slot: u16, work: Work, position: usize) -> Self {
        Self {
            slot,
            work,
            requests: Vec::new(),
            positions: vec![position],
            asking: false,
            tracked: false,
        }
    }

    /// The calls for requests: of a script, or without one a command for each. Requests for a name stay in order. `slot`
    /// is that of a name.
    pub(crate) fn group(
        script: Option<Script>,
        requests: Positioned,
        slot: fn(&Key) -> u16,
    ) -> Vec<Self> {
        let Some(script) = script else {
            let calls = requests.into_iter().map(|(position, request)| {
                let (key, cmd) = command::encode(&request);
                Self {
                    requests: vec![request],
                    ..Self::new(slots::of_text(&key), Work::Command(cmd), position)
                }
            });
            return calls.collect();
        };
        let (positions, requests) = requests.into_iter().unzip();
        let call = Self {
            requests,
            positions,
            ..Self::new(0, Work::Script(script), 0)
        };
        // A call of the fast path has one ttl.
        let ttl = |request: &Request| request.op.ttl().filter(|_| script.is_fast());
        let mut calls = call.split_by(|_, request| {
            let namespace = request.key.space.namespace().clone();
            (slot(&request.key), namespace, ttl(request))
        });
        for call in &mut calls {
            call.slot = call.requests.first().map_or(0, |first| slot(&first.key));
        }
        calls
    }

    /// Splits it by what the position and the request have in common.
    fn split_by<K: Ord>(self, common: impl Fn(usize, &Request) -> K) -> Vec<Self> {
        let requests = self.positions.iter().zip(&self.requests);
        let mut keys = requests.map(|(position, request)| common(*position, request));
        let first = keys.next();
        if keys.all(|key| Some(key) == first) {
            return vec![self];
        }
        let mut groups = BTreeMap::<K, Self>::new();
        let empty = Self {
            requests: Vec::new(),
            positions: Vec::new(),
            ..self
        };
        for (position, request) in self.positions.into_iter().zip(self.requests) {
            let group = groups.entry(common(position, &request));
            let group = group.or_insert_with(|| empty.clone());
            group.positions.push(position);
            group.requests.push(request);
        }
        groups.into_values().collect()
    }

    /// One call for each name. A node that has only some keys of a call refuses all of it, and during a migration
    /// names may be at different nodes.
    pub(crate) fn by_name(self) -> Vec<Self> {
        self.split_by(|_, request| -> Key { request.key.clone() })
    }

    /// Splits off the requests for which `why` has an error.
    pub(crate) fn without_denied(self, why: impl Fn(&Request) -> Option<Error>) -> Vec<Self> {
        self.split_by(|_, request| why(request).is_some())
    }

    /// The same for the node to which the slot is being migrated, with one call for each request.
    pub(crate) fn redirected(self) -> Vec<Self> {
        let redirected = Self {
            asking: true,
            // `ASKING` and `CLIENT CACHING` each apply to the next command only.
            tracked: false,
            ..self
        };
        redirected.split_by(|position, _| position)
    }

    /// Whether it reads or writes notes of a lock, which have keys of their own.
    pub(crate) fn has_notes(&self) -> bool {
        let mut requests = self.requests.iter();
        self.script().is_some() && requests.any(|request| request.op.slot().is_some())
    }

    /// Its script, if it calls one.
    pub(crate) fn script(&self) -> Option<Script> {
        match self.work {
            Work::Script(script) => Some(script),
            Work::Command(_) => None,
        }
    }

    /// Whether the subscriptions of the clients come first. A mere reading needs none.
    pub(crate) fn is_settled(&self) -> bool {
        self.tracked || !self.requests.is_empty()
    }

    /// The command that is sent.
    pub(crate) fn command(&self, by_text: bool, context: &CallContext<'_>) -> Cmd {
        match &self.work {
            Work::Script(script) => {
                let context = CallContext {
                    record_only: self.asking,
                    ..*context
                };
                encode::encode(*script, &self.requests, by_text, &context)
            }
            Work::Command(cmd) => cmd.clone(),
        }
    }

    /// Decodes the reply of the server, for each request.
    pub(crate) fn decode(&self, value: &Value) -> Vec<Decoded> {
        match self.work {
            Work::Script(script) => decode::decode(script, &self.requests, value),
            Work::Command(_) => {
                let requests = self.requests.iter();
                let replies = requests.map(|request| command::decode(request, value).into());
                replies.collect()
            }
        }
    }
}
