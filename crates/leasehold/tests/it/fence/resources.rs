//! What holders write to, from whatever process.

use std::fmt;

use leasehold::Token;
use leasehold::fence::sql::Dialect;
use leasehold::fence::{self, Stale, header};
use leasehold_testkit::PostgresServer;
use rusqlite::{Connection, TransactionBehavior};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What came of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrote {
    /// It is written.
    Done,
    /// It is not: the holder is late.
    Late,
}

impl fmt::Display for Wrote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl From<Result<(), Stale>> for Wrote {
    fn from(admitted: Result<(), Stale>) -> Self {
        admitted.map_or(Self::Late, |()| Self::Done)
    }
}

impl Wrote {
    pub(super) fn of_rows(rows: usize) -> Self {
        match rows {
            0 => Self::Late,
            1 => Self::Done,
            more => panic!("{more} rows"),
        }
    }
}

/// Writes a value under a token to the resource of that kind at that place.
pub(crate) async fn write(kind: &str, place: &str, token: Token, value: &str) -> Wrote {
    match kind {
        "redis" => {
            let client = redis::Client::open(place).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let wrote = fence::redis::write(&mut connection, "stock", token, value.as_bytes());
            wrote.await.unwrap().into()
        }
        "sqlite_row" => {
            let ship = Dialect::Sqlite.update("orders", &["state"], "id");
            let db = Connection::open(place).unwrap();
            let rows = db.execute(&ship, (i64::from(token), 42, value));
            Wrote::of_rows(rows.unwrap())
        }
        "sqlite_name" => sqlite_name(place, token, value),
        "postgres_row" => Wrote::of_rows(postgres_row(place, token, value)),
        "postgres_name" => Wrote::of_rows(postgres_name(place, token, value)),
        "http" => match http(place, &[&header::format(token)], value).await {
            (200, _) => Wrote::Done,
            (412, _) => Wrote::Late,
            other => panic!("{other:?}"),
        },
        _ => panic!("{kind}"),
    }
}

/// A transaction that is fenced as a whole.
fn sqlite_name(path: &str, token: Token, value: &str) -> Wrote {
    let mut db = Connection::open(path).unwrap();
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = transaction.unwrap();
    let admit = transaction.execute(Dialect::Sqlite.admit(), ("orders/42", i64::from(token)));
    if Wrote::of_rows(admit.unwrap()) == Wrote::Late {
        return Wrote::Late;
    }
    let written = transaction.execute("UPDATE orders SET state = ?1 WHERE id = 42", [value]);
    assert_eq!(written, Ok(1));
    transaction.commit().unwrap();
    Wrote::Done
}

/// The statement as it is, with parameters that the server fills in.
fn postgres_row(place: &str, token: Token, value: &str) -> usize {
    let ship = Dialect::Postgres.update("orders", &["state"], "id");
    let answer = PostgresServer::run_at(
        place,
        &[
            &format!("PREPARE ship (bigint, bigint, text) AS {ship}"),
            &format!("EXECUTE ship ({token}, 42, '{value}')"),
        ],
    );
    rows(answer.lines().last().unwrap())
}

fn postgres_name(place: &str, token: Token, value: &str) -> usize {
    let admit = Dialect::Postgres.admit();
    let answer = PostgresServer::run_at(
        place,
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
    let admitted = answer.lines().find(|line| line.starts_with("INSERT"));
    rows(admitted.unwrap())
}

/// How many rows a statement has changed, by its tag.
pub(super) fn rows(tag: &str) -> usize {
    tag.split(' ').next_back().unwrap().parse().unwrap()
}

/// Puts a value with these token headers. Returns the status and the whole response.
pub(super) async fn http(address: &str, tokens: &[&str], value: &str) -> (u16, String) {
    let headers: String = tokens
        .iter()
        .map(|token| format!("Fencing-Token: {token}\r\n"))
        .collect();
    let length = value.len();
    let request = format!(
        "PUT /stock HTTP/1.1\r\nHost: stock\r\nConnection: close\r\n{headers}\
         Content-Length: {length}\r\n\r\n{value}"
    );
    ask(address, &request).await
}

pub(super) async fn ask(address: &str, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}
