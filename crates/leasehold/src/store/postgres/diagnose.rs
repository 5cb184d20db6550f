//! Collects the facts about a database for [`doctor`](crate::doctor). Changes nothing, and sends only simple queries, which
//! every pooler passes on.

use std::collections::BTreeMap;
use std::time::SystemTime;

use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{Client, Error, SimpleQueryMessage};

use super::address::Address;
use super::connection::Connection;
use super::error::describe;
use super::rights::RIGHTS;
use crate::Result;
use crate::store::diagnose::{
    CLOCK_SAMPLES, ClockFacts, DatabaseFacts, Fields, Link, Standby, TableFacts,
};
use crate::store::options::OpenOptions;

const SERVER: &str = "
    SELECT current_user AS user, current_database() AS database, pg_is_in_recovery() AS in_recovery,
           has_database_privilege(current_database(), 'CREATE') AS may_create,
           (SELECT sum(numbackends) FROM pg_catalog.pg_stat_database) AS connections";

const SETTINGS: &str = "
    SELECT name, setting FROM pg_catalog.pg_settings
    WHERE name IN ('server_version_num', 'fsync', 'full_page_writes', 'synchronous_standby_names',
        'max_connections', 'superuser_reserved_connections', 'reserved_connections', 'autovacuum',
        'idle_in_transaction_session_timeout', 'default_transaction_read_only')";

/// Without backups and subscribers. The state is null for a user that may not read statistics.
const STANDBYS: &str = "
    SELECT r.application_name AS name, r.state, r.sync_state FROM pg_catalog.pg_stat_replication AS r
    WHERE r.state IS DISTINCT FROM 'backup' AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_replication_slots AS s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')";

const TABLES: &str = "
    SELECT n.nspname || '.' || c.relname AS name, c.relpersistence = 'p' AS is_logged,
           array_to_string(c.reloptions, ' ') AS options, s.n_live_tup AS rows, s.n_dead_tup AS dead_rows,
           pg_total_relation_size(c.oid) AS size
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_stat_all_tables AS s ON s.relid = c.oid
    WHERE n.nspname = 'leasehold' AND c.relkind = 'r' ORDER BY c.relname";

const VERSION: &str = "SELECT version FROM leasehold.version";

const PID: &str = "SELECT pg_backend_pid() AS pid";

const CLOCK: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now";

/// The value of `reloptions` with which a table is not vacuumed.
const UNVACUUMED: [&str; 2] = ["autovacuum_enabled=false", "autovacuum_enabled=off"];

/// Collects the facts about the database that a URL names.
///
/// # Errors
///
/// As for [`open`](super::super::open()), except for a server that can be reached but cannot keep locks: the facts are about
/// that.
pub(in crate::store) async fn diagnose(url: &str, options: &OpenOptions) -> Result<DatabaseFacts> {
    let mut address = Address::parse(url, options)?;
    if let [alone] = &mut address.hosts.configs[..] {
        // A standby alone is what is wrong, not a reason to look no further.
        alone.target_session_attrs(TargetSessionAttrs::Any);
    }
    let facts = collect(&address).await;
    facts.map_err(|error| error.at_store(&address))
}

async fn collect(address: &Address) -> Result<DatabaseFacts> {
    let first = Connection::open(&address.tls, &address.hosts, None).await?;
    let second = Connection::open(&address.tls, &address.hosts, None).await?;
    let connections = [&first.client, &second.client];
    let facts = facts(address, connections).await;
    facts.map_err(describe)
}

async fn facts(address: &Address, connections: [&Client; 2]) -> Result<DatabaseFacts, Error> {
    let mut reader = Reader {
        client: connections[0],
        missing: Vec::new(),
    };
    let server = reader.rows("the server", SERVER).await?.into_iter().next();
    let settings = reader.rows("the settings", SETTINGS).await?;
    let standbys = reader.rows("the standbys", STANDBYS).await?;
    let tables = reader.rows("the tables", TABLES).await?;
    let missing_rights = missing_rights(&mut reader, &tables).await?;
    let is_hidden = standbys.iter().any(|it| !it.contains_key("sync_state"));
    if is_hidden {
        let hidden = "the states of the standbys (hidden from this user)";
        reader.missing.push(hidden.to_owned());
    }
    // Without the right to read it, it is one of the missing rights.
    let may_read = !tables.is_empty() && missing_rights.is_empty();
    let version = match may_read {
        true => reader.rows("the version of the schema", VERSION).await?,
        false => Vec::new(),
    };
    let clock = clock(&mut reader).await?;
    let link = link(connections, address.listen.is_some()).await?;
    let mut settings = Fields(settings.into_iter().filter_map(pair).collect());
    // That of the transactions of the store, whatever the server has for others.
    let commit = address.synchronous_commit.clone();
    settings.0.insert("synchronous_commit".to_owned(), commit);
    Ok(DatabaseFacts {
        name: address.to_string(),
        server: Fields(server.unwrap_or_default()),
        settings,
        standbys: standbys.into_iter().map(Standby::of_row).collect(),
        clock,
        link,
        schema: version
            .into_iter()
            .next()
            .and_then(|mut it| it.remove("version")),
        tables: tables.into_iter().map(TableFacts::of_row).collect(),
        missing_rights,
        missing: reader.missing,
    })
}

