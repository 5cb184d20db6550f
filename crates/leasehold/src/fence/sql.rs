//! Rows of a database that a late holder cannot write.
//!
//! There are two checks, in the dialects of SQLite and PostgreSQL. The *number of changed rows* is their
//! result: one if the holder is in time, none if it is late.
//!
//! * **A column of the row**, [`Dialect::update`]: for a statement that changes one row. It checks and
//!   writes in one step.
//! * **A row for each name**, [`Dialect::admit`]: for everything else. It is the *first* statement of
//!   the transaction; if it changes no row, roll back and stop. Transactions of two holders also cannot
//!   overlap, as the second waits for the first to commit.
//!
//! A transaction whose writes depend on its reads must admit its token before it reads. In SQLite such a
//! transaction begins with `BEGIN IMMEDIATE`.
//!
//! ```
//! use leasehold::fence::sql::Dialect;
//! # use leasehold::Token;
//!
//! # let db = rusqlite::Connection::open_in_memory()?;
//! # db.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT);
//! #                   INSERT INTO orders VALUES (42, 'new');")?;
//! # let (early, late) = (Token::new(7).unwrap(), Token::new(8).unwrap());
//! let sql = Dialect::Sqlite;
//! db.execute(&sql.add_column("orders"), [])?; // once
//!
//! // early and late are guard.token() of two holders.
//! let ship = sql.update("orders", &["state"], "id");
//! assert_eq!(ship, r#"UPDATE "orders" SET "state" = ?3, "fence" = ?1 WHERE "id" = ?2 AND "fence" <= ?1"#);
//! assert_eq!(db.execute(&ship, (i64::from(late), 42, "shipped"))?, 1);
//! assert_eq!(db.execute(&ship, (i64::from(early), 42, "lost"))?, 0); // a later holder was there: stop
//!
//! db.execute(sql.create_fences(), [])?; // once
//! assert_eq!(db.execute(sql.admit(), ("orders/42", i64::from(late)))?, 1);
//! assert_eq!(db.execute(sql.admit(), ("orders/42", i64::from(early)))?, 0);
//! # Ok::<(), rusqlite::Error>(())
//! ```

use std::fmt::Write as _;

/// The column with the largest token that has written the row.
const COLUMN: &str = "fence";

/// The SQL dialect of a database. Bind a token as an [`i64`]: `i64::from(token)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// SQLite since 3.24.
    Sqlite,
    /// PostgreSQL since 9.5. The statements are correct in every isolation level; above the default level a
    /// late statement may also fail with a serialization failure (40001) and is to be retried.
    Postgres,
}

impl Dialect {
    /// The statement that adds the column `fence` to a table. Every holder may write a row that was not
    /// written since.
    #[must_use]
    pub fn add_column(self, table: &str) -> String {
        let (table, fence) = (quoted(table), quoted(COLUMN));
        format!("ALTER TABLE {table} ADD COLUMN {fence} BIGINT NOT NULL DEFAULT 0")
    }

    /// The statement that changes columns of one row unless a later holder has changed it already.
    /// Parameters: the token, the `key`, then the values of the columns in their order.
    ///
    /// It also changes no row if the row does not exist; where that is possible, check it separately.
    #[must_use]
    pub fn update(self, table: &str, columns: &[&str], key: &str) -> String {
        let (token, by) = (self.parameter(1), self.parameter(2));
        let mut sql = format!("UPDATE {} SET ", quoted(table));
        for (at, column) in columns.iter().enumerate() {
            // Writing to a text does not fail.
            let _ = write!(sql, "{} = {}, ", quoted(column), self.parameter(3 + at));
        }
        let (key, fence) = (quoted(key), quoted(COLUMN));
        let _ = write!(
            sql,
            "{fence} = {token} WHERE {key} = {by} AND {fence} <= {token}"
        );
        sql
    }

    /// The statement that creates the table with a row for each name, if it does not exist.
    #[must_use]
    pub const fn create_fences(self) -> &'static str {
        "CREATE TABLE IF NOT EXISTS fences (name TEXT PRIMARY KEY, token BIGINT NOT NULL)"
    }

    /// The statement that admits the holder of a name and excludes earlier ones: it changes one row if the
    /// holder is in time, none if it is late. Parameters: the name, the token. It must be the first
    /// statement of a transaction.
    #[must_use]
    pub const fn admit(self) -> &'static str {
        match self {
            Self::Sqlite => {
                "INSERT INTO fences (name, token) VALUES (?1, ?2) \
                 ON CONFLICT (name) DO UPDATE SET token = excluded.token \
                 WHERE fences.token <= excluded.token"
            }
            Self::Postgres => {
                "INSERT INTO fences (name, token) VALUES ($1, $2) \
                 ON CONFLICT (name) DO UPDATE SET token = excluded.token \
                 WHERE fences.token <= excluded.token"
            }
        }
    }

    fn parameter(self, number: usize) -> String {
        match self {
            Self::Sqlite => format!("?{number}"),
            Self::Postgres => format!("${number}"),
        }
    }
}

/// A quoted identifier, valid in both databases for any text.
fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statements_are_these() {
        assert_eq!(
            Dialect::Postgres.update("orders", &["state", "by"], "id"),
            "UPDATE \"orders\" SET \"state\" = $3, \"by\" = $4, \"fence\" = $1 \
             WHERE \"id\" = $2 AND \"fence\" <= $1"
        );
        assert_eq!(
            Dialect::Sqlite.update("o\"; DROP", &[], "id"),
            "UPDATE \"o\"\"; DROP\" SET \"fence\" = ?1 WHERE \"id\" = ?2 AND \"fence\" <= ?1"
        );
    }
}
