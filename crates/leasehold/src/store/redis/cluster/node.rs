//! One node of a cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::Op;
use redis::{Cmd, Pipeline, RedisResult, Value, cmd};

use super::super::address::Address;
use super::super::codec::{self, CallOptions};
use super::super::connection_manager::ConnectionManager;
use super::super::continuation::{continue_passing, unfinished};
use super::super::notifications::Notifications;
use super::super::renew_script::{self, RENEW};
use super::super::rule::{self, MUTEX};
use super::super::script::Script;
use super::super::session::Session;
use super::call::{Call, Work};
use super::node_addr::NodeAddr;
use crate::Result;
use crate::store::api::{Shard, WakeupMode};
use crate::store::options::OpenOptions;

/// How often calls are sent again to a node that does not know their script. The first time tells it
/// the script; the second is for one that forgot it meanwhile.
const PASSES: usize = 3;

/// A node: its connection, and what is known of it.
#[derive(Debug)]
pub(super) struct ClusterNode {
    pub(super) addr: NodeAddr,
    pub(super) shard: Shard,
    pub(super) manager: ConnectionManager,
    mutex: Script,
    renew: Script,
    /// Whether it did not answer when it was asked last.
    doubtful: AtomicBool,
}

impl ClusterNode {
    pub(super) fn new(
        seed: &Address,
        addr: NodeAddr,
        id: &str,
        shard: Shard,
        options: &OpenOptions,
    ) -> Self {
        let notifications = Arc::new(Notifications::of_node(id.to_owned()));
        let address = seed.at(&addr.host, addr.port);
        let (connect, response) = (options.connect_timeout, options.response_timeout);
        Self {
            manager: ConnectionManager::with_notifications(
                notifications,
                address,
                connect,
                response,
            ),
            addr,
            shard,
            mutex: Script::new(MUTEX),
            renew: Script::new(RENEW),
            doubtful: AtomicBool::new(false),
        }
    }

    /// Its id in the cluster.
    pub(super) fn id(&self) -> &str {
        self.manager.notifications().node()
    }

    pub(super) fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Relaxed)
    }

    /// Notes whether it answered.
    pub(super) fn doubt(&self, doubtful: bool) {
        self.doubtful.store(doubtful, Ordering::Relaxed);
    }

    /// Proves that it is there, lets us in and knows the script.
    pub(super) async fn greet(&self) -> Result<()> {
        let greeted = rule::greet(&self.manager, &self.mutex).await;
        self.doubt(greeted.is_err());
        greeted
    }

    /// Makes calls, all sent before the first answer, and gives their answers.
    ///
    /// One that was refused because the node does not know its script is made once more, behind one that
    /// tells it.
    pub(super) async fn make(&self, session: &Session, calls: &[&Call]) -> RedisResult<Vec<Value>> {
        let queued = self.manager.notifications().wakeup_mode() == WakeupMode::Grants;
        let mut answers: Vec<_> = calls.iter().map(|_| Value::Nil).collect();
        let mut open: Vec<usize> = (0..calls.len()).collect();
        for pass in 0..PASSES {
            if open.is_empty() {
                break;
            }
            let mut pipeline = Pipeline::with_capacity(open.len());
            let mut addrs = Vec::with_capacity(open.len());
            let mut told = [false; 2];
            for nth in &open {
                let call = calls[*nth];
                if call.asked.is_some() {
                    pipeline.add_command(cmd("ASKING"));
                }
                let whole = match (pass, call.work.script()) {
                    (0, _) | (_, None) => false,
                    (1, Some(script)) => !std::mem::replace(&mut told[script], true),
                    _ => true,
                };
                addrs.push(pipeline.len());
                pipeline.add_command(self.command(call, queued, whole));
            }
            let count = pipeline.len();
            let mut connection = session.connection.clone();
            let mut got = connection.send_packed_commands(&pipeline, 0, count).await?;
            for (nth, addr) in open.iter().zip(addrs) {
                if let Some(answer) = got.get_mut(addr) {
                    answers[*nth] = std::mem::replace(answer, Value::Nil);
                }
            }
            open.retain(|nth| is_unknown_script(&answers[*nth]));
        }
        Ok(answers)
    }

    /// Has the waiters passed over that these calls have left.
    pub(super) async fn continue_passing(&self, calls: &[&Call], answers: &[Value]) {
        for (call, answer) in calls.iter().zip(answers) {
            // While a slot moves, keys that are gone cannot be named here.
            if let (Work::Rule(requests), None) = (&call.work, &call.asked) {
                let keys = unfinished(answer, requests.iter().map(|request| &request.key));
                continue_passing(&self.manager, &self.mutex, keys).await;
            }
        }
    }

    fn command(&self, call: &Call, queued: bool, whole: bool) -> Cmd {
        match &call.work {
            Work::Rule(requests) => {
                let terms = CallOptions {
                    master: false,
                    queued,
                    node: self.id(),
                    record_only: call.asked.is_some(),
                };
                let (verb, script) = named(&self.mutex, whole);
                codec::encode(verb, script, requests, terms)
            }
            Work::RenewScript(ttl, requests) => {
                let renewals = requests.iter().enumerate();
                let part: Vec<_> = renewals
                    .filter_map(|(nth, request)| match request.op {
                        Op::Renew { lease, .. } => Some((nth, &request.key, lease)),
                        _ => None,
                    })
                    .collect();
                let (verb, script) = named(&self.renew, whole);
                renew_script::encode(verb, script, &(*ttl, &part))
            }
            Work::Plain(cmd) => cmd.clone(),
        }
    }
}

/// How a script is called: by its text or by its hash.
fn named(script: &Script, whole: bool) -> (&'static str, &str) {
    script.count(1);
    match whole {
        true => ("EVAL", script.text()),
        false => ("EVALSHA", script.hash()),
    }
}

/// Whether a call was refused because the node does not know its script.
fn is_unknown_script(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.code() == "NOSCRIPT")
}
