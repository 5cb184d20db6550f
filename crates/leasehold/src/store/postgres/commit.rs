//! The second round trip of a transaction on the server: the changes and the commit.

use futures_util::future::{BoxFuture, FutureExt as _, join_all};
use leasehold_core::{ClientId, StoreTime};
use tokio_postgres::{Client, Error};

use super::cache::Cached;
use super::error::has_ended;
use super::parameters::{Columns, Parameter, classes, numbers, texts};
use super::records::LoadedRecords;
use crate::store::api::Key;
use crate::store::tables;

/// Locks names in the order of their locks, so that nobody waits in a circle.
pub(super) const LOCK: &str = "
SELECT pg_advisory_xact_lock(l.key) FROM (
    SELECT DISTINCT leasehold.key(n.namespace, n.tenant, n.name, $4) AS key
    FROM unnest($1::text[], $2::text[], $3::text[]) AS n (namespace, tenant, name)
    ORDER BY key) AS l";

/// The seed of the locks of records.
pub(super) const RECORDS: i64 = 1;

/// The seed of the locks of transactions of users.
pub(super) const RELIED_ON: i64 = 2;

const PUT_HEADS: &str = "
INSERT INTO leasehold.heads (namespace, tenant, name, value, until)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
ON CONFLICT (namespace, tenant, name) DO UPDATE SET value = excluded.value, until = excluded.until";

const CLEAR: &str = "
DELETE FROM leasehold.members m
USING unnest($1::text[], $2::text[], $3::text[], $4::smallint[]) AS c (namespace, tenant, name, class)
WHERE m.namespace = c.namespace AND m.tenant = c.tenant AND m.name = c.name AND m.class = c.class";

const REMOVE: &str = "
DELETE FROM leasehold.members m
USING unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[]) AS r (namespace, tenant, name, class, id)
WHERE m.namespace = r.namespace AND m.tenant = r.tenant AND m.name = r.name AND m.class = r.class AND m.id = r.id";

const PUT: &str = "
INSERT INTO leasehold.members (namespace, tenant, name, class, id, place, value, until)
SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::bigint[], $7::text[], $8::bigint[])
ON CONFLICT (namespace, tenant, name, class, id) DO UPDATE
SET place = excluded.place, value = excluded.value, until = excluded.until";

const NOTIFY: &str = "SELECT pg_notify(n.channel, n.payload) FROM unnest($1::text[], $2::text[]) AS n (channel, payload)";

/// The channel on which a client is notified.
pub(super) fn channel(client: ClientId) -> String {
    format!("leasehold_{client}")
}

/// Sends the changes and the commit, and waits for their replies. The inner error is that of a change, so that nothing is
/// committed.
pub(super) async fn commit(
    client: &Client,
    records: &LoadedRecords,
) -> Result<Result<(), Error>, Error> {
    let writes = Writes::of(records);
    let mut sent = writes.send(client);
    sent.push(client.batch_execute("COMMIT").boxed());
    let mut replies = join_all(sent).await;
    let committed = replies.pop().unwrap_or(Ok(()));
    match replies.into_iter().find_map(Result::err) {
        // After an error, the commit is a rollback. A pooler that has lost the server may have passed it on before.
        Some(error) if !has_ended(&error) => Ok(Err(error)),
        Some(error) => Err(error),
        None => committed.map(Ok),
    }
}

/// The rows of a statement, by column.
#[derive(Default)]
struct Batch<'a> {
    keys: Columns<'a>,
    classes: Vec<i16>,
    ids: Vec<&'a str>,
    places: Vec<Option<i64>>,
    values: Vec<String>,
    untils: Vec<Option<i64>>,
}

/// The rows to write, by statement.
#[derive(Default)]
struct Writes<'a> {
    heads: Batch<'a>,
    cleared: Batch<'a>,
    removed: Batch<'a>,
    put: Batch<'a>,
    channels: Vec<String>,
    payloads: Vec<&'a str>,
}

impl<'a> Writes<'a> {
    fn of(records: &'a LoadedRecords) -> Self {
        let mut all = Self::default();
        let mut sorted: Vec<_> = records.records.iter().collect();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        for (key, cached) in sorted {
            all.add(key, cached);
        }
        for (client, messages) in &records.messages {
            for message in messages {
                all.channels.push(channel(*client));
                all.payloads.push(message);
            }
        }
        all
    }

    fn add(&mut self, key: &'a Key, cached: &'a Cached) {
        let changed = &cached.changed;
        let until = |until: StoreTime| tables::signed(until.as_micros());
        if let Some(head) = &changed.head {
            self.heads.keys.push(key);
            self.heads.values.push(head.to_text());
            self.heads.untils.push(Some(until(head.kept_until())));
        }
        for class in &changed.cleared {
            self.cleared.keys.push(key);
            self.cleared.classes.push(i16::from(*class));
        }
        for ((class, id), row) in &changed.members {
            let rows = match row {
                Some(_) => &mut self.put,
                None => &mut self.removed,
            };
            rows.keys.push(key);
            rows.classes.push(i16::from(*class));
            rows.ids.push(id);
            if let Some(row) = row {
                rows.places.push(tables::place(row));
                rows.values.push(row.to_text());
                rows.untils.push(row.kept_until().map(until));
            }
        }
    }

    /// The statements that are needed, in their order. They are sent when they are first polled.
    fn send<'c: 's, 's>(&'s self, client: &'c Client) -> Vec<BoxFuture<'s, Result<(), Error>>> {
        let mut sent = Vec::new();
        let mut send = |sql: &'static str, rows: &'s Batch<'a>, more: Vec<Parameter<'s>>| {
            if rows.keys.names.is_empty() {
                return;
            }
            let mut parameters = rows.keys.parameters().to_vec();
            parameters.extend(more);
            sent.push(async move { client.query_typed(sql, &parameters).await.map(drop) }.boxed());
        };
        let (heads, cleared, removed, put) = (&self.heads, &self.cleared, &self.removed, &self.put);
        let columns = vec![texts(&heads.values), numbers(&heads.untils)];
        send(PUT_HEADS, heads, columns);
        send(CLEAR, cleared, vec![classes(&cleared.classes)]);
        let columns = vec![classes(&removed.classes), texts(&removed.ids)];
        send(REMOVE, removed, columns);
        let columns = vec![
            classes(&put.classes),
            texts(&put.ids),
            numbers(&put.places),
            texts(&put.values),
            numbers(&put.untils),
        ];
        send(PUT, put, columns);
        if !self.channels.is_empty() {
            let parameters = [texts(&self.channels), texts(&self.payloads)];
            sent.push(
                async move { client.query_typed(NOTIFY, &parameters).await.map(drop) }.boxed(),
            );
        }
        sent
    }
}
