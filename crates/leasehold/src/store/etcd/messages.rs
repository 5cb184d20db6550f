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

/// Messages with their fields, each of which has its type in the protocol and its number there.
macro_rules! messages {
    ($(
        $(#[$about:meta])*
        $name:ident { $($(#[$meaning:meta])* $field:ident: $type:ty = [$($wire:tt)*],)* }
    )*) => {
        $(
            $(#[$about])*
            #[derive(Clone, PartialEq, Message)]
            pub(super) struct $name {
                $($(#[$meaning])* #[prost($($wire)*)] pub(super) $field: $type,)*
            }
        )*
    };
}

messages! {
    Header {
        revision: i64 = [int64, tag = "3"],
    }

    /// A key with its value.
    Pair {
        key: Vec<u8> = [bytes = "vec", tag = "1"],
        mod_revision: i64 = [int64, tag = "3"],
        value: Vec<u8> = [bytes = "vec", tag = "5"],
    }

    /// Reads a key, or the keys before another one.
    Range {
        key: Vec<u8> = [bytes = "vec", tag = "1"],
        range_end: Vec<u8> = [bytes = "vec", tag = "2"],
        limit: i64 = [int64, tag = "3"],
        keys_only: bool = [bool, tag = "8"],
    }

    RangeReply {
        header: Option<Header> = [message, optional, tag = "1"],
        pairs: Vec<Pair> = [message, repeated, tag = "2"],
        more: bool = [bool, tag = "3"],
    }

    Put {
        key: Vec<u8> = [bytes = "vec", tag = "1"],
        value: Vec<u8> = [bytes = "vec", tag = "2"],
        /// 0: no lease.
        lease: i64 = [int64, tag = "3"],
    }

    Delete {
        key: Vec<u8> = [bytes = "vec", tag = "1"],
    }

    /// A part of a transaction.
    Operation {
        request: Option<Request> = [oneof = "Request", tags = "1, 2, 3, 4"],
    }

    /// Its operations if all comparisons are true, and others if not.
    Transaction {
        compare: Vec<Compare> = [message, repeated, tag = "1"],
        success: Vec<Operation> = [message, repeated, tag = "2"],
        failure: Vec<Operation> = [message, repeated, tag = "3"],
    }

    /// That a key has what is expected.
    Compare {
        target: i32 = [int32, tag = "2"],
        key: Vec<u8> = [bytes = "vec", tag = "3"],
        expected: Option<Expected> = [oneof = "Expected", tags = "6, 7"],
    }

    TransactionReply {
        header: Option<Header> = [message, optional, tag = "1"],
        succeeded: bool = [bool, tag = "2"],
        replies: Vec<OperationReply> = [message, repeated, tag = "3"],
    }

    OperationReply {
        reply: Option<Reply> = [oneof = "Reply", tags = "1, 4"],
    }

    EventsRequest {
        create: Option<EventsOf> = [message, optional, tag = "1"],
    }

    EventsOf {
        key: Vec<u8> = [bytes = "vec", tag = "1"],
        range_end: Vec<u8> = [bytes = "vec", tag = "2"],
    }

    EventsReply {
        canceled: bool = [bool, tag = "4"],
        cancel_reason: String = [string, tag = "6"],
        events: Vec<Event> = [message, repeated, tag = "11"],
    }

    Event {
        /// 0: a put.
        kind: i32 = [int32, tag = "1"],
        pair: Option<Pair> = [message, optional, tag = "2"],
    }

    LeaseGrant {
        /// In seconds.
        ttl: i64 = [int64, tag = "1"],
    }

    LeaseKeepAlive {
        id: i64 = [int64, tag = "1"],
    }

    LeaseRevoke {
        id: i64 = [int64, tag = "1"],
    }

    LeaseReply {
        id: i64 = [int64, tag = "2"],
        /// 0: there is no such lease.
        ttl: i64 = [int64, tag = "3"],
    }
}

#[cfg(feature = "doctor")]
messages! {
    Status {}

    StatusReply {
        version: String = [string, tag = "2"],
        size: i64 = [int64, tag = "3"],
        errors: Vec<String> = [string, repeated, tag = "8"],
        /// 0: unknown.
        quota: i64 = [int64, tag = "12"],
    }

    Members {}

    MembersReply {
        members: Vec<MemberReply> = [message, repeated, tag = "2"],
    }

    MemberReply {
        is_learner: bool = [bool, tag = "5"],
    }
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

#[derive(Clone, PartialEq, Eq, Oneof)]
pub(super) enum Expected {
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes = "vec", tag = "7")]
    Value(Vec<u8>),
}

/// The reply to an operation that reads. Others are skipped.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Reply {
    #[prost(message, tag = "1")]
    Range(RangeReply),
    #[prost(message, tag = "4")]
    Transaction(TransactionReply),
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
