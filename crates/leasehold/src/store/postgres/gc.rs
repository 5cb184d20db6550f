//! Garbage collection of heads and members.
//!
//! It goes through the tables in the order of their keys, a chunk at a time: an index by the ends would make every renewal
//! write to it.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::parameters::Parameter;

/// The number of rows checked in one run.
const CHUNK: i64 = 512;

/// The number of writes between two runs: half of [`CHUNK`], so that all rows are checked faster than new ones can be added.
const WRITES: usize = 256;

const END_OF_MEMBERS: &str = "
SELECT namespace, tenant, name, class::text AS of_class, id FROM leasehold.members
WHERE (namespace, tenant, name, class, id) > ($1, $2, $3, $4::smallint, $5)
ORDER BY namespace, tenant, name, class, id OFFSET $6 LIMIT 1";

/// A holder on which a transaction of a user relies has not ended.
const DELETE_MEMBERS: &str = "
DELETE FROM leasehold.members m
WHERE (m.namespace, m.tenant, m.name, m.class, m.id) > ($1, $2, $3, $4::smallint, $5)
    AND ($6::text IS NULL
        OR (m.namespace, m.tenant, m.name, m.class, m.id) <= ($6, $7, $8, $9::smallint, $10))
    AND CASE
        WHEN m.until IS NULL OR m.until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint THEN false
        WHEN m.class = 1 THEN leasehold.is_free(leasehold.key(m.namespace, m.tenant, m.name, 2))
        ELSE true
    END";

const END_OF_HEADS: &str = "
SELECT namespace, tenant, name FROM leasehold.heads
WHERE (namespace, tenant, name) > ($1, $2, $3)
ORDER BY namespace, tenant, name OFFSET $4 LIMIT 1";

/// A head is removed five minutes after its end, in case that the clock of the server is set back, or that of another server
/// is behind.
const DELETE_HEADS: &str = "
WITH gone AS (
    DELETE FROM leasehold.heads h
    WHERE (h.namespace, h.tenant, h.name) > ($1, $2, $3)
        AND ($4::text IS NULL OR (h.namespace, h.tenant, h.name) <= ($4, $5, $6))
        AND CASE
            WHEN h.until > ((extract(epoch FROM clock_timestamp()) - 300) * 1000000)::bigint THEN false
            WHEN EXISTS (
                SELECT FROM leasehold.members m
                WHERE m.namespace = h.namespace AND m.tenant = h.tenant AND m.name = h.name AND m.class = 1) THEN false
            ELSE leasehold.is_free(leasehold.key(h.namespace, h.tenant, h.name, 2))
        END
    RETURNING h.namespace, h.tenant, h.name
)
DELETE FROM leasehold.members m USING gone g
WHERE m.namespace = g.namespace AND m.tenant = g.tenant AND m.name = g.name AND m.class IN (2, 3)";

/// Decides when to collect garbage, and where.
#[derive(Debug)]
pub(super) struct GarbageCollector {
    writes: usize,
    position: Position,
}

/// The primary keys behind which the next run begins, by column.
#[derive(Clone, Debug)]
pub(super) struct Position {
    members: Vec<String>,
    heads: Vec<String>,
}

impl GarbageCollector {
    /// Starts at a random count, so that many processes with few writes each do their share.
    pub(super) fn new() -> Self {
        Self {
            writes: fastrand::usize(..WRITES),
            position: Position::first(),
        }
    }

    /// Where to run, if there were enough writes since the last time.
    pub(super) fn count_writes(&mut self, writes: usize) -> Option<Position> {
        self.writes = self.writes.saturating_add(writes);
        if self.writes < WRITES {
            return None;
        }
        self.writes = 0;
        Some(self.position.clone())
    }

    /// Goes on there the next time.
    pub(super) fn go_on(&mut self, position: Position) {
        self.position = position;
    }
}

impl Position {
    fn first() -> Self {
        Self {
            members: ["", "", "", "0", ""].map(str::to_owned).into(),
            heads: vec![String::new(); 3],
        }
    }

    /// Removes what has ended in the next chunk of each table. Returns where to go on.
    pub(super) async fn run(self, client: &Client) -> Result<Self, Error> {
        let members = collect(client, [END_OF_MEMBERS, DELETE_MEMBERS], &self.members).await?;
        let heads = collect(client, [END_OF_HEADS, DELETE_HEADS], &self.heads).await?;
        let first = Self::first();
        Ok(Self {
            members: members.unwrap_or(first.members),
            heads: heads.unwrap_or(first.heads),
        })
    }
}

/// Removes what has ended in the chunk of a table behind a key. Returns the last key of the chunk, unless it is the last
/// chunk.
async fn collect(
    client: &Client,
    [find_end, delete]: [&str; 2],
    after: &[String],
) -> Result<Option<Vec<String>>, Error> {
    let last = CHUNK - 1;
    let mut parameters: Vec<Parameter<'_>> = Vec::new();
    for column in after {
        parameters.push((column, Type::TEXT));
    }
    parameters.push((&last, Type::INT8));
    let found = client.query_typed(find_end, &parameters).await?;
    let mut end = None;
    if let Some(row) = found.first() {
        let columns = (0..after.len()).map(|at| row.try_get::<_, String>(at));
        end = Some(columns.collect::<Result<Vec<_>, _>>()?);
    }
    let columns: Vec<Option<&String>> = match &end {
        Some(key) => key.iter().map(Some).collect(),
        None => vec![None; after.len()],
    };
    parameters.pop();
    for column in &columns {
        parameters.push((column, Type::TEXT));
    }
    client.execute_typed(delete, &parameters).await?;
    drop(parameters);
    Ok(end)
}
