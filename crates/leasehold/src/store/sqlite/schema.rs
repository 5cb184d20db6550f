//! The schema of the file.

/// Identifies the file in its header: "LSHD".
pub(super) const APPLICATION_ID: i32 = 0x4c53_4844;

/// The version of the tables, `user_version` of the file.
pub(super) const VERSION: i32 = 7;

/// The tables. All times are microseconds of the store's clock, see [`super::time`].
///
/// `meta` has one row: the boot id of the machine to which `anchor` belongs, the upper bound of all times given out, and
/// the position of the garbage collector.
///
/// `heads` has the head of each name, `members` everything beside it: the rows of a record, and the clients that are
/// notified of its changes. The class comes first in the key, so that a list of one class reads no other. `place` is that
/// of a waiter. `until` is when a row may be removed, as far as the row itself shows; see
/// [`Head::kept_until`](leasehold_core::record::Head::kept_until). A member without `until` may be removed together with
/// its head, and a head stays as long as it has holders.
pub(super) const TABLES: &str = "
    CREATE TABLE meta (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        boot_id TEXT,
        anchor INTEGER NOT NULL,
        high INTEGER NOT NULL,
        swept_namespace TEXT NOT NULL DEFAULT '',
        swept_tenant TEXT NOT NULL DEFAULT '',
        swept_name TEXT NOT NULL DEFAULT ''
    ) STRICT;
    CREATE TABLE heads (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (namespace, tenant, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE members (
        class INTEGER NOT NULL,
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        id TEXT NOT NULL,
        place INTEGER,
        value TEXT NOT NULL,
        until INTEGER,
        PRIMARY KEY (class, namespace, tenant, name, id)
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX members_by_place ON members (namespace, tenant, name, place)
        WHERE place IS NOT NULL;
    CREATE INDEX members_by_end ON members (until) WHERE until IS NOT NULL;
";

#[cfg(test)]
mod tests {
    use rusqlite::types::Null;
    use rusqlite::{Connection, params_from_iter};

    use super::*;
    use crate::store::sqlite::{gc, records};

    /// The parts of the plan of a statement that scan a table or an index from its start to its end.
    fn scans(db: &Connection, sql: &str) -> Vec<String> {
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let none = vec![Null; plan.parameter_count()];
        let details = plan.query_map(params_from_iter(none), |row| row.get("detail"));
        let details = details.unwrap().map(|detail| detail.unwrap());
        details
            .filter(|detail: &String| detail.starts_with("SCAN"))
            .collect()
    }

    /// However many notes, waiters and clients there are.
    #[test]
    fn lists_and_garbage_collection_scan_no_table() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(TABLES).unwrap();
        for sql in [
            records::HEADS,
            records::COMPLETIONS,
            gc::DELETE_ENDED_MEMBERS,
            gc::FIND_END_OF_CHUNK,
            gc::DELETE_ENDED_HEADS,
            gc::DELETE_MEMBERS_OF_HEAD,
        ] {
            assert_eq!(scans(&db, sql), [""; 0], "{sql}");
        }
        // The check itself finds one.
        assert_eq!(scans(&db, "DELETE FROM members WHERE place = 1").len(), 1);
    }
}
