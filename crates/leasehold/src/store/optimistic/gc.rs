//! The removal of documents that nobody needs.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant as Deadline;

use super::cache::Entry;
use super::documents::{Documents, Write};
use super::{DOCUMENTS_MAX, Records};
use crate::Result;
use crate::store::api::{Keyspace, Request};
use crate::store::lock::lock;

/// How long nobody has needed a document that is removed, so that the tokens of the next one grow by wall clocks that are less
/// than this apart.
pub(super) const UNUSED: Duration = Duration::from_secs(24 * 60 * 60);

/// The number of requests between two pages of names.
const REQUESTS: usize = 1_000;

/// How many documents are looked at together.
const PAGE: usize = 1_000;

/// Where the search for documents that nobody needs goes on.
#[derive(Debug, Default)]
pub(super) struct GarbageCollector {
    requests: usize,
    /// The names behind which the next pages begin.
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
}

impl<D: Documents> Records<D> {
    /// Removes documents of one page of names that nobody has needed for long.
    pub(super) async fn collect_garbage(&self, space: &Keyspace) -> Result<()> {
        let after = lock(&self.gc).cursors.get(space).cloned();
        let after = after.unwrap_or_default();
        let names = self.documents.names(space, &after).await?;
        let garbage = self.documents.garbage();
        let removable = names.entries.iter().filter(|name| garbage.has(name));
        let keys: Vec<_> = removable
            .take(PAGE)
            .map(|name| space.key(name.clone()))
            .collect();
        let last = match keys.last().filter(|_| keys.len() == PAGE) {
            Some(key) => Some(&key.name),
            None => names.entries.last().filter(|_| !names.is_last),
        };
        let last = last.map_or_else(String::new, |name| name.as_str().to_owned());
        lock(&self.gc).cursors.insert(space.clone(), last);
        let before = self.wall_time().before_span(UNUSED);
        for part in keys.chunks(DOCUMENTS_MAX) {
            let until = Deadline::now() + self.response_timeout;
            let read = self.documents.read(part.to_vec());
            let read = self.in_time(until, read).await??;
            let received = self.clock.now();
            let found = part.iter().zip(read);
            let found = found.filter(|(_, document)| document.text.is_some());
            let removals = found.filter_map(|(key, document)| {
                let entry = Entry::new(document, received);
                entry.is_unused(before).then(|| Write {
                    key: key.clone(),
                    seen: entry.version,
                    text: None,
                    messages: Vec::new(),
                })
            });
            self.replace(removals.collect(), until).await;
        }
        Ok(())
    }
}
