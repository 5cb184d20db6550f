//! The documents that a query reads.

use std::collections::HashMap;
use std::convert::Infallible;

use leasehold_core::record::{Environment, Head, Note};
use leasehold_core::{ClientId, Name, Rows, Slot};
use tokio::time::Instant as Deadline;

use super::DOCUMENTS_MAX;
use super::attempt::damaged;
use super::cache::Entry;
use super::documents::Documents;
use crate::Result;
use crate::store::api::{Key, Keyspace, Query, View};
use crate::store::lock::lock;
use crate::store::query::RunningQuery;
use crate::store::records::{ListPart, Record, Records};
use crate::store::rows::{Damage, DamagedText};

/// How many documents the first call reads, and how many bytes a call may have if the next one is to be longer: one whose
/// documents are long takes no longer than its limit.
const COUNT_FIRST: usize = 8;
const BYTES: usize = 1024 * 1024;

/// The documents of one step.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    records: HashMap<Key, (Rows, Environment)>,
    /// Whether the observers of this process are registered in one of them.
    pub(super) is_watched: bool,
    /// The page of names, and whether it is the last one.
    names: Vec<Name>,
    is_last: bool,
}

/// The rows of a document, and the time at which they are read.
type Seen = (Result<Rows, DamagedText>, Environment);

/// Whether a record that is damaged is read as one that does not exist. As in every store, the description of a client and a
/// latch hide no lock, and a lock hides no completion of others. A damaged lock is not passed over as free.
fn is_passed_over(query: &Query, key: &Key, damage: Damage) -> bool {
    match query {
        _ if key.name.client().is_some() => true,
        Query::Names(_) => damage == Damage::Latch,
        Query::Completions(_) => damage != Damage::Note,
        _ => false,
    }
}

impl<D: Documents> super::Records<D> {
    /// Reads what the next step of a query needs: its names, and the clients of their leases. Each part of it may take as
    /// long as a response.
    pub(super) async fn load(&self, query: &RunningQuery) -> Result<Loaded> {
        let mut loaded = Loaded {
            is_last: true,
            ..Loaded::default()
        };
        let (query, after) = query.position();
        match query {
            Query::Name { key, .. } => self.add(&mut loaded, query, vec![key.clone()]).await?,
            Query::Client(space, client) => {
                let key = space.key(Name::of_client(*client));
                self.add(&mut loaded, query, vec![key]).await?;
            }
            Query::Names(space) | Query::Completions(space) => {
                let mut after = after.to_owned();
                loop {
                    let until = Deadline::now() + self.response_timeout;
                    let names = self.documents.names(space, &after);
                    let page = self.in_time(until, names).await??;
                    let keys = page.entries.iter().map(|name| space.key(name.clone()));
                    self.add(&mut loaded, query, keys.collect()).await?;
                    loaded.is_last = page.is_last;
                    let last = page.entries.last();
                    after = last.map_or_else(String::new, |name| name.as_str().to_owned());
                    loaded.names.extend(page.entries);
                    // A list goes on behind its last entry, so a part of it has one.
                    let is_list = matches!(query, Query::Names(_)) && !loaded.names.is_empty();
                    if page.is_last || is_list || loaded.has_completions() {
                        break;
                    }
                }
            }
            Query::Durability(_) => {}
        }
        let clients = loaded.clients();
        self.add(&mut loaded, query, clients).await?;
        Ok(loaded)
    }

