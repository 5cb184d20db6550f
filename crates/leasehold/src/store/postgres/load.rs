//! Loads parts of records, and lists of them.

use leasehold_core::record::{Body, Op};
use leasehold_core::{ClientId, Name, StoreTime};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};

use super::cache::{Member, WAITERS};
use super::need::{Need, Want};
use super::parameters::{Columns, Parameter, classes, numbers, texts};
use super::records::{LoadedRecords, ROWS_MAX};
use crate::store::api::{Key, Keyspace, Request, View};
use crate::store::rows::class::{ARRIVAL, DESCRIPTION, HOLDER, NOTE, WAITER, WATCHER};
use crate::store::rows::read_head;

/// Rows of the result that are no members.
const HEAD: i16 = 0;
const RELIED_ON: i16 = -1;
const COUNT: i16 = -2;
const CLOCK: i16 = -3;
const QUEUED: i16 = -4;

/// Parts of records in one state, with the time. A snapshot is taken when it begins, after the locks of the names.
const LOAD: &str = "
WITH keys AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
        WITH ORDINALITY AS k (namespace, tenant, name, place, at)
)
SELECT 0::bigint AS at, (-3)::smallint AS class, ''::text AS id,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS place, ''::text AS value, false AS flag
UNION ALL
SELECT k.at, 0::smallint, '', NULL, h.value, false
FROM keys k JOIN leasehold.heads h ON h.namespace = k.namespace AND h.tenant = k.tenant AND h.name = k.name
UNION ALL
SELECT k.at, (-1)::smallint, '', NULL, '',
    NOT pg_try_advisory_xact_lock(leasehold.key(k.namespace, k.tenant, k.name, 2))
FROM keys k WHERE $5
UNION ALL
SELECT k.at, (-4)::smallint, w.id, w.place, w.value,
    NOT leasehold.is_free(leasehold.key('', '', split_part(w.id, ':', 1), 3))
FROM keys k CROSS JOIN LATERAL (
    SELECT m.id, m.place, m.value FROM leasehold.members m
    WHERE m.namespace = k.namespace AND m.tenant = k.tenant AND m.name = k.name AND m.place >= k.place
    ORDER BY m.place LIMIT $6) w
UNION ALL
SELECT k.at, m.class, m.id, m.place, m.value, false
FROM unnest($7::bigint[], $8::smallint[], $9::text[]) r (at, class, id)
JOIN keys k ON k.at = r.at
JOIN leasehold.members m ON m.namespace = k.namespace AND m.tenant = k.tenant AND m.name = k.name
    AND m.class = r.class AND m.id = r.id
UNION ALL
SELECT k.at, m.class, m.id, m.place, m.value, false
FROM unnest($10::bigint[], $11::smallint[]) c (at, class)
JOIN keys k ON k.at = c.at
JOIN leasehold.members m ON m.namespace = k.namespace AND m.tenant = k.tenant AND m.name = k.name
    AND m.class = c.class
WHERE m.class <> 6 OR m.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
UNION ALL
SELECT k.at, (-2)::smallint, '', (
    SELECT count(*) FROM leasehold.members m
    WHERE m.namespace = k.namespace AND m.tenant = k.tenant AND m.name = k.name
        AND m.place >= n.low AND m.place < n.high), '', false
FROM unnest($12::bigint[], $13::bigint[], $14::bigint[]) n (at, low, high)
JOIN keys k ON k.at = n.at";

const LISTENS: &str = "SELECT NOT leasehold.is_free(leasehold.key('', '', $1, 3))";

const HEADS: &str = "
SELECT name, value FROM leasehold.heads
WHERE namespace = $1 AND tenant = $2 AND name > $3 ORDER BY name LIMIT $4";

const NOTES: &str = "
SELECT name, id, value FROM leasehold.members
WHERE class = 4 AND namespace = $1 AND tenant = $2 AND (name, id) > ($3, $4)
    AND id <> 'value' AND until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
ORDER BY name, id LIMIT $5";

/// What is loaded in one statement.
#[derive(Debug, Default)]
pub(super) struct Load {
    keys: Vec<Key>,
    /// The place from which the waiters of each key are loaded.
    places: Vec<Option<i64>>,
    waiters_max: usize,
    /// Whether to look for transactions of users, and to keep back new ones.
    finds_relied_on: bool,
    members: Vec<(i64, u8, String)>,
    classes: Vec<(i64, u8)>,
    counts: Vec<(i64, i64, i64)>,
}

