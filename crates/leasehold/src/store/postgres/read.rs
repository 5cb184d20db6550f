//! Queries, each step from one state of the records.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error};

use super::commit::{LOCK, RECORDS};
use super::error::Fault;
use super::load::load;
use super::parameters::{Columns, Parameter};
use super::queue::Pool;
use super::records::LoadedRecords;
use crate::store::api::Key;
use crate::store::lock::lock;
use crate::store::query::RunningQuery;

/// Begins a step.
const BEGIN: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL search_path = pg_catalog";

/// Registers the observers of a store for a name, for a minute.
const WATCH: &str = "
INSERT INTO leasehold.members (namespace, tenant, name, class, id, value, until)
SELECT n.namespace, n.tenant, n.name, 6, $4, '', ((extract(epoch FROM clock_timestamp()) + 60) * 1000000)::bigint
FROM unnest($1::text[], $2::text[], $3::text[]) AS n (namespace, tenant, name)
ON CONFLICT (namespace, tenant, name, class, id) DO UPDATE SET until = excluded.until";

/// How long a registration is not renewed. The observers read again before its end.
const REGISTERED: Duration = Duration::from_secs(15);

/// The number of names from which those that are registered no longer are forgotten.
const NAMES_MAX: usize = 1_024;

/// The names that are observed, and since when that is registered.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<Key, Instant>>);

impl Watched {
    /// Forgets all of them: the server of a new connection may not have them.
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// Registers this store for the changes of a name, unless it is. No change that begins later is missed, because the name
    /// is locked.
    pub(super) async fn register(
        &self,
        client: &Client,
        pool: &Pool,
        key: &Key,
    ) -> Result<(), Error> {
        if lock(&self.0)
            .get(key)
            .is_some_and(|since| since.elapsed() < REGISTERED)
        {
            return Ok(());
        }
        let since = Instant::now();
        let columns = Columns::of([key].into_iter());
        let id = pool.watcher.to_string();
        let [namespaces, tenants, names] = columns.parameters();
        let locked: [Parameter<'_>; 4] = [namespaces, tenants, names, (&RECORDS, Type::INT8)];
        let [namespaces, tenants, names] = columns.parameters();
        let put: [Parameter<'_>; 4] = [namespaces, tenants, names, (&id, Type::TEXT)];
        let (begun, locked, put, committed) = tokio::join!(
            biased;
            client.batch_execute(&pool.begin),
            client.query_typed(LOCK, &locked),
            client.execute_typed(WATCH, &put),
            client.batch_execute("COMMIT"),
        );
        begun?;
        locked?;
        put?;
        committed?;
        let mut names = lock(&self.0);
        if names.len() >= NAMES_MAX {
            names.retain(|_, since| since.elapsed() < REGISTERED);
        }
        names.insert(key.clone(), since);
        Ok(())
    }
}

/// Reads the next part of a query. Returns whether there is more.
pub(super) async fn step(client: &Client, query: &mut RunningQuery) -> Result<bool, Fault> {
    let mut records = LoadedRecords::default();
    let mut is_begun = false;
    let read = loop {
        match query.step(&mut records) {
            Err(Fault::Missing(need)) if is_begun => load(client, need, &mut records).await?,
            Err(Fault::Missing(need)) => {
                is_begun = true;
                let begin = client.batch_execute(BEGIN);
                let (begun, loaded) = tokio::join!(biased; begin, load(client, need, &mut records));
                begun?;
                loaded?;
            }
            read => break read,
        }
    };
    // Nothing was changed.
    if is_begun {
        client.batch_execute("ROLLBACK").await?;
    }
    read
}
