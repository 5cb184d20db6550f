//! A holder in a process that is stopped while its lease ends, and writes when it continues.

use std::time::Duration;

use leasehold::fence::sql::Dialect;
use leasehold_testkit::{PostgresServer, RedisServer};
use rusqlite::Connection;

use super::http;
use super::resources::write;
use crate::fixture::{Fixture, fresh_name};
use crate::processes::child::Child;
use crate::waiters::SOON;

/// The ttl of the stopped holder.
const TTL: Duration = Duration::from_secs(6);

#[tokio::test(flavor = "multi_thread")]
async fn by_a_redis_server() {
    let server = RedisServer::start();
    let read = async || server.cli(&["GET", "stock"]);
    is_refused(Fixture::redis(), "redis", &server.url(), read).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn by_a_row_or_a_name_in_sqlite() {
    for kind in ["sqlite_row", "sqlite_name"] {
        by_sqlite(kind).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_a_row_or_a_name_in_postgres() {
    for kind in ["postgres_row", "postgres_name"] {
        let server = PostgresServer::start();
        set_up(&server);
        let read = async || server.run(&["SELECT state FROM orders"]);
        is_refused(Fixture::redis(), kind, &server.url(), read).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_a_service_over_http() {
    let address = http::start().await;
    let read = async || http::read(&address).await;
    is_refused(Fixture::redis(), "http", &address, read).await;
}

/// A stopped holder writes after its successor, and is refused. `read` returns the value of the resource.
pub(super) async fn is_refused(
    fixture: Fixture,
    kind: &str,
    address: &str,
    read: impl AsyncFn() -> String,
) {
    let name = fresh_name("fence");
    let child = Child::start_with_ttl(&fixture, &name, TTL);
    let early = child.acquire();
    let wrote = child.execute(&format!("write {kind} {address} early"), "wrote");
    assert_eq!(wrote, "true");
    assert_eq!(read().await, "early");

    child.stop();
    let client = fixture.client().await;
    let guard = client.mutex(&name).unwrap().lock().await.unwrap();
    let token = guard.token();
    assert!(token.get() > early);
    for value in ["next", "again"] {
        assert!(write(kind, address, token, value).await);
    }
    child.send(&format!("write {kind} {address} late"));
    child.resume();
    assert_eq!(child.expect("wrote", SOON), "false");
    assert_eq!(read().await, "again");
    assert!(child.execute("state", "state").starts_with("Lost"));

    assert!(write(kind, address, token, "last").await);
    assert_eq!(read().await, "last");
    guard.release().await.unwrap();
}

async fn by_sqlite(kind: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(ORDERS).unwrap();
    let sql = Dialect::Sqlite;
    db.execute(&sql.add_column("orders"), []).unwrap();
    db.execute(sql.create_fences(), []).unwrap();
    let read = async || {
        let state = db.query_row("SELECT state FROM orders", [], |row| row.get(0));
        state.unwrap()
    };
    is_refused(Fixture::redis(), kind, path.to_str().unwrap(), read).await;
}

/// A table without a column for fencing.
pub(super) const ORDERS: &str = "CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT NOT NULL); \
                                 INSERT INTO orders VALUES (42, 'new')";

pub(super) fn set_up(server: &PostgresServer) {
    let sql = Dialect::Postgres;
    server.run(&[ORDERS, &sql.add_column("orders"), sql.create_fences()]);
}
