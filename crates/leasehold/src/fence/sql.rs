//! Rows of a database that a late holder cannot write.
//!
//! Two ways, in the words of SQLite and PostgreSQL. Both say by the *number of rows* whether the
//! holder was in time: one, or none.
//!
//! * **A column of the row**, [`Dialect::update`]: for a statement that changes one row. It is check
//!   and write in one.
//! * **A row for each name**, [`Dialect::admit`]: for everything else. It is the *first* statement of
//!   the transaction; if it changes no row, roll back and stop. It also keeps two holders from going
//!   on at the same time, as the second waits for the first to commit.
//!
//! Whoever decides by something that it reads admits its token first and reads then. In SQLite such a
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

/// The column of a row that holds the largest token which has written it.
pub const COLUMN: &str = "fence";

/// How a database writes its parameters. A token is an [`i64`] there: `i64::from(token)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dialect {
    /// SQLite since 3.24.
    Sqlite,
    /// PostgreSQL since 9.5. The statements hold in every isolation level; above the default one a
    /// late statement may also end with a serialization failure (40001), to be tried again.
    Postgres,
}

impl Dialect {
    /// Gives the rows of a table the column [`COLUMN`]. Every holder may write a row that nobody has
    /// written since.
    #[must_use]
    pub fn add_column(self, table: &str) -> String {
        let (table, fence) = (quoted(table), quoted(COLUMN));
        format!("ALTER TABLE {table} ADD COLUMN {fence} BIGINT NOT NULL DEFAULT 0")
    }

    /// Changes columns of one row unless a later holder has changed it before. Parameters: the
    /// token, the `key`, then the values of the columns in their order.
    ///
    /// It changes no row also if there is no such row; where that can be, look for it.
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

    /// Makes the table with a row for each name, unless it is there.
    #[must_use]
    pub const fn create_fences(self) -> &'static str {
        "CREATE TABLE IF NOT EXISTS fences (name TEXT PRIMARY KEY, token BIGINT NOT NULL)"
    }

    /// Admits the holder of a name and keeps earlier ones out: one row is changed if it is in time,
    /// none if it is late. Parameters: the name, the token. The first statement of a transaction.
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

/// An identifier as both databases take it, whatever is in it.
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
