//! Checks of fencing tokens: a protected resource can refuse a holder that is late.
//!
//! No lock that expires can prevent a pause of its holder just after a check of the clock. The delayed write
//! still arrives, perhaps after the work of the next holder. Every grant of a name has a larger
//! [`Token`](crate::Token) than all earlier grants, so the resource can refuse that write: it stores the
//! largest token that it has received, and refuses smaller ones *in the same step as the write*. An equal
//! token is admitted, because one holder may write often.
//!
//! | resource | check |
//! |---|---|
//! | memory of a process, or data that only one process writes | [`Gate`] |
//! | values in a Redis server | [`redis`] |
//! | a transaction of PostgreSQL, with the locks in the same database | [`postgres`] |
//! | rows in SQLite or PostgreSQL | [`sql`] |
//! | a service over HTTP | [`header`], and the example `fenced_http` |
//!
//! The largest token must live as long as the resource: an empty check admits every token. One check must
//! protect the resources of one name only, as tokens of different names cannot be compared.

pub mod header;
pub mod postgres;
pub mod redis;
pub mod sql;

mod gate;
mod stale;

pub use self::gate::Gate;
pub use self::stale::Stale;

#[cfg(test)]
mod tests {
    use super::sql::Dialect;

    #[test]
    fn the_page_to_paste_from_has_the_same_words() {
        let page = include_str!("../../../../docs/fencing.md");
        for sql in [Dialect::Postgres, Dialect::Sqlite] {
            for statement in [
                sql.update("orders", &["state"], "id"),
                sql.add_column("orders"),
                sql.create_fences().to_owned(),
                sql.admit().to_owned(),
            ] {
                assert!(page.contains(&statement), "{statement}");
            }
        }
        assert!(page.contains(super::redis::WRITE));
        assert!(page.contains(super::postgres::HELD) && page.contains(super::postgres::LOST));
    }
}
