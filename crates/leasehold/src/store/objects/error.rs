//! Failures of requests, and their errors.

use std::error::Error as StdError;
use std::{fmt, iter};

use super::address::Cloud;
use crate::{Error, ErrorKind};

/// Why a request has no reply that the client of the service could use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing was sent.
    NotSent(String),
    /// It was sent, and there is no complete reply.
    NoReply(String),
    /// The machine has no credentials.
    NoCredentials,
    /// The status and the code of an error.
    Refused(u16, String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the request failed")
    }
}

impl StdError for Failure {}

impl Failure {
    /// That of a failed request, if it was one of the connection or of the service.
    fn of(error: &object_store::Error) -> Option<&Self> {
        let first: &(dyn StdError + 'static) = error;
        let mut causes = iter::successors(Some(first), |&cause| cause.source());
        causes.find_map(|cause| cause.downcast_ref())
    }

    /// Whether the request was certainly not applied.
    fn is_certain(&self) -> bool {
        match self {
            Self::NotSent(_) | Self::NoCredentials => true,
            Self::NoReply(_) => false,
            Self::Refused(status, _) => (300..500).contains(status) && *status != 408,
        }
    }

    fn error(&self, cloud: Cloud) -> Error {
        let variables = cloud.variables();
        let (kind, message) = match self {
            Self::NotSent(cause) => (
                ErrorKind::Unreachable,
                format!(
                    "no connection to the service; check the endpoint and the network ({cause})"
                ),
            ),
            Self::NoReply(cause) => (
                ErrorKind::Unreachable,
                format!("no reply; the service is slow or cut off ({cause})"),
            ),
            Self::NoCredentials => (
                ErrorKind::NoPassword,
                format!("there are no credentials in the environment; set {variables}"),
            ),
            Self::Refused(status, code) => {
                let (kind, advice) = refused(*status, code)
                    .unwrap_or((ErrorKind::Store, "the service refused the request"));
                let advice = advice.replace("CREDENTIALS", variables);
                (kind, format!("{advice} (HTTP {status} {code})"))
            }
        };
        Error::new(kind, message)
    }
}

/// What the reader can do about an error of the service, if that is known. `CREDENTIALS` stands for the variables that
/// have them.
pub(super) fn refused(status: u16, code: &str) -> Option<(ErrorKind, &'static str)> {
    Some(match (code, status) {
        ("NoSuchBucket" | "ContainerNotFound" | "ContainerBeingDeleted", _) => (
            ErrorKind::InvalidConfig,
            "there is no such bucket; create it, or correct its name in the URL",
        ),
        (
            "BlobImmutableDueToPolicy"
            | "BlobImmutableDueToLegalHold"
            | "BlobArchived"
            | "BlobBeingRehydrated"
            | "LeaseIdMissing",
            _,
        ) => (
            ErrorKind::Store,
            "the object is immutable, archived or leased; choose a container without such rules and leases",
        ),
        ("AuthorizationHeaderMalformed" | "IllegalLocationConstraintException", _)
        | (_, 300..=399) => (
            ErrorKind::InvalidConfig,
            "the bucket is in another region or at another endpoint; name it by region= or endpoint= in the URL",
        ),
        ("RequestTimeTooSkewed", _) => (
            ErrorKind::Store,
            "the clock of this machine differs too much from that of the service; set it",
        ),
        (
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "InvalidToken"
            | "ExpiredToken"
            | "AuthenticationFailed"
            | "InvalidAuthenticationInfo",
            _,
        )
        | (_, 401) => (
            ErrorKind::WrongPassword,
            "the service does not accept the credentials; check the clock of this machine, and CREDENTIALS",
        ),
        (_, 403) => (
            ErrorKind::Unauthorized,
            "the credentials lack a right; allow them to read, write and list the objects below the prefix",
        ),
        ("NotImplemented", _) | (_, 501) => (ErrorKind::Unsupported, NO_CONDITIONS),
        (_, 408 | 429 | 500..=599) => (ErrorKind::Unreachable, "the service is busy or has failed"),
        _ => return None,
    })
}

const NO_CONDITIONS: &str = "the service has no conditional writes, so it keeps no locks; use Amazon S3, Google Cloud Storage, \
                             Azure Blob Storage, Cloudflare R2 or MinIO of one pool";

/// The error of a service that ignores a condition.
pub(super) fn ignored(condition: &str) -> Error {
    let message = format!("the service ignores {condition}: {NO_CONDITIONS}");
    Error::new(ErrorKind::Unsupported, message)
}

/// The error of a failed request, and whether it was certainly not applied. It has no source, which could quote a secret.
pub(super) fn describe(error: &object_store::Error, cloud: Cloud) -> (Error, bool) {
    match Failure::of(error) {
        Some(failure) => (failure.error(cloud), failure.is_certain()),
        None => {
            let variables = cloud.variables();
            let message = format!(
                "the reply or the credentials cannot be read; check the endpoint, and {variables}"
            );
            (Error::new(ErrorKind::Store, message), false)
        }
    }
}

#[cfg(test)]
mod tests {
    use object_store::client::{HttpError, HttpErrorKind};

    use super::*;

    #[test]
    fn each_failure_says_what_to_do() {
        use ErrorKind::*;
        let refused = |status, code: &str| Failure::Refused(status, code.to_owned());
        let cause = || "x".to_owned();
        for (failure, kind, advice, is_certain) in [
            (Failure::NotSent(cause()), Unreachable, "endpoint", true),
            (Failure::NoReply(cause()), Unreachable, "slow", false),
            (
                Failure::NoCredentials,
                NoPassword,
                "AWS_ACCESS_KEY_ID",
                true,
            ),
            (
                refused(404, "NoSuchBucket"),
                InvalidConfig,
                "create it",
                true,
            ),
            (refused(409, "BlobArchived"), Store, "archived", true),
            (refused(418, ""), Store, "refused the request", true),
            (refused(301, ""), InvalidConfig, "region=", true),
            (refused(403, "RequestTimeTooSkewed"), Store, "clock", true),
            (
                refused(403, "InvalidAccessKeyId"),
                WrongPassword,
                "AWS_SECRET",
                true,
            ),
            (refused(403, "AccessDenied"), Unauthorized, "a right", true),
            (
                refused(501, "NotImplemented"),
                Unsupported,
                "use Amazon S3",
                false,
            ),
            (refused(503, "SlowDown"), Unreachable, "busy", false),
        ] {
            // As the client of the service hands it over.
            let error = object_store::Error::Generic {
                store: "S3",
                source: Box::new(HttpError::new(HttpErrorKind::Unknown, failure)),
            };
            let (error, certain) = describe(&error, Cloud::Amazon);
            assert_eq!((error.kind(), certain), (kind, is_certain), "{error}");
            assert!(error.to_string().contains(advice), "{error}");
        }
    }
}
