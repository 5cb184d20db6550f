//! Reads: the state of a name, lists, a client.

use leasehold_core::record::text::Damaged;
use leasehold_core::record::{Body, Head, Holder, Source as _};
use leasehold_core::{ClientId, Environment, Name, Slot, StoreTime};
use rusqlite::{Connection, params};

use super::change::Sender;
use super::error::{Damage, Fault};
use super::observers;
use super::row::signed;
use super::rows::{self, NOTE, StoredRecord};
use crate::Result;
use crate::store::api::{
    ClientInfo, Key, Keyspace, Page, Parts, Query, View, WaiterInfo, mismatch,
};

/// The number of rows per step, so that a long list does not delay other commands.
const STEP: u32 = 1_000;

/// A read, and the channel for its result. A long list is read in several steps.
#[derive(Debug)]
pub(super) struct Read {
    query: Query,
    /// The observer of the name.
    observer: Option<ClientId>,
    /// The row after which to continue.
    after: Position,
    /// What was found before it.
    views: Vec<View>,
    reply: Sender<(Page, bool)>,
}

/// The name of a row, and its id beside the name if it is a note.
type Position = [String; 2];

/// The result of one step.
#[derive(Debug, Default)]
pub(super) struct Step {
    page: Page,
    is_registered: bool,
    /// The row after which to continue. `None`: it is complete.
    next: Option<Position>,
}

impl Read {
    /// The reply is the page, and whether the observer is registered and need not be renewed yet.
    pub(super) fn new(
        query: Query,
        observer: Option<ClientId>,
        reply: Sender<(Page, bool)>,
    ) -> Self {
        Self {
            query,
            observer,
            after: Position::default(),
            views: Vec::new(),
            reply,
        }
    }

    /// Reads the next rows.
    pub(super) fn step(&self, db: &Connection, now: StoreTime) -> Result<Step, Fault> {
        // All parts are read in the same state of the file.
        let _snapshot = db.unchecked_transaction()?;
        match &self.query {
            Query::Name { key, parts, .. } => {
                let view = view(db, key, parts, now)?;
                let is_registered = match self.observer {
                    Some(client) => observers::is_registered(db, key, client, now)?,
                    None => false,
                };
                Ok(Step {
                    page: Page::of(view, None),
                    is_registered,
                    next: None,
                })
            }
            Query::Names(space) => held(db, space, &self.after, now),
            Query::Completions(space) => completions(db, space, &self.after, now),
            Query::Client(space, client) => {
                let client = client_info(db, space, *client, now)?;
                let page = Page {
                    client,
                    ..Page::default()
                };
                Ok(Step {
                    page,
                    ..Step::default()
                })
            }
            Query::Durability(_) => Ok(Step::default()),
        }
    }

    /// Takes the result of a step. Returns the read if it continues.
    pub(super) fn continued(mut self, step: Result<Step>) -> Option<Self> {
        let reply = match step {
            Ok(Step {
                page,
                next: Some(after),
                ..
            }) => {
                self.views.extend(page.views);
                return Some(Self { after, ..self });
            }
            Ok(mut step) => {
                self.views.append(&mut step.page.views);
                step.page.views = self.views;
                step.page.views.sort_by(|a, b| order(a).cmp(&order(b)));
                Ok((step.page, step.is_registered))
            }
            Err(error) => Err(error),
        };
        let _ = self.reply.send(reply);
        None
    }
}

/// Parts of the state of a name.
fn view(db: &Connection, key: &Key, parts: &Parts, now: StoreTime) -> Result<View, Fault> {
    let head = StoredRecord::new(db, key, |_| false).head()?;
    view_of(db, key, &head, parts, now)
}

