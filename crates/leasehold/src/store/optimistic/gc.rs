//! When documents are looked through for those that nobody needs.

use std::collections::HashMap;
use std::time::Duration;

use crate::store::api::{Keyspace, Request};

/// How long nobody has needed a document that is removed, so that the tokens of the next one grow by wall clocks that are less
/// than this apart.
pub(super) const UNUSED: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of requests between two pages of names.
const REQUESTS: usize = 1_000;

/// How many documents are looked at together.
pub(super) const PAGE: usize = 1_000;

/// Where the search for documents that nobody needs goes on.
#[derive(Debug, Default)]
pub(super) struct GarbageCollector {
    requests: usize,
    cursors: HashMap<Keyspace, String>,
}

impl GarbageCollector {
    /// Counts requests. Returns a keyspace of which a page of names is due.
    pub(super) fn note(&mut self, requests: &[Request]) -> Option<Keyspace> {
        self.requests += requests.len();
        if self.requests < REQUESTS {
            return None;
        }
        self.requests = 0;
        requests.first().map(|request| request.key.space.clone())
    }

    /// The name behind which the next page begins.
    pub(super) fn cursor(&self, space: &Keyspace) -> String {
        self.cursors.get(space).cloned().unwrap_or_default()
    }

    pub(super) fn set_cursor(&mut self, space: &Keyspace, after: String) {
        self.cursors.insert(space.clone(), after);
    }
}
