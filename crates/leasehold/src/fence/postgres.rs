//! Transactions of PostgreSQL in which a late holder changes nothing, for locks in the same database.
//!
//! [`HELD`] calls `leasehold.held`, a function of the schema that a `postgres://` store creates. It raises an error unless
//! a lease with this token holds the lock, and until the transaction ends no lease that excludes it is granted the lock. So
//! all of the transaction happens under the lock, or nothing of it: no column, no table and no comparison are needed. It is
//! the *first* statement of the transaction.
//!
//! The check costs one statement. A renewal does not wait for the transaction, but the next holder does, so it should be
//! short; `idle_in_transaction_session_timeout` ends one whose program hangs.
//!
//! [`HELD`] needs no crate: any client runs it with the name of the lock and the token, bound as text and [`i64`]
//! (`i64::from(token)`). The user of the transaction needs `USAGE` on the schema `leasehold`, and no other right on it. Any
//! error has aborted the transaction. If its SQLSTATE is [`LOST`], the holder must stop.
//!
//! ```
//! use leasehold::Client;
//! use leasehold::fence::postgres::{HELD, HELD_IN, LOST};
//! # use leasehold_testkit::PostgresServer;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! # let server = PostgresServer::start();
//! # let url = server.url();
//! # server.run(&["CREATE TABLE orders (id BIGINT PRIMARY KEY, state TEXT)", "INSERT INTO orders VALUES (42, 'new')"]);
//! let client = Client::connect(&url).await?;
//! let guard = client.mutex("orders/42")?.lock().await?;
//! let token = i64::from(guard.token());
//!
//! let (mut db, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
//! tokio::spawn(connection);
//! let work = db.transaction().await?;
//! work.execute(HELD, &[&"orders/42", &token]).await?;
//! work.execute("UPDATE orders SET state = 'shipped' WHERE id = 42", &[]).await?;
//! work.commit().await?;
//!
//! guard.release().await?;
//! let work = db.transaction().await?;
//! let error = work.execute(HELD_IN, &[&"orders/42", &token, &"leasehold", &"default"]).await.unwrap_err();
//! assert_eq!(error.code().map(|state| state.code()), Some(LOST));
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! ```

/// The statement for a lock in the default namespace and tenant. Parameters: the name, the token.
pub const HELD: &str = "SELECT leasehold.held($1, $2)";

/// The statement for a lock in any namespace. Parameters: the name, the token, the namespace, the tenant.
pub const HELD_IN: &str = "SELECT leasehold.held($1, $2, $3, $4)";

/// The SQLSTATE of the error that the lease does not hold the lock. A retry does not help.
pub const LOST: &str = "LH001";
