//! Resources that holders write to, from any process.

use leasehold::Token;
use leasehold::fence;
use leasehold::fence::postgres::LOST;
use leasehold::fence::sql::Dialect;
use rusqlite::{Connection, TransactionBehavior};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_postgres::NoTls;
use tokio_postgres::types::ToSql;

/// The parameters of a statement of PostgreSQL.
pub(super) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Writes a value under a token to the resource of that kind at that address. Returns whether it was accepted.
pub(crate) async fn write(kind: &str, address: &str, token: Token, value: &str) -> bool {
    match kind {
        "redis" => {
            let mut connection = crate::redis::connection(address).await;
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
        "postgres_row" => {
            let ship = Dialect::Postgres.update("orders", &["state"], "id");
            let parameters: Parameters<'_> = &[&i64::from(token), &42_i64, &value];
            let rows = session(address).await.execute(&*ship, parameters).await;
            rows.unwrap() == 1
        }
        "postgres_name" => {
            let admit = Dialect::Postgres.admit();
            postgres_checked(address, admit, &[&"orders/42", &i64::from(token)], value).await
        }
        "postgres_held" => {
            // Under the only lock of the database.
            let held =
                "SELECT leasehold.held(name, $1) FROM leasehold.heads WHERE name LIKE 'fence/%'";
            postgres_checked(address, held, &[&i64::from(token)], value).await
        }
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

/// A session of a program that writes to PostgreSQL.
pub(super) async fn session(url: &str) -> tokio_postgres::Client {
    // The rest is for clients of locks behind a pooler.
    let (url, _) = url.split_once('?').unwrap_or((url, ""));
    let (session, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    session
}

async fn postgres_checked(url: &str, check: &str, parameters: Parameters<'_>, value: &str) -> bool {
    let update = "UPDATE orders SET state = $1 WHERE id = 42";
    let mut session = session(url).await;
    write_checked(&mut session, (check, parameters), (update, &[&value])).await
}

/// Writes in a transaction that begins with a check, which finds no row or fails if the holder is late. Returns whether it
/// was committed.
pub(super) async fn write_checked(
    session: &mut tokio_postgres::Client,
    (check, token): (&str, Parameters<'_>),
    (write, value): (&str, Parameters<'_>),
) -> bool {
    let transaction = session.transaction().await.unwrap();
    match transaction.execute(check, token).await {
        Ok(0) => return false,
        Ok(_) => {}
        Err(error) => {
            assert_eq!(error.code().map(|it| it.code()), Some(LOST), "{error}");
            return false;
        }
    }
    transaction.execute(write, value).await.unwrap();
    transaction.commit().await.unwrap();
    true
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
