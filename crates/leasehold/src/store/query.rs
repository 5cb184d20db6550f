//! A query, as it is read from the records of a store.

use leasehold_core::record::{Body, Head, Holder, Part, Row, Source as _};
use leasehold_core::{ClientId, Mismatch, Name, Slot};

use super::api::{ClientInfo, Key, Keyspace, Page, Parts, Query, View, WaiterInfo, mismatch};
use super::records::{ListPart, Record as _, Records};
use crate::Result;

/// A query that is read in one step or, if its page is long, in several, so that it does not delay others.
#[derive(Debug)]
pub struct RunningQuery {
    query: Query,
    /// The name behind which a list goes on, and the id of a slot if it is a list of notes.
    after: (String, String),
    page: Result<Page>,
}

impl RunningQuery {
    pub(super) fn new(query: Query) -> Self {
        Self {
            query,
            after: Default::default(),
            page: Ok(Page::default()),
        }
    }

    /// The name whose changes are to be notified from the first step on. The backend registers this process for it in the
    /// store, unless no other process changes the store.
    #[must_use]
    pub const fn watched(&self) -> Option<&Key> {
        match &self.query {
            Query::Name {
                key, watch: true, ..
            } => Some(key),
            _ => None,
        }
    }

    /// The query, and the name behind which its next part begins.
    #[cfg(feature = "__documents")]
    pub(super) fn position(&self) -> (&Query, &str) {
        (&self.query, &self.after.0)
    }

    /// Reads the next part. Returns whether there is more. May be called again if it fails.
    ///
    /// # Errors
    ///
    /// If the records cannot be read.
    pub fn step<R: Records>(&mut self, records: &mut R) -> Result<bool, R::Error> {
        match &self.query {
            Query::Name { key, parts, .. } => {
                let view = view(records, key, None, parts)?;
                self.page = view.map(|view| Page::of(view, None)).map_err(mismatch);
                Ok(false)
            }
            Query::Client(space, client) => {
                let client = client_info(records, space, *client)?;
                self.page = Ok(Page {
                    client,
                    ..Page::default()
                });
                Ok(false)
            }
            Query::Names(space) => {
                let ListPart { entries, is_last } = records.heads(space, &self.after.0)?;
                let (mut views, mut last) = (Vec::new(), String::new());
                for (name, head) in entries {
                    last = name.as_str().to_owned();
                    match held(records, &space.key(name), &head)? {
                        Ok(held) => views.extend(held),
                        Err(error) => {
                            self.page = Err(error);
                            return Ok(false);
                        }
                    }
                }
                self.after.0 = last;
                if let Ok(page) = &mut self.page {
                    page.views.append(&mut views);
                }
                Ok(!is_last)
            }
            Query::Completions(space) => {
                let after = (self.after.0.as_str(), self.after.1.as_str());
                let ListPart { entries, is_last } = records.completions(space, after)?;
                let (mut views, mut last) = (Vec::new(), Default::default());
                for (name, slot, note) in entries {
                    last = (name.as_str().to_owned(), slot.id().into_owned());
                    let mut view = View::of(space.key(name));
                    view.annotations.push((slot, (&note).into()));
                    views.push(view);
                }
                self.after = last;
                if let Ok(page) = &mut self.page {
                    page.views.append(&mut views);
                }
                Ok(!is_last)
            }
            Query::Durability(_) => Ok(false),
        }
    }

    /// The page, after the last step.
    ///
    /// # Errors
    ///
    /// If a name is used otherwise, or its record is damaged.
    pub fn finish(self) -> Result<Page> {
        let mut page = self.page?;
        // The ids of slots have another order.
        page.views.sort_by(|a, b| order(a).cmp(&order(b)));
        Ok(page)
    }
}

/// A lock if it is held. The inner error is that of a damaged record.
fn held<R: Records>(
    records: &mut R,
    key: &Key,
    head: &Head,
) -> Result<Result<Option<View>>, R::Error> {
    let Body::Leases(_) = head.body else {
        return Ok(Ok(None));
    };
    match view(records, key, Some(head), &Parts::Waiters) {
        Ok(view) => {
            let view = view.map_err(mismatch);
            Ok(view.map(|view| view.holder.is_some().then_some(view)))
        }
        Err(error) => Ok(Err(R::damage(error)?.for_lock(&key.name))),
    }
}

/// Parts of the state of a name, with its head if that is known.
fn view<R: Records>(
    records: &mut R,
    key: &Key,
    head: Option<&Head>,
    parts: &Parts,
) -> Result<Result<View, Mismatch>, R::Error> {
    let environment = records.environment(key);
    let mut record = records.record(key, |_| None);
    let head = match head {
        Some(head) => *head,
        None => record.head()?,
    };
    let holders = match head.body {
        Body::Leases(leases) if leases.used > 0 => match leases.sole {
            Some(holder) => vec![holder],
            None => record.holders()?,
        },
        _ => Vec::new(),
    };
    let lives = |holder: &Holder| !environment.is_over(holder.end);
    let holders: Vec<_> = holders.into_iter().filter(lives).collect();
    let mut view = match View::of_head(key.clone(), &head, &holders, parts, &environment) {
        Ok(view) => view,
        Err(mismatch) => return Ok(Err(mismatch)),
    };
    if let Parts::Annotation(slot) | Parts::State(slot) = parts {
        let note = record.note(slot)?;
        let note = note.filter(|note| environment.calendar < note.until);
        let note = note.map(|note| (slot.clone(), (&note).into()));
        view.annotations.extend(note);
    }
    let waiting = match parts {
        Parts::Waiters if view.queue_length > 0 => {
            record.waiting(&environment, View::WAITERS_MAX)?
        }
        _ => Vec::new(),
    };
    drop(record);
    if let Parts::Holder | Parts::Waiters = parts {
        for holder in view.holder.iter_mut().chain(&mut view.others) {
            holder.client = client_info(records, &key.space, holder.lease.client)?;
        }
    }
    for lease in waiting {
        let client = client_info(records, &key.space, lease.client)?;
        view.waiters.push(WaiterInfo { lease, client });
    }
    Ok(Ok(view))
}

/// The info of a client that has described itself, for people: one that cannot be read hides no lock.
fn client_info<R: Records>(
    records: &mut R,
    space: &Keyspace,
    client: ClientId,
) -> Result<Option<ClientInfo>, R::Error> {
    let key = space.key(Name::of_client(client));
    let environment = records.environment(&key);
    let row = records.record(&key, |_| None).row(&Part::Description);
    match row {
        Ok(Some(Row::Description(description))) if environment.now < description.until => {
            Ok(ClientInfo::from_text(&description.text))
        }
        Ok(_) => Ok(None),
        Err(error) => R::damage(error).map(|_| None),
    }
}

/// The place of a view in a list.
fn order(view: &View) -> (&Name, Option<&Slot>) {
    let slot = view.annotations.first().map(|(slot, _)| slot);
    (&view.key.name, slot)
}
