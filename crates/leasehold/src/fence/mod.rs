//! Checks for the protected side: what a lock guards can refuse a holder that is late.
//!
//! No lock with an end can keep a holder from being paused just after it looked at the clock. What
//! was on its way is written all the same, perhaps after the next holder's work. Every grant of a
//! name has a larger [`Token`](crate::Token) than all grants before, so whatever is written to can
//! refuse it: it remembers the largest token that it has seen, and refuses smaller ones *in the same
//! step as the write*. A token is admitted as often as it comes, because one holder may write often.
//!
//! | what is protected | check |
//! |---|---|
//! | memory of a process, or what one process alone writes to | [`Gate`] |
//! | values in a Redis server | [`redis`] |
//! | rows in SQLite or PostgreSQL | [`sql`] |
//! | a service over HTTP | [`header`], and the example `fenced_http` |
//!
//! What remembers the largest token must live as long as what it protects: an empty check admits
//! everybody. And all that is protected by one check must be guarded by one name, as tokens of two
//! names say nothing about each other.

pub mod header;
#[cfg(feature = "redis")]
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
        #[cfg(feature = "redis")]
        assert!(page.contains(super::redis::WRITE));
    }
}
