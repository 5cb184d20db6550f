//! Facts about a bucket of an object store.

use std::time::Duration;

/// The facts about a bucket.
#[derive(Clone, Debug)]
pub(crate) struct BucketFacts {
    /// Its URL.
    pub(crate) name: String,
    /// The condition of a write that the service ignores.
    pub(crate) ignored_condition: Option<&'static str>,
    /// How long a read and a write of an object took.
    pub(crate) read: Duration,
    pub(crate) write: Duration,
    /// Whether earlier versions of an object are kept. `None`: unknown.
    pub(crate) keeps_versions: Option<bool>,
    /// Whether the URL names an endpoint without TLS.
    pub(crate) uses_http: bool,
}
