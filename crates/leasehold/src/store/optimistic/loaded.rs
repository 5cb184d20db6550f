//! The documents that a query reads.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use leasehold_core::record::{Environment, Head, Note};
use leasehold_core::{ClientId, Name, Rows, Slot};
use tokio::time::timeout;

use super::DOCUMENTS_MAX;
use super::attempt::damaged;
use super::documents::{Document, Documents};
use crate::Result;
use crate::store::api::{Key, Keyspace, Query, View};
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
    /// The page of names, and whether it is the last one.
    names: Vec<Name>,
    is_last: bool,
}

async fn in_time<T>(limit: Duration, read: impl Future<Output = Result<T>>) -> Result<T> {
    let read = timeout(limit, read).await;
    read.unwrap_or_else(|_| Err(super::no_reply()))
}

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

impl Loaded {
    /// Reads what the next step of a query needs: its names, and the clients of their leases. Each part of it may take as
    /// long as the limit.
    pub(super) async fn read<D: Documents>(
        (documents, limit): (&D, Duration),
        query: &RunningQuery,
        seen: impl Fn(&Key, Document) -> (Result<Rows, DamagedText>, Environment),
    ) -> Result<Self> {
        let mut loaded = Self {
            is_last: true,
            ..Self::default()
        };
        let (query, after) = query.position();
        let source = (documents, limit, query);
        match query {
            Query::Name { key, .. } => loaded.add(source, vec![key.clone()], &seen).await?,
            Query::Client(space, client) => {
                let key = space.key(Name::of_client(*client));
                loaded.add(source, vec![key], &seen).await?;
            }
            Query::Names(space) | Query::Completions(space) => {
                let mut after = after.to_owned();
                loop {
                    let page = in_time(limit, documents.names(space, &after)).await?;
                    let keys = page.entries.iter().map(|name| space.key(name.clone()));
                    loaded.add(source, keys.collect(), &seen).await?;
                    loaded.is_last = page.is_last;
                    page.entries
                        .last()
                        .map_or("", Name::as_str)
                        .clone_into(&mut after);
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
        loaded.add(source, clients, &seen).await?;
        Ok(loaded)
    }

    async fn add<D: Documents>(
        &mut self,
        (documents, limit, query): (&D, Duration, &Query),
        keys: Vec<Key>,
        seen: impl Fn(&Key, Document) -> (Result<Rows, DamagedText>, Environment),
    ) -> Result<()> {
        let (mut keys, mut count) = (&*keys, COUNT_FIRST);
        while !keys.is_empty() {
            let (part, left) = keys.split_at(count.min(keys.len()));
            let read = in_time(limit, documents.read(part.to_vec())).await?;
            let texts = read.iter().filter_map(|document| document.text.as_ref());
            count = match texts.map(String::len).sum::<usize>() <= BYTES {
                true => (count * 2).min(DOCUMENTS_MAX),
                false => (count / 2).max(1),
            };
            for (key, document) in part.iter().zip(read) {
                let (rows, environment) = seen(key, document);
                let rows = match rows {
                    Ok(rows) => rows,
                    Err(DamagedText(damage, word)) if is_passed_over(query, key, damage) => {
                        let lock = key.name.as_str();
                        tracing::warn!(lock, word, store = %documents, "a damaged record is passed over");
                        Rows::default()
                    }
                    Err(found) => return Err(damaged(found).for_lock(&key.name)),
                };
                self.records.insert(key.clone(), (rows, environment));
            }
            keys = left;
        }
        Ok(())
    }

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