impl Load {
    /// What the rule is likely to need for the requests of these names, which are sorted.
    pub(super) fn of_requests<'a>(
        keys: Vec<Key>,
        requests: impl Iterator<Item = &'a Request>,
    ) -> Self {
        let mut load = Self {
            places: vec![Some(0); keys.len()],
            waiters_max: WAITERS,
            finds_relied_on: true,
            classes: (1..).take(keys.len()).map(|at| (at, WATCHER)).collect(),
            ..Self::default()
        };
        for Request { key, op, .. } in requests {
            let Ok(index) = keys.binary_search(key) else {
                continue;
            };
            let at = position(index);
            if let Some(lease) = op.lease() {
                load.members.push((at, HOLDER, lease.to_string()));
                load.members.push((at, WAITER, lease.to_string()));
            }
            if let Some(slot) = op.slot() {
                load.members.push((at, NOTE, slot.id().into_owned()));
            }
            if let Op::Arrive { id, .. } = op {
                load.members.push((at, ARRIVAL, id.as_str().to_owned()));
            }
        }
        load.members.sort_unstable();
        load.members.dedup();
        load.keys = keys;
        load
    }

    fn of_part(key: &Key, want: &Want) -> Self {
        let mut load = Self {
            keys: vec![key.clone()],
            places: vec![None],
            ..Self::default()
        };
        match want {
            Want::Head => {}
            Want::Member(class, id) => load.members.push((1, *class, id.clone())),
            Want::Class(class) => load.classes.push((1, *class)),
            Want::Waiters(place, max) => {
                (load.places, load.waiters_max) = (vec![Some(*place)], *max);
            }
            Want::Count(from, to) => load.counts.push((1, *from, *to)),
        }
        load
    }

    pub(super) async fn run(
        self,
        client: &Client,
        records: &mut LoadedRecords,
    ) -> Result<(), Error> {
        let columns = Columns::of(self.keys.iter());
        let [namespaces, tenants, names] = columns.parameters();
        let max = i64::try_from(self.waiters_max).unwrap_or(i64::MAX);
        let members = self.members.iter();
        let members = members.map(|(at, class, _)| (*at, i16::from(*class)));
        let (of_member, member_classes): (Vec<_>, Vec<_>) = members.unzip();
        let ids: Vec<_> = self.members.iter().map(|(_, _, id)| id.as_str()).collect();
        let whole = self.classes.iter();
        let whole = whole.map(|(at, class)| (*at, i16::from(*class)));
        let (of_class, all_of): (Vec<_>, Vec<_>) = whole.unzip();
        let of_count: Vec<_> = self.counts.iter().map(|(at, ..)| *at).collect();
        let lows: Vec<_> = self.counts.iter().map(|(_, low, _)| *low).collect();
        let highs: Vec<_> = self.counts.iter().map(|(_, _, high)| *high).collect();
        let parameters: [Parameter<'_>; 14] = [
            namespaces,
            tenants,
            names,
            numbers(&self.places),
            (&self.finds_relied_on, Type::BOOL),
            (&max, Type::INT8),
            numbers(&of_member),
            classes(&member_classes),
            texts(&ids),
            numbers(&of_class),
            classes(&all_of),
            numbers(&of_count),
            numbers(&lows),
            numbers(&highs),
        ];
        let rows = client.query_typed(LOAD, &parameters).await?;
        self.fill(&rows, records)
    }

    /// Notes what is absent unless it is in the result.
    fn mark_absent(&self, records: &mut LoadedRecords) {
        for (index, key) in self.keys.iter().enumerate() {
            let cached = records.records.entry(key.clone()).or_default();
            cached.head = Some(Ok(Default::default()));
            let at = position(index);
            for (_, class, id) in self.members.iter().filter(|(of, ..)| *of == at) {
                cached.members.entry((*class, id.clone())).or_insert(None);
            }
            let classes = self.classes.iter().filter(|(of, _)| *of == at);
            cached.complete.extend(classes.map(|(_, class)| *class));
        }
    }

    /// Adds the rows of the result, and that there are no others.
    fn fill(&self, rows: &[Row], records: &mut LoadedRecords) -> Result<(), Error> {
        self.mark_absent(records);
        let mut found = vec![(0, 0); self.keys.len()];
        for row in rows {
            let (at, class): (i64, i16) = (row.try_get(0)?, row.try_get(1)?);
            let place: Option<i64> = row.try_get(3)?;
            if class == CLOCK {
                if records.now == StoreTime::default() {
                    let micros = place.and_then(|micros| u64::try_from(micros).ok());
                    records.now = StoreTime::from_micros(micros.unwrap_or_default());
                }
                continue;
            }
            let index = usize::try_from(at - 1).unwrap_or(usize::MAX);
            let (Some(key), Some((waiters, last))) = (self.keys.get(index), found.get_mut(index))
            else {
                continue;
            };
            let cached = records.records.entry(key.clone()).or_default();
            let (id, value, flag): (String, String, bool) =
                (row.try_get(2)?, row.try_get(4)?, row.try_get(5)?);
            match (class, u8::try_from(class)) {
                (HEAD, _) => cached.head = Some(read_head(&value)),
                (RELIED_ON, _) => cached.is_relied_on = flag,
                (COUNT, _) => {
                    let count = place.and_then(|count| u32::try_from(count).ok());
                    let count = count.unwrap_or(u32::MAX);
                    let range = self.counts.iter().find(|(of, ..)| *of == at);
                    let counted = range.map(|(_, from, to)| ((*from, *to), count));
                    cached.counts.extend(counted);
                }
                (QUEUED, _) => {
                    let at = place.unwrap_or_default();
                    (*waiters, *last) = (*waiters + 1, at);
                    cached.places.insert(at, id.clone());
                    let client = client_of(&id).map(|client| (client, flag));
                    records.alive.extend(client);
                    let member = Member { value, place };
                    cached.members.insert((WAITER, id), Some(member));
                }
                (_, Ok(class)) => {
                    let member = Member { value, place };
                    cached.members.insert((class, id), Some(member));
                }
                (_, Err(_)) => {}
            }
        }
        for ((key, place), (waiters, last)) in self.keys.iter().zip(&self.places).zip(found) {
            if let (Some(_), Some(cached)) = (place, records.records.get_mut(key)) {
                cached.known_to = match waiters < self.waiters_max {
                    true => i64::MAX,
                    false => last.saturating_add(1),
                };
            }
        }
        Ok(())
    }
}

