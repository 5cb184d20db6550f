//! Work that waits for a connection.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::store::api::Reply;
use crate::store::work::Work;

/// A batch of requests that waits or is under way.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    /// The caller of work that is left of others is gone.
    pub(super) reply: Option<oneshot::Sender<Vec<Reply>>>,
    /// When nobody waits any longer.
    pub(super) until: Instant,
    /// Whether it waits for transactions of users, and so is run alone.
    pub(super) is_patient: bool,
}
