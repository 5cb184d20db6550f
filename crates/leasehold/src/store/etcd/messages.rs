//! The messages of etcd 3.4 and later, as far as they are used, by `api/etcdserverpb/rpc.proto` and `api/mvccpb/kv.proto` of
//! its source.

use prost::{Message, Oneof};

use super::error::not_etcd;
use crate::Result;

/// A request, with its path and the message that replies to it.
pub(super) trait Call: Message + Clone {
    const PATH: &'static str;
    type Reply: Message + Default;
}

macro_rules! calls {
    ($($request:ty: $path:literal -> $reply:ty,)*) => {
        $(impl Call for $request {
            const PATH: &'static str = concat!("/etcdserverpb.", $path);
            type Reply = $reply;
        })*
    };
}

calls! {
    Range: "KV/Range" -> RangeReply,
    Put: "KV/Put" -> (),
    Transaction: "KV/Txn" -> TransactionReply,
    EventsRequest: "Watch/Watch" -> EventsReply,
    LeaseGrant: "Lease/LeaseGrant" -> LeaseReply,
    LeaseKeepAlive: "Lease/LeaseKeepAlive" -> LeaseReply,
    LeaseRevoke: "Lease/LeaseRevoke" -> (),
    Authenticate: "Auth/Authenticate" -> Authenticated,
}

#[cfg(feature = "doctor")]
calls! {
    Status: "Maintenance/Status" -> StatusReply,
    Members: "Cluster/MemberList" -> MembersReply,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    /// 0: unknown.
    #[prost(uint64, tag = "1")]
    pub(super) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

/// The part that all replies have.
#[derive(Clone, PartialEq, Message)]
pub(super) struct AnyReply {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
}

/// A key with its value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Pair {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
}

/// Reads a key, or the keys before another one.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Range {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeReply {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) pairs: Vec<Pair>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Put {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    /// 0: no lease.
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Delete {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

/// A part of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Operation {
    #[prost(oneof = "Request", tags = "1, 2, 3, 4")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(Range),
    #[prost(message, tag = "2")]
    Put(Put),
    #[prost(message, tag = "3")]
    Delete(Delete),
    #[prost(message, tag = "4")]
    Transaction(Transaction),
}

/// Its operations if all comparisons are true, and others if not.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Transaction {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<Operation>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<Operation>,
}

/// That a key has what is expected.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(oneof = "Expected", tags = "6, 7")]
    pub(super) expected: Option<Expected>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Expected {
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes = "vec", tag = "7")]
    Value(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TransactionReply {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) replies: Vec<OperationReply>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OperationReply {
    #[prost(oneof = "Reply", tags = "1, 4")]
    pub(super) reply: Option<Reply>,
}

/// The reply to an operation that reads. Others are skipped.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Reply {
    #[prost(message, tag = "1")]
    Range(RangeReply),
    #[prost(message, tag = "4")]
    Transaction(TransactionReply),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventsRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<EventsOf>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventsOf {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EventsReply {
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<KeyEvent>,
}

/// A change of a key.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyEvent {
    /// 0: a put.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) pair: Option<Pair>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrant {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAlive {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseRevoke {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseReply {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    /// 0: there is no such lease.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

/// Without `Debug`, as its reply: it would show the password.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(super) struct Authenticate {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub(super) struct Authenticated {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

#[cfg(feature = "doctor")]
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {}

#[cfg(feature = "doctor")]
#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusReply {
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(int64, tag = "3")]
    pub(super) size: i64,
    #[prost(string, repeated, tag = "8")]
    pub(super) errors: Vec<String>,
    /// 0: unknown.
    #[prost(int64, tag = "12")]
    pub(super) quota: i64,
}

#[cfg(feature = "doctor")]
#[derive(Clone, PartialEq, Message)]
pub(super) struct Members {}

#[cfg(feature = "doctor")]
#[derive(Clone, PartialEq, Message)]
pub(super) struct MembersReply {
    #[prost(message, repeated, tag = "2")]
    pub(super) members: Vec<MemberReply>,
}

#[cfg(feature = "doctor")]
#[derive(Clone, PartialEq, Message)]
pub(super) struct MemberReply {
    #[prost(bool, tag = "5")]
    pub(super) is_learner: bool,
}

impl Range {
    pub(super) fn of(key: &str) -> Self {
        Self {
            key: key.into(),
            ..Self::default()
        }
    }

    /// At most so many keys with a prefix, from one of them on.
    pub(super) fn keys(prefix: &str, start: &str, limit: i64) -> Self {
        Self {
            key: start.into(),
            range_end: range_end(prefix),
            limit,
            keys_only: true,
        }
    }
}

impl From<Request> for Operation {
    fn from(request: Request) -> Self {
        Self {
            request: Some(request),
        }
    }
}

/// Reads a key.
pub(super) fn range(key: &str) -> Operation {
    Request::Range(Range::of(key)).into()
}

/// A key with a value, which goes with a lease. 0: no lease.
pub(super) fn put(key: &str, value: &str, lease: i64) -> Operation {
    let (key, value) = (key.into(), value.into());
    Request::Put(Put { key, value, lease }).into()
}

pub(super) fn delete(key: &str) -> Operation {
    Request::Delete(Delete { key: key.into() }).into()
}

impl Compare {
    /// That a key was changed last at a revision. 0: there is none.
    pub(super) fn revision(key: &str, revision: i64) -> Self {
        Self {
            target: 2,
            key: key.into(),
            expected: Some(Expected::ModRevision(revision)),
        }
    }

    pub(super) fn value(key: &str, value: &str) -> Self {
        Self {
            target: 3,
            key: key.into(),
            expected: Some(Expected::Value(value.into())),
        }
    }
}

impl Transaction {
    /// All operations, whatever there is.
    pub(super) fn of(success: Vec<Operation>) -> Self {
        Self {
            success,
            ..Self::default()
        }
    }
}

impl TransactionReply {
    /// The first key in the reply to a range.
    pub(super) fn found(&self, nth: usize) -> Result<Option<&Pair>> {
        match self.reply(nth) {
            Some(Reply::Range(range)) => Ok(range.pairs.first()),
            _ => Err(not_etcd()),
        }
    }

    pub(super) fn nested(&self, nth: usize) -> Result<&Self> {
        match self.reply(nth) {
            Some(Reply::Transaction(nested)) => Ok(nested),
            _ => Err(not_etcd()),
        }
    }

    fn reply(&self, nth: usize) -> Option<&Reply> {
        self.replies.get(nth)?.reply.as_ref()
    }
}

/// What is not UTF-8 is replaced: a text like that is damaged, whatever it says.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The key behind all keys with a prefix, whose last byte is a slash.
pub(super) fn range_end(prefix: &str) -> Vec<u8> {
    let mut end = Vec::from(prefix);
    end.pop();
    end.push(b'0');
    end
}
