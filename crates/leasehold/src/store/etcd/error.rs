//! Calls that fail, and what the reader can do.

use hyper::StatusCode;

use crate::ErrorKind::{
    InvalidConfig, NoPassword, Store, Unauthorized, Unreachable, WrongPassword,
};
use crate::error::invalid;
use crate::store::optimistic::documents::Replaced;
use crate::{Error, ErrorKind};

/// Why a call failed.
#[derive(Clone, Debug)]
pub(super) struct Failed {
    pub(super) error: Error,
    /// Whether nothing was applied for sure.
    pub(super) is_certain: bool,
    pub(super) remedy: Remedy,
}

/// What may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    Nothing,
    /// Nothing was applied, and the same member may accept the request in a moment.
    Retry,
    OtherMember,
    NewToken,
    /// The member is of another cluster. Only the next call goes to another one.
    OtherCluster,
}

impl Failed {
    /// Nothing was sent.
    pub(super) fn unsent(error: Error) -> Self {
        Self {
            error,
            is_certain: true,
            remedy: Remedy::OtherMember,
        }
    }

    /// There is no reply.
    pub(super) fn unanswered(error: Error) -> Self {
        Self {
            is_certain: false,
            ..Self::unsent(error)
        }
    }

    /// Nothing else may help.
    pub(super) fn certain(error: Error) -> Self {
        Self {
            error,
            is_certain: true,
            remedy: Remedy::Nothing,
        }
    }

    /// The reply is one of another cluster than the first. Nothing was applied in the first.
    pub(super) fn other_cluster(first: u64, found: u64) -> Self {
        let message = format!(
            "a member is of the etcd cluster {found:x}, and the one that replied first is of {first:x}; name the members of \
             one cluster in the store URL; if the cluster was restored from a backup, restart all programs that use it"
        );
        Self {
            remedy: Remedy::OtherCluster,
            ..Self::certain(invalid(message))
        }
    }

    /// The reply to a write that failed.
    pub(super) fn replaced(&self) -> Replaced {
        match self.is_certain {
            true => Replaced::Rejected(self.error.clone()),
            false => Replaced::Unknown(self.error.clone()),
        }
    }
}

/// The codes of gRPC with which a request is refused before it is applied.
const REFUSED: [u64; 8] = [3, 5, 7, 8, 9, 11, 12, 16];

/// Messages with such a code behind which a write may be applied: it has exceeded the quota, or a proxy refuses a long reply.
const APPLIED: [&str; 2] = ["database space exceeded", "larger than max"];

/// Messages of refusals before anything is applied, whatever the code: during an election, or by a busy server.
const PASSING: [&str; 3] = [
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "raft proposal dropped",
];

const NO_MAJORITY: &str = "no majority of the members replies; start those that are down, and check the network between \
                           them";

const TOO_LARGE: &str =
    "the request is too large for the server; start it with --max-request-bytes=1572864 or more";

/// A part of a message of etcd, and what it means.
const KNOWN: [(&str, ErrorKind, &str); 17] = [
    (
        "user name is empty",
        NoPassword,
        "the server requires a user and a password; name the user as in etcd://USER@HOST, and give the password by the \
         options or LEASEHOLD_PASSWORD",
    ),
    (
        "authentication failed",
        WrongPassword,
        "the server does not accept the user and the password",
    ),
    (
        "authentication is not enabled",
        InvalidConfig,
        "a user was given, and authentication is off; leave the user out, or run `etcdctl auth enable`",
    ),
    (
        "permission denied",
        Unauthorized,
        "the user may not read and write all keys below the prefix; run `etcdctl role grant-permission ROLE readwrite \
         PREFIX/ --prefix` with the prefix of the URL (leasehold by default)",
    ),
    (
        "database space exceeded",
        Store,
        "its database is full; compact and defragment it or raise --quota-backend-bytes, then run `etcdctl alarm disarm`",
    ),
    ("request is too large", Store, TOO_LARGE),
    ("larger than max", Store, TOO_LARGE),
    (
        "too many operations",
        Store,
        "the server takes fewer operations in a transaction than its default; start it with --max-txn-ops=128 or more",
    ),
    (
        "too many requests",
        Unreachable,
        "the server has too many requests to apply; its disk or its processor is too slow",
    ),
    ("no leader", Unreachable, NO_MAJORITY),
    ("leader changed", Unreachable, NO_MAJORITY),
    ("request timed out", Unreachable, NO_MAJORITY),
    ("unhealthy cluster", Unreachable, NO_MAJORITY),
    ("server stopped", Unreachable, "the server is stopping"),
    ("not capable", Unreachable, "the server is starting"),
    (
        "not supported for learner",
        Unreachable,
        "the member is a learner; name the voting members in the store URL",
    ),
    (
        "corrupt",
        Store,
        "the data of the members differ; see `etcdctl alarm list`, and restore the corrupt member",
    ),
];