fn view_of(
    db: &Connection,
    key: &Key,
    head: &Head,
    parts: &Parts,
    now: StoreTime,
) -> Result<View, Fault> {
    let mut record = StoredRecord::new(db, key, |_| false);
    let holders = match head.body {
        Body::Leases(leases) if leases.used > 0 => match leases.sole {
            Some(holder) => vec![holder],
            None => record.holders()?,
        },
        _ => Vec::new(),
    };
    let environment = Environment { now };
    let lives = |holder: &&Holder| !environment.is_over(holder.end);
    let holder = holders.iter().find(lives);
    let mut view = View::of_head(key.clone(), head, holder, parts, now).map_err(mismatch)?;
    if let (Parts::Holder | Parts::Waiters, Some(holder)) = (parts, &mut view.holder) {
        holder.client = client_info(db, &key.space, holder.lease.client, now)?;
    }
    match parts {
        Parts::Waiters if view.queue_length > 0 => {
            for lease in record.first_waiting()? {
                let client = client_info(db, &key.space, lease.client, now)?;
                view.waiters.push(WaiterInfo { lease, client });
            }
        }
        Parts::Annotation(slot) | Parts::State(slot) => {
            let note = record.note(slot)?.filter(|note| now < note.until);
            let note = note.map(|note| (slot.clone(), (&note).into()));
            view.annotations.extend(note);
        }
        _ => {}
    }
    Ok(view)
}

/// What a client has said of itself.
fn client_info(
    db: &Connection,
    space: &Keyspace,
    client: ClientId,
    now: StoreTime,
) -> Result<Option<ClientInfo>, Fault> {
    let key = space.key(Name::of_client(client));
    let found = StoredRecord::new(db, &key, |_| false).description()?;
    let found = found.filter(|description| now < description.until);
    Ok(found.and_then(|description| ClientInfo::from_text(&description.text)))
}

/// The locks that are held.
fn held(
    db: &Connection,
    space: &Keyspace,
    [after, _]: &Position,
    now: StoreTime,
) -> Result<Step, Fault> {
    let (namespace, tenant) = (space.namespace().as_str(), space.tenant().as_str());
    let mut statement = db.prepare_cached(
        "SELECT name, value FROM heads WHERE namespace = ?1 AND tenant = ?2 AND name > ?3
         ORDER BY name LIMIT ?4",
    )?;
    let mut rows = statement.query(params![namespace, tenant, after, STEP])?;
    let (mut step, mut seen) = (Step::default(), 0);
    while let Some(row) = rows.next()? {
        let key = key(space, row)?;
        let head = match rows::head_of(row) {
            // It hides no lock.
            Err(Fault::Damaged(Damage::Latch, _)) => Ok(Head::default()),
            head => head,
        };
        let held = head.and_then(|head| match head.body {
            Body::Leases(_) => view_of(db, &key, &head, &Parts::Waiters, now).map(Some),
            _ => Ok(None),
        });
        let held = held.map_err(|fault| fault.of_name(&key.name))?;
        let held = held.filter(|view| view.holder.is_some());
        step.page.views.extend(held);
        seen += 1;
        step.next = (seen == STEP).then(|| [key.name.as_str().to_owned(), String::new()]);
    }
    Ok(step)
}

/// The notes other than values.
fn completions(
    db: &Connection,
    space: &Keyspace,
    [name, id]: &Position,
    now: StoreTime,
) -> Result<Step, Fault> {
    let (namespace, tenant) = (space.namespace().as_str(), space.tenant().as_str());
    let mut statement = db.prepare_cached(
        "SELECT name, id, value, place FROM members
         WHERE namespace = ?1 AND tenant = ?2 AND (name, id) > (?3, ?4)
           AND class = ?5 AND id <> ?6 AND until > ?7
         ORDER BY name, id LIMIT ?8",
    )?;
    let (value, now) = (Slot::Value.id(), signed(now.as_micros()));
    let mut rows = statement.query(params![namespace, tenant, name, id, NOTE, value, now, STEP])?;
    let (mut step, mut seen) = (Step::default(), 0);
    while let Some(row) = rows.next()? {
        let key = key(space, row)?;
        let (slot, note) = rows::note_of(row).map_err(|fault| fault.of_name(&key.name))?;
        seen += 1;
        step.next = (seen == STEP).then(|| [key.name.as_str().to_owned(), slot.id().into()]);
        let mut view = View::of(key);
        view.annotations.push((slot, (&note).into()));
        step.page.views.push(view);
    }
    Ok(step)
}

fn key(space: &Keyspace, row: &rusqlite::Row<'_>) -> Result<Key, Fault> {
    let name = Name::parse(rows::text(row, "name")?);
    Ok(space.key(name.map_err(|_| Damaged("name"))?))
}

/// The place of a view in a list. The ids of slots have another order.
fn order(view: &View) -> (&Name, Option<&Slot>) {
    let slot = view.annotations.first().map(|(slot, _)| slot);
    (&view.key.name, slot)
}