/// A row by the names of its columns, without those that are null.
type Row = BTreeMap<String, String>;

struct Reader<'a> {
    client: &'a Client,
    /// The facts that are missing, each with the reason.
    missing: Vec<String>,
}

impl Reader<'_> {
    /// The rows of a query, or none and a missing fact.
    async fn rows(&mut self, what: &str, sql: &str) -> Result<Vec<Row>, Error> {
        match rows(self.client, sql).await {
            Ok(rows) => Ok(rows),
            Err(error) => match error.as_db_error() {
                Some(refusal) => {
                    let message = refusal.message();
                    self.missing.push(format!("{what} ({message})"));
                    Ok(Vec::new())
                }
                None => Err(error),
            },
        }
    }
}

async fn rows(client: &Client, sql: &str) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for message in client.simple_query(sql).await? {
        if let SimpleQueryMessage::Row(row) = message {
            let mut fields = Row::new();
            for (at, column) in row.columns().iter().enumerate() {
                if let Some(value) = row.try_get(at)? {
                    fields.insert(column.name().to_owned(), value.to_owned());
                }
            }
            rows.push(fields);
        }
    }
    Ok(rows)
}

/// The name and the value of a setting.
fn pair(mut row: Row) -> Option<(String, String)> {
    Some((row.remove("name")?, row.remove("setting")?))
}

/// The rights on the tables that exist. Without tables nothing can be granted.
async fn missing_rights(reader: &mut Reader<'_>, tables: &[Row]) -> Result<Vec<String>, Error> {
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let exists = |target: &str| {
        let is_it = |row: &Row| row.get("name").is_some_and(|name| name == target);
        target.starts_with("SCHEMA") || tables.iter().any(is_it)
    };
    let rights = RIGHTS.iter().filter(|(_, target)| exists(target));
    let lacking = rights.flat_map(|(privileges, target)| {
        let lacking = |privilege| lacking(privilege, target);
        privileges.split(", ").map(lacking).collect::<Vec<_>>()
    });
    let sql = lacking.collect::<Vec<_>>().join(" UNION ALL ");
    let rows = reader.rows("the rights", &sql).await?;
    let rights = rows.into_iter().filter_map(|mut row| row.remove("missing"));
    Ok(rights.collect())
}

/// A query with a row if our user lacks a privilege. It looks tables up without the right to use their schema.
fn lacking(privilege: &str, target: &str) -> String {
    let missing =
        format!("SELECT '{privilege} ON {target}' AS missing FROM pg_catalog.pg_namespace AS n");
    match target.strip_prefix("SCHEMA ") {
        Some(schema) => format!(
            "{missing} WHERE n.nspname = '{schema}' AND NOT has_schema_privilege(n.oid, '{privilege}')"
        ),
        None => format!(
            "{missing} JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.oid \
             WHERE n.nspname || '.' || c.relname = '{target}' AND NOT has_table_privilege(c.oid, '{privilege}')"
        ),
    }
}

/// Measures the offset of the server's clock.
async fn clock(reader: &mut Reader<'_>) -> Result<Option<ClockFacts>, Error> {
    let mut best: Option<ClockFacts> = None;
    for _ in 0..CLOCK_SAMPLES {
        let sent = SystemTime::now();
        let rows = reader.rows("the clock", CLOCK).await?;
        let received = SystemTime::now();
        let Some(server) = rows.first().and_then(|row| row.get("now")?.parse().ok()) else {
            break;
        };
        if let Some(sample) = ClockFacts::compare(sent, server, received) {
            best = Some(sample.or_better(best));
        }
    }
    Ok(best)
}

/// Finds a pooler that lends a session for a transaction: while one connection has a transaction open, the other one gets
/// the session that the first one had, or both get another one.
async fn link([first, second]: [&Client; 2], listens: bool) -> Result<Link, Error> {
    let before = rows(first, PID).await?;
    second.simple_query("BEGIN").await?;
    let others = rows(second, PID).await;
    let after = rows(first, PID).await;
    second.simple_query("ROLLBACK").await?;
    let (others, after) = (others?, after?);
    Ok(match before == others || before != after {
        true => Link::Pooled { listens },
        false => Link::Session,
    })
}

impl Standby {
    fn of_row(mut row: Row) -> Self {
        let is_synchronous = row
            .get("sync_state")
            .map(|state| state != "async" && state != "potential");
        Self {
            name: row.remove("name").unwrap_or_default(),
            state: row.remove("state"),
            is_synchronous,
        }
    }
}

impl TableFacts {
    fn of_row(mut row: Row) -> Self {
        let number = |name: &str| {
            row.get(name)
                .and_then(|value| value.parse().ok())
                .unwrap_or(0)
        };
        let options = row.get("options").map_or("", String::as_str);
        Self {
            is_logged: row.get("is_logged").is_some_and(|value| value == "t"),
            is_unvacuumed: options.split(' ').any(|it| UNVACUUMED.contains(&it)),
            rows: number("rows"),
            dead_rows: number("dead_rows"),
            size: number("size"),
            name: row.remove("name").unwrap_or_default(),
        }
    }
}