    async fn add(&self, loaded: &mut Loaded, query: &Query, keys: Vec<Key>) -> Result<()> {
        let (mut keys, mut count) = (&*keys, COUNT_FIRST);
        while !keys.is_empty() {
            let (part, left) = keys.split_at(count.min(keys.len()));
            let until = Deadline::now() + self.response_timeout;
            let read = self.documents.read(part.to_vec());
            let read = self.in_time(until, read).await??;
            let texts = read.iter().filter_map(|document| document.text.as_ref());
            count = match texts.map(String::len).sum::<usize>() <= BYTES {
                true => (count * 2).min(DOCUMENTS_MAX),
                false => (count / 2).max(1),
            };
            for (key, document) in part.iter().zip(read) {
                let entry = Entry::new(document, self.clock.now());
                loaded.is_watched |= entry.header.watchers.contains_key(&self.watcher);
                let (rows, environment) = self.seen(query, key, entry);
                let rows = match rows {
                    Ok(rows) => rows,
                    Err(DamagedText(damage, word)) if is_passed_over(query, key, damage) => {
                        let (lock, store) = (key.name.as_str(), &self.documents);
                        tracing::warn!(lock, word, %store, "a damaged record is passed over");
                        Rows::default()
                    }
                    Err(found) => return Err(damaged(found).for_lock(&key.name)),
                };
                loaded.records.insert(key.clone(), (rows, environment));
            }
            keys = left;
        }
        Ok(())
    }

    /// The rows of a document as this process sees them now.
    fn seen(&self, query: &Query, key: &Key, entry: Entry) -> Seen {
        let (received, wall) = (entry.received, self.wall_time());
        let mut cache = lock(&self.cache);
        let entry = cache.known(key, entry);
        // An observer sends no request in which it would see the holder.
        if let Query::Name { .. } = query {
            cache.update_ends(key, &entry);
        }
        let ends = cache.ends(key);
        drop(cache);
        let environment = entry.environment(received, wall);
        let mut rows = entry.rows;
        if let Ok(rows) = &mut rows {
            ends.shorten((rows, &entry.header.stamps), environment.now, received);
        }
        (rows, environment)
    }
}

impl Loaded {
    /// Whether the list of completions has an entry, behind which it goes on.
    fn has_completions(&self) -> bool {
        let mut records = self.records.values();
        records.any(|(rows, environment)| {
            let mut notes = rows.notes(environment);
            notes.any(|(slot, _)| *slot != Slot::Value)
        })
    }

    /// The records of the clients that hold and wait.
    fn clients(&self) -> Vec<Key> {
        let keys = self.records.iter().flat_map(|(key, (rows, environment))| {
            let waiters = rows.waiters(environment).take(View::WAITERS_MAX);
            let holders = rows.holders(environment).map(|holder| holder.lease);
            let leases = holders.chain(waiters.map(|waiter| waiter.lease));
            let keys = leases.map(|lease| key.space.key(Name::of_client(lease.client)));
            keys.collect::<Vec<_>>()
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

impl Records for Loaded {
    type Error = Infallible;

    fn environment(&self, key: &Key) -> Environment {
        let read = self.records.get(key);
        read.map(|(_, environment)| *environment)
            .unwrap_or_default()
    }

    fn record<'a, F>(
        &'a mut self,
        key: &'a Key,
        mut reaches: F,
    ) -> impl Record<Error = Infallible> + 'a
    where
        F: FnMut(ClientId) -> Option<bool> + 'a,
    {
        let (rows, _) = self.records.entry(key.clone()).or_default();
        rows.source_mut(move |client| reaches(client).unwrap_or(false))
    }

    fn heads(&mut self, space: &Keyspace, _: &str) -> Result<ListPart<(Name, Head)>, Infallible> {
        let head = |name: &Name| {
            let (rows, _) = self.records.get(&space.key(name.clone()))?;
            Some((name.clone(), *rows.head()))
        };
        Ok(ListPart {
            entries: self.names.iter().filter_map(head).collect(),
            is_last: self.is_last,
        })
    }

    fn completions(
        &mut self,
        space: &Keyspace,
        _: (&str, &str),
    ) -> Result<ListPart<(Name, Slot, Note)>, Infallible> {
        let entries = self.names.iter().flat_map(|name| {
            let Some((rows, environment)) = self.records.get(&space.key(name.clone())) else {
                return Vec::new();
            };
            let notes = rows.notes(environment);
            let notes = notes.filter(|(slot, _)| **slot != Slot::Value);
            notes
                .map(|(slot, note)| (name.clone(), slot.clone(), note.clone()))
                .collect()
        });
        Ok(ListPart {
            entries: entries.collect(),
            is_last: self.is_last,
        })
    }
}
