//! A table that refuses a late holder. The statements for PostgreSQL are in `docs/fencing.md`.
//!
//! ```text
//! cargo run -p leasehold --example fenced_sqlite                 # in memory
//! cargo run -p leasehold --example fenced_sqlite redis://127.0.0.1
//! ```

use std::error::Error;

use leasehold::fence::sql::Dialect;
use leasehold::{Client, Token};
use rusqlite::Connection;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1).unwrap_or("memory:".into());
    let client = Client::connect(&store).await?;
    let mutex = client.mutex("orders/42")?;

    let db = Connection::open_in_memory()?;
    db.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT NOT NULL)")?;
    db.execute_batch(&Dialect::Sqlite.add_column("orders"))?;
    db.execute("INSERT INTO orders (id, state) VALUES (42, 'new')", [])?;

    // A holder keeps its token, and then stands still for so long that its lease ends.
    let paused = mutex.lock().await?;
    let late = paused.token();
    mutex.revoke().await?;

    // The next holder has a larger token, and writes.
    let next = mutex.lock().await?;
    println!("next holder: {}", set_state(&db, next.token(), "paid")?);

    // The first one wakes up and writes without a further check.
    println!("late holder: {}", set_state(&db, late, "cancelled")?);

    let state: String = db.query_row("SELECT state FROM orders WHERE id = 42", [], |row| {
        row.get(0)
    })?;
    println!("order 42 is {state}");
    next.release().await?;
    Ok(())
}

/// Check and write are one statement, so that no pause fits in between.
fn set_state(db: &Connection, token: Token, state: &str) -> rusqlite::Result<&'static str> {
    let update = Dialect::Sqlite.update("orders", &["state"], "id");
    let rows = db.execute(&update, (i64::from(token), 42, state))?;
    Ok(if rows == 1 {
        "written"
    } else {
        "refused, stop"
    })
}
