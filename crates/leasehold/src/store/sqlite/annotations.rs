//! Annotations as rows.

use std::time::Duration;

use leasehold_core::{
    Annotation, AnnotationKind, CompletionKey, LeaseId, Loss, Name, StoreTime, Token, annotation,
};
use rusqlite::{Connection, Row, params};

use super::error::Fault;
use super::records;
use super::row::{columns, get, signed};
use crate::store::api::{Key, Keyspace, View};
use crate::{Error, ErrorKind};

/// The number of completions per page, so that a long list does not delay other commands.
const PAGE: u32 = 1_000;

/// Numbers of kinds, in the order of the kinds.
const VALUE: u8 = 0;
const COMPLETION: u8 = 1;
const KEY_COMPLETION: u8 = 2;

/// The position of a completion in the list: its name, and the columns of its kind.
#[derive(Debug)]
pub(super) struct Position {
    name: String,
    kind: u8,
    completion_key: String,
}

impl Position {
    /// The position before all completions.
    pub(super) const fn start() -> Self {
        Self {
            name: String::new(),
            kind: VALUE,
            completion_key: String::new(),
        }
    }
}

/// Stores an annotation by the rule, inside a transaction.
pub(super) fn annotate(
    db: &Connection,
    key: &Key,
    kind: &AnnotationKind,
    annotation: &Annotation,
    keep: Duration,
    now: StoreTime,
) -> Result<Result<(), Loss>, Fault> {
    let loaded = records::load(db, key)?;
    let mut stored = None;
    let annotated = annotation::annotate(&loaded.record, &mut stored, annotation.clone(), now);
    if let Some(stored) = stored {
        save(db, key, kind, &stored, now.after_span(keep))?;
    }
    Ok(annotated)
}

/// Removes an annotation. Returns whether there was one. An expired one is garbage.
pub(super) fn remove(
    db: &Connection,
    key: &Key,
    kind: &AnnotationKind,
    now: StoreTime,
) -> Result<bool, Fault> {
    let mut statement = db.prepare_cached(
        "DELETE FROM annotations
         WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND kind = ?4 AND completion_key = ?5
           AND until > ?6",
    )?;
    let (namespace, tenant, name) = columns(key);
    let (kind, completion_key) = kind_columns(kind);
    let now = signed(now.as_micros());
    let removed = statement.execute(params![namespace, tenant, name, kind, completion_key, now])?;
    Ok(removed > 0)
}

/// The annotation of a name.
pub(super) fn load(
    db: &Connection,
    key: &Key,
    kind: &AnnotationKind,
    now: StoreTime,
) -> Result<Option<Annotation>, Fault> {
    let mut statement = db.prepare_cached(
        "SELECT client, number, token, text FROM annotations
         WHERE namespace = ?1 AND tenant = ?2 AND name = ?3 AND kind = ?4 AND completion_key = ?5
           AND until > ?6",
    )?;
    let (namespace, tenant, name) = columns(key);
    let (kind, completion_key) = kind_columns(kind);
    let now = signed(now.as_micros());
    let mut rows = statement.query(params![namespace, tenant, name, kind, completion_key, now])?;
    rows.next()?.map(parse).transpose()
}

/// The completions of a keyspace, ordered by name and kind: one page, which starts after a position. Also returns the
/// position after which the next page starts; `None` after the last page.
pub(super) fn list(
    db: &Connection,
    space: &Keyspace,
    after: &Position,
    now: StoreTime,
) -> Result<(Vec<View>, Option<Position>), Fault> {
    let mut statement = db.prepare_cached(
        "SELECT name, kind, completion_key, client, number, token, text FROM annotations
         WHERE namespace = ?1 AND tenant = ?2 AND (name, kind, completion_key) > (?3, ?4, ?5)
           AND kind <> ?6 AND until > ?7
         ORDER BY name, kind, completion_key LIMIT ?8",
    )?;
    let mut rows = statement.query(params![
        space.namespace().as_str(),
        space.tenant().as_str(),
        after.name,
        after.kind,
        after.completion_key,
        VALUE,
        signed(now.as_micros()),
        PAGE
    ])?;
    let (mut found, mut last) = (Vec::new(), None);
    while let Some(row) = rows.next()? {
        let position = Position {
            name: get(row, "name")?,
            kind: get(row, "kind")?,
            completion_key: get(row, "completion_key")?,
        };
        let name = Name::parse(&position.name).map_err(|_| Fault::Unreadable("its name"))?;
        let key = space.key(name.clone());
        let parsed = kind_of(&position).and_then(|kind| Ok((kind, parse(row)?)));
        let annotation = parsed.map_err(|fault| Error::from(fault).for_lock(&name))?;
        let mut view = View::of(key);
        view.annotations.push(annotation);
        found.push(view);
        last = Some(position);
    }
    let is_full = u32::try_from(found.len()) == Ok(PAGE);
    Ok((found, last.filter(|_| is_full)))
}

fn save(
    db: &Connection,
    key: &Key,
    kind: &AnnotationKind,
    annotation: &Annotation,
    until: StoreTime,
) -> Result<(), Fault> {
    let mut statement = db.prepare_cached(
        "INSERT INTO annotations
             (namespace, tenant, name, kind, completion_key, client, number, token, text, until)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (namespace, tenant, name, kind, completion_key) DO UPDATE
         SET client = excluded.client, number = excluded.number, token = excluded.token,
             text = excluded.text, until = excluded.until",
    )?;
    let (namespace, tenant, name) = columns(key);
    let (kind, completion_key) = kind_columns(kind);
    statement.execute(params![
        namespace,
        tenant,
        name,
        kind,
        completion_key,
        annotation.lease.client.to_string(),
        annotation.lease.number.cast_signed(),
        signed(annotation.token.get()),
        &*annotation.text,
        signed(until.as_micros()),
    ])?;
    Ok(())
}

fn kind_columns(kind: &AnnotationKind) -> (u8, &str) {
    match kind {
        AnnotationKind::Value => (VALUE, ""),
        AnnotationKind::Completion => (COMPLETION, ""),
        AnnotationKind::KeyCompletion(key) => (KEY_COMPLETION, key.as_str()),
    }
}

fn kind_of(position: &Position) -> Result<AnnotationKind, Fault> {
    match (position.kind, position.completion_key.as_str()) {
        (COMPLETION, "") => Ok(AnnotationKind::Completion),
        (KEY_COMPLETION, key) => match CompletionKey::parse(key) {
            Ok(key) => Ok(AnnotationKind::KeyCompletion(key)),
            Err(_) => Err(damaged("completion_key")),
        },
        _ => Err(damaged("kind")),
    }
}

fn parse(row: &Row<'_>) -> Result<Annotation, Fault> {
    let read = |column| row.get::<_, String>(column).map_err(|_| damaged(column));
    let number = |column| row.get::<_, i64>(column).map_err(|_| damaged(column));
    let token = u64::try_from(number("token")?).ok().and_then(Token::new);
    Ok(Annotation {
        lease: LeaseId {
            client: read("client")?.parse().map_err(|_| damaged("client"))?,
            number: number("number")?.cast_unsigned(),
        },
        token: token.ok_or_else(|| damaged("token"))?,
        text: read("text")?.into(),
    })
}

/// The fault of an annotation with a value that leasehold did not write. A forced release does not remove it.
fn damaged(column: &str) -> Fault {
    let message = format!("its completion record or value is damaged ({column}); remove it");
    Error::new(ErrorKind::Store, message).into()
}