/// Loads what an operation or a query needs.
pub(super) async fn load(
    client: &Client,
    need: Need,
    records: &mut LoadedRecords,
) -> Result<(), Error> {
    match need {
        Need::Part(key, want) => Load::of_part(&key, &want).run(client, records).await,
        Need::Client(id) => {
            let text = id.to_string();
            let parameters: [Parameter<'_>; 1] = [(&text, Type::TEXT)];
            for row in client.query_typed(LISTENS, &parameters).await? {
                records.alive.insert(id, row.try_get(0)?);
            }
            Ok(())
        }
        Need::Heads(space, after) => load_heads(client, &space, &after, records).await,
        Need::Completions(space, after) => {
            let behind = [after.0.as_str(), after.1.as_str()];
            let rows = list(client, NOTES, &space, &behind).await?;
            let rows = rows.iter();
            let rows = rows.map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)));
            records.notes = Some(rows.collect::<Result<_, Error>>()?);
            Ok(())
        }
    }
}

/// The next rows of a list of a keyspace, behind these values.
async fn list(
    client: &Client,
    sql: &str,
    space: &Keyspace,
    behind: &[&str],
) -> Result<Vec<Row>, Error> {
    let space = [space.namespace().as_str(), space.tenant().as_str()];
    let max = position(ROWS_MAX - 1);
    let mut parameters: Vec<Parameter<'_>> = Vec::new();
    for text in space.iter().chain(behind) {
        parameters.push((text, Type::TEXT));
    }
    parameters.push((&max, Type::INT8));
    client.query_typed(sql, &parameters).await
}

/// Loads heads, and what is listed of locks: their holders, their waiters, and the descriptions of the clients of both.
async fn load_heads(
    client: &Client,
    space: &Keyspace,
    after: &str,
    records: &mut LoadedRecords,
) -> Result<(), Error> {
    let rows = list(client, HEADS, space, &[after]).await?;
    let rows = rows.iter();
    let rows = rows.map(|row| Ok((row.try_get(0)?, row.try_get(1)?)));
    let rows: Vec<(String, String)> = rows.collect::<Result<_, Error>>()?;
    let mut locks = Load {
        waiters_max: View::WAITERS_MAX,
        ..Load::default()
    };
    let mut clients = Vec::new();
    for (name, value) in &rows {
        let (Ok(name), Ok(head)) = (Name::parse(name), read_head(value)) else {
            continue;
        };
        let Body::Leases(leases) = head.body else {
            continue;
        };
        match leases.sole {
            Some(holder) => clients.push(holder.lease.client),
            None => locks.classes.push((position(locks.keys.len()), HOLDER)),
        }
        locks.places.push((head.queue.len > 0).then_some(0));
        locks.keys.push(space.key(name));
    }
    records.heads = Some(rows);
    if locks.keys.is_empty() {
        return Ok(());
    }
    locks.run(client, records).await?;
    let members = records.records.values().flat_map(|it| it.members.keys());
    clients.extend(members.filter_map(|(_, lease)| client_of(lease)));
    clients.sort_unstable();
    clients.dedup();
    let mut descriptions = Load::default();
    for (client, at) in clients.into_iter().zip(1..) {
        descriptions.keys.push(space.key(Name::of_client(client)));
        descriptions.places.push(None);
        descriptions.members.push((at, DESCRIPTION, String::new()));
    }
    descriptions.run(client, records).await
}

/// The client of a lease.
fn client_of(lease: &str) -> Option<ClientId> {
    lease.split(':').next()?.parse().ok()
}

/// The number of a key in the arrays of a statement.
fn position(index: usize) -> i64 {
    i64::try_from(index).map_or(i64::MAX, |index| index.saturating_add(1))
}
