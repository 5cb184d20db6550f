//! Resources that holders write to, from any process.

use leasehold::Token;
use leasehold::fence;
use leasehold::fence::sql::Dialect;
use leasehold_testkit::PostgresServer;
use rusqlite::{Connection, TransactionBehavior};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Writes a value under a token to the resource of that kind at that address. Returns whether it was accepted.
pub(crate) async fn write(kind: &str, address: &str, token: Token, value: &str) -> bool {
    match kind {
        "redis" => {
            let client = redis::Client::open(address).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let wrote = fence::redis::write(&mut connection, "stock", token, value.as_bytes());
            wrote.await.unwrap().is_ok()
        }
        "sqlite_row" => {
            let ship = Dialect::Sqlite.update("orders", &["state"], "id");
            let db = Connection::open(address).unwrap();
            let rows = db.execute(&ship, (i64::from(token), 42, value));
            rows.unwrap() == 1
        }
        "sqlite_name" => sqlite_name(address, token, value),
        "postgres_row" => postgres_row(address, token, value) == 1,
        "postgres_name" => postgres_name(address, token, value) == 1,
        "postgres_held" => postgres_held(address, token, value),
        "http" => match http(address, &[&token.to_string()], value).await {
            (200, _) => true,
            (412, _) => false,
            other => panic!("{other:?}"),
        },
        _ => panic!("{kind}"),
    }
}

/// A transaction that is fenced as a whole.
fn sqlite_name(path: &str, token: Token, value: &str) -> bool {
    let mut db = Connection::open(path).unwrap();
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = transaction.unwrap();
    let admit = transaction.execute(Dialect::Sqlite.admit(), ("orders/42", i64::from(token)));
    if admit.unwrap() == 0 {
        return false;
    }
    let written = transaction.execute("UPDATE orders SET state = ?1 WHERE id = 42", [value]);
    assert_eq!(written, Ok(1));
    transaction.commit().unwrap();
    true
}

/// The statement as it is, with parameters that the server fills in.
fn postgres_row(address: &str, token: Token, value: &str) -> usize {
    let ship = Dialect::Postgres.update("orders", &["state"], "id");
    let output = PostgresServer::run_at(
        address,
        &[
            &format!("PREPARE ship (bigint, bigint, text) AS {ship}"),
            &format!("EXECUTE ship ({token}, 42, '{value}')"),
        ],
    );
    rows(output.lines().last().unwrap())
}

fn postgres_name(address: &str, token: Token, value: &str) -> usize {
    let admit = Dialect::Postgres.admit();
    let output = PostgresServer::run_at(
        address,
        &[
            &format!("PREPARE admit (text, bigint) AS {admit}"),
            "BEGIN",
            &format!("EXECUTE admit ('orders/42', {token})"),
            // Only if a row was changed, which a program learns from its driver.
            &format!(
                "UPDATE orders SET state = '{value}' WHERE id = 42 AND \
                 (SELECT token FROM fences WHERE name = 'orders/42') = {token}"
            ),
            "COMMIT",
        ],
    );
    let admitted = output.lines().find(|line| line.starts_with("INSERT"));
    rows(admitted.unwrap())
}

/// A transaction under the only lock of the database.
fn postgres_held(address: &str, token: Token, value: &str) -> bool {
    let transaction = format!(
        "DO $$ BEGIN PERFORM leasehold.held(name, {token}) FROM leasehold.heads WHERE name LIKE 'fence/%'; \
         UPDATE orders SET state = '{value}' WHERE id = 42; \
         EXCEPTION WHEN SQLSTATE 'LH001' THEN RAISE NOTICE 'late'; END $$"
    );
    let written = format!("SELECT count(*) FROM orders WHERE state = '{value}'");
    let output = PostgresServer::run_at(address, &[&transaction, &written]);
    output.lines().last() == Some("1")
}

/// How many rows a statement has changed, by its tag.
pub(super) fn rows(tag: &str) -> usize {
    tag.split(' ').next_back().unwrap().parse().unwrap()
}

/// Puts a value with these token headers. Returns the status and the whole response.
pub(crate) async fn http(address: &str, tokens: &[&str], value: &str) -> (u16, String) {
    let headers: String = tokens
        .iter()
        .map(|token| format!("Fencing-Token: {token}\r\n"))
        .collect();
    let length = value.len();
    let request = format!(
        "PUT /stock HTTP/1.1\r\nHost: stock\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n{value}"
    );
    exchange(address, &request).await
}

pub(crate) async fn exchange(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let status = response.split(' ').nth(1).unwrap().parse().unwrap();
    (status, response)
}