/// Messages of a token that the server no longer accepts.
const TOKEN: [&str; 3] = [
    "invalid auth token",
    "revision of auth store is old",
    "revision in header is old",
];

/// The error of a reply that is not one of gRPC.
pub(super) fn refused(status: StatusCode, body: &[u8]) -> Failed {
    let text = String::from_utf8_lossy(body);
    let error = if text.contains("HTTP request to an HTTPS server") {
        invalid("the server uses TLS; write etcds://")
    } else if status.is_server_error() {
        // A proxy may have passed the request on.
        let message = format!("a proxy or another service replied with the HTTP status {status}");
        return Failed::unanswered(Error::new(ErrorKind::Unreachable, message));
    } else {
        not_etcd()
    };
    Failed::certain(error)
}

/// The failure with a message and a code of gRPC.
pub(super) fn described(message: &str, code: Option<u64>) -> Failed {
    let known = KNOWN.iter().find(|(part, ..)| message.contains(part));
    let (kind, text) = match known {
        Some((_, kind, advice)) => (*kind, format!("{advice} ({message})")),
        None => {
            let kind = match code {
                // A member that stops or is no longer the leader has errors without a code of their own.
                Some(1 | 2 | 4 | 14) => ErrorKind::Unreachable,
                _ => ErrorKind::Store,
            };
            (
                kind,
                format!("the server replied with an error ({message})"),
            )
        }
    };
    let may_be_applied = APPLIED.iter().any(|part| message.contains(part));
    let is_certain = code.is_some_and(|code| REFUSED.contains(&code)) && !may_be_applied;
    let remedy = if TOKEN.iter().any(|part| message.contains(part)) {
        Remedy::NewToken
    } else if PASSING.iter().any(|part| message.contains(part)) {
        Remedy::Retry
    } else if kind == ErrorKind::Unreachable {
        Remedy::OtherMember
    } else {
        Remedy::Nothing
    };
    Failed {
        error: Error::new(kind, text),
        is_certain: is_certain || matches!(remedy, Remedy::NewToken | Remedy::Retry),
        remedy,
    }
}

/// There was no reply in time.
pub(super) fn no_reply() -> Error {
    let message = "no reply in time; the member is stopped, slow or cut off, or no majority of the members replies";
    Error::new(ErrorKind::Unreachable, message)
}

/// A reply is not one of etcd.
pub(super) fn not_etcd() -> Error {
    let message =
        "the reply is not one of etcd; check host and port, which are those of clients (2379)";
    invalid(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_a_kind_and_is_certain_or_not() {
        use ErrorKind::*;
        for (code, message, kind, is_certain) in [
            (14, "etcdserver: request timed out", Unreachable, false),
            (3, "etcdserver: user name is empty", NoPassword, true),
            (7, "etcdserver: permission denied", Unauthorized, true),
            (8, "etcdserver: mvcc: database space exceeded", Store, false),
            (8, "grpc: received message larger than max", Store, false),
            (3, "etcdserver: request is too large", Store, true),
            (14, "etcdserver: no leader", Unreachable, true),
            (2, "etcdserver: too many requests", Unreachable, true),
            (2, "raft proposal dropped", Unreachable, true),
            (9, "rpc not supported for learner", Unreachable, true),
            (4, "context deadline exceeded", Unreachable, false),
            (2, "not a primary lessor", Unreachable, false),
            (13, "what is new", Store, false),
        ] {
            let failed = described(message, Some(code));
            assert_eq!(
                (failed.error.kind(), failed.is_certain),
                (kind, is_certain),
                "{message}"
            );
        }
        for (status, body, kind, is_certain) in [
            (
                400,
                "Client sent an HTTP request to an HTTPS server.\n",
                InvalidConfig,
                true,
            ),
            (200, "<html></html>", InvalidConfig, true),
            (404, "404 page not found\n", InvalidConfig, true),
            (502, "<html></html>", Unreachable, false),
        ] {
            let failed = refused(StatusCode::from_u16(status).unwrap(), body.as_bytes());
            assert_eq!(
                (failed.error.kind(), failed.is_certain),
                (kind, is_certain),
                "{body}"
            );
        }
        let token = described("etcdserver: invalid auth token", Some(16));
        assert_eq!((token.remedy, token.is_certain), (Remedy::NewToken, true));
    }
}
