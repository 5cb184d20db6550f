//! Sends calls to one node.

use leasehold_core::Op;
use redis::{Cmd, Pipeline, RedisResult, Value, cmd};

use super::super::codec::{self, RuleCall};
use super::super::script::{continue_passing, is_unknown_script, unfinished_keys};
use super::super::session::Session;
use super::super::tracking::START;
use super::call::{Call, Work};
use super::node::ClusterNode;

/// The number of attempts for a node that does not know a script. The second loads it; the third is for a
/// node that has forgotten it meanwhile.
const PASSES: usize = 3;

/// Sends calls in one round trip, and returns their replies.
///
/// A call that was refused because the node does not know its script is repeated, behind one that loads it.
pub(super) async fn send(
    node: &ClusterNode,
    session: &Session,
    calls: &[Call],
) -> RedisResult<Vec<Value>> {
    let mut replies: Vec<_> = calls.iter().map(|_| Value::Nil).collect();
    let mut open: Vec<usize> = (0..calls.len()).collect();
    for pass in 0..PASSES {
        if open.is_empty() {
            break;
        }
        let mut pipeline = Pipeline::with_capacity(open.len());
        let mut positions = Vec::with_capacity(open.len());
        let mut loaded = [false; 2];
        for nth in &open {
            let call = &calls[*nth];
            if call.asking.is_some() {
                pipeline.add_command(cmd("ASKING"));
            }
            if call.tracked && session.subscriptions.tracks() {
                pipeline.cmd(START[0]).arg(&START[1..]);
            }
            let script = usize::from(matches!(call.work, Work::RenewScript(_)));
            let by_text = match pass {
                0 => false,
                1 => !std::mem::replace(&mut loaded[script], true),
                _ => true,
            };
            positions.push(pipeline.len());
            pipeline.add_command(command(node, call, by_text));
        }
        let count = pipeline.len();
        let mut connection = session.connection.clone();
        let mut received = connection.send_packed_commands(&pipeline, 0, count).await?;
        for (nth, position) in open.iter().zip(positions) {
            if let Some(reply) = received.get_mut(position) {
                replies[*nth] = std::mem::replace(reply, Value::Nil);
            }
        }
        open.retain(|nth| is_unknown_script(&replies[*nth]));
    }
    Ok(replies)
}

/// Passes over the waiters that these calls have left.
pub(super) async fn continue_all(node: &ClusterNode, calls: &[Call], replies: &[Value]) {
    for (call, reply) in calls.iter().zip(replies) {
        // While a slot is migrated, missing keys cannot be named here.
        if let (Work::Rule, None) = (&call.work, &call.asking) {
            let keys = unfinished_keys(reply, &call.requests);
            continue_passing(&node.manager, &node.mutex, keys).await;
        }
    }
}

fn command(node: &ClusterNode, call: &Call, by_text: bool) -> Cmd {
    match &call.work {
        Work::Rule => {
            let rule = RuleCall {
                queued: node.manager.notifications().queues(),
                node: node.id(),
                record_only: call.asking.is_some(),
                ..RuleCall::new(&call.requests)
            };
            let (verb, script) = node.mutex.verb(by_text);
            codec::encode(verb, script, &rule)
        }
        Work::RenewScript(ttl) => {
            let renewals = call.requests.iter().enumerate();
            let part: Vec<_> = renewals
                .filter_map(|(nth, request)| match request.op {
                    Op::Renew {
                        lease, count: None, ..
                    } => Some((nth, &request.key, lease)),
                    _ => None,
                })
                .collect();
            let (verb, script) = node.renew.verb(by_text);
            codec::encode_renewals(verb, script, &(*ttl, &part))
        }
        Work::Plain(cmd) => cmd.clone(),
    }
}
