//! Transactions of PostgreSQL in which a late holder changes nothing, for locks in the same database.
//!
//! [`HELD`] calls `leasehold.held`, a function of the schema that a `postgres://` store creates. It raises an error unless
//! a lease with this token holds the lock, and until the transaction ends no lease that excludes it is granted the lock. So
//! all of the transaction happens under the lock, or nothing of it: no column, no table and no comparison are needed. It is
//! the *first* statement of the transaction: a rollback to an earlier savepoint undoes the check. A commit that succeeds
//! counts, even if the guard then reads [`Lost`](crate::State::Lost).
//!
//! Keep the guard until the transaction has ended, even if its future is dropped, or set
//! [`handoff_max(0)`](crate::ClientBuilder::handoff_max): a dropped guard passes its lease to the next task of its process
//! without the store, which admits the tokens of both tasks.
//!
//! The check costs one statement. A renewal does not wait for the transaction, but the next holder does, so it should be
//! short; `idle_in_transaction_session_timeout` ends one whose program hangs.
//!
//! [`HELD`] needs no crate: any client runs it with the name of the lock and the token, bound as text and [`i64`]
//! (`i64::from(token)`). The user of the transaction needs `USAGE` on the schema `leasehold`, and no other right on it.
//!
//! Any error has aborted the transaction. Its SQLSTATE says what to do:
//!
//! | SQLSTATE | meaning | what to do |
//! |---|---|---|
//! | `LH001`: [`LOST`] | no such lease holds the lock | stop |
//! | `LH002` | a standby cannot check the lock | use the primary server |
//! | `40001`, above `READ COMMITTED` | the record of the lock has changed since the snapshot | begin the transaction again |
//!
//! The program and the store have a URL each: clients of PostgreSQL refuse parameters of the store, such as `?listen=` and
//! `?passfile=`.
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
//! // This URL has no parameters of the store.
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
//!
//! A transaction under several locks begins with a check for each guard, in the order of the [`GuardSet`](crate::GuardSet):
//!
//! ```
//! use leasehold::GuardSet;
//! use leasehold::fence::postgres::HELD;
//!
//! async fn transfer(db: &mut tokio_postgres::Client, guards: &GuardSet) -> Result<(), tokio_postgres::Error> {
//!     let work = db.transaction().await?;
//!     for guard in guards.iter() {
//!         work.execute(HELD, &[&guard.name(), &i64::from(guard.token())]).await?;
//!     }
//!     work.execute("UPDATE accounts SET balance = balance - 5 WHERE id = 7", &[]).await?;
//!     work.execute("UPDATE accounts SET balance = balance + 5 WHERE id = 3", &[]).await?;
//!     work.commit().await
//! }
//! ```

/// The statement for a lock of a client without a [namespace](crate::ClientBuilder::namespace) and a
/// [tenant](crate::ClientBuilder::tenant). Parameters: the name, the token.
///
/// For a client with one of them it checks another lock, and fails: use [`HELD_IN`].
pub const HELD: &str = "SELECT leasehold.held($1, $2)";

/// The statement for a lock of any client. Parameters: the name, the token, the namespace, the tenant. Both are those of the
/// [`ClientBuilder`](crate::ClientBuilder); `leasehold` and `default` if not set.
pub const HELD_IN: &str = "SELECT leasehold.held($1, $2, $3, $4)";

/// The SQLSTATE of the error that the lease does not hold the lock. A retry does not help.
pub const LOST: &str = "LH001";
