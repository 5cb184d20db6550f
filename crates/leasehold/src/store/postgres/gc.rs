//! Garbage collection of heads and members.
//!
//! It goes through the tables in the order of their keys, a chunk at a time: an index by the ends would make every renewal
//! write to it.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row};

use super::parameters::Parameter;

/// The number of rows checked in one run.
const CHUNK: i64 = 512;

/// The number of writes between two runs: half of [`CHUNK`], so that all rows are checked faster than new ones can be added.
const WRITES: usize = 256;

const END_OF_MEMBERS: &str = "
SELECT namespace, tenant, name, class, id FROM leasehold.members
WHERE (namespace, tenant, name, class, id) > ($1, $2, $3, $4, $5)
ORDER BY namespace, tenant, name, class, id OFFSET $6 LIMIT 1";

/// A holder on which a transaction of a user relies has not ended.
const DELETE_MEMBERS: &str = "
DELETE FROM leasehold.members m
WHERE (m.namespace, m.tenant, m.name, m.class, m.id) > ($1, $2, $3, $4, $5)
    AND ($6::text IS NULL OR (m.namespace, m.tenant, m.name, m.class, m.id) <= ($6, $7, $8, $9, $10))
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

/// The rows behind which the next run begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Position {
    members: ([String; 3], i16, String),
    heads: [String; 3],
}

impl GarbageCollector {
    /// Starts at a random count, so that many processes with few writes each do their share.
    pub(super) fn new() -> Self {
        Self {
            writes: fastrand::usize(..WRITES),
            position: Position::default(),
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
    /// Removes what has ended in the next chunk of each table. Returns where to go on.
    pub(super) async fn run(self, client: &Client) -> Result<Self, Error> {
        let last = CHUNK - 1;
        let ([namespace, tenant, name], class, id) = &self.members;
        let mut parameters: Vec<Parameter<'_>> = vec![
            (namespace, Type::TEXT),
            (tenant, Type::TEXT),
            (name, Type::TEXT),
            (class, Type::INT2),
            (id, Type::TEXT),
            (&last, Type::INT8),
        ];
        let end = client.query_typed(END_OF_MEMBERS, &parameters).await?;
        let end = end
            .first()
            .map(|row| Ok::<_, Error>((key(row)?, row.try_get(3)?, row.try_get(4)?)));
        let end: Option<([String; 3], i16, String)> = end.transpose()?;
        let keys = end.as_ref().map(|(key, ..)| key);
        let keys: [Option<&String>; 3] = [0, 1, 2].map(|at| keys.and_then(|key| key.get(at)));
        let (last_class, last_id) = (
            end.as_ref().map(|(_, class, _)| *class),
            end.as_ref().map(|(.., id)| id),
        );
        parameters.pop();
        for key in &keys {
            parameters.push((key, Type::TEXT));
        }
        parameters.push((&last_class, Type::INT2));
        parameters.push((&last_id, Type::TEXT));
        client.execute_typed(DELETE_MEMBERS, &parameters).await?;
        let heads = Self::run_heads(&self.heads, client).await?;
        Ok(Self {
            members: end.clone().unwrap_or_default(),
            heads,
        })
    }

    async fn run_heads(after: &[String; 3], client: &Client) -> Result<[String; 3], Error> {
        let last = CHUNK - 1;
        let mut parameters: Vec<Parameter<'_>> = Vec::with_capacity(6);
        for part in after {
            parameters.push((part, Type::TEXT));
        }
        parameters.push((&last, Type::INT8));
        let end = client.query_typed(END_OF_HEADS, &parameters).await?;
        let end = end.first().map(key).transpose()?;
        let keys: [Option<&String>; 3] =
            [0, 1, 2].map(|at| end.as_ref().and_then(|key| key.get(at)));
        parameters.pop();
        for key in &keys {
            parameters.push((key, Type::TEXT));
        }
        client.execute_typed(DELETE_HEADS, &parameters).await?;
        Ok(end.clone().unwrap_or_default())
    }
}

fn key(row: &Row) -> Result<[String; 3], Error> {
    Ok([row.try_get(0)?, row.try_get(1)?, row.try_get(2)?])
}
