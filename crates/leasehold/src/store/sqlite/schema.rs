//! The schema of the file.

/// Identifies the file in its header: "LSHD".
pub(super) const APPLICATION_ID: i32 = 0x4c53_4844;

/// The version of the tables below, `user_version` of the file.
pub(super) const VERSION: i32 = 6;

/// The tables beside those of [`super::rows`]. All times are microseconds of the store's clock, see [`super::time`].
///
/// `meta` has one row: the boot id of the machine to which `anchor` belongs, the upper bound of all times
/// given out, and the position of the garbage collector.
/// `observers` has the clients that are notified when the record of a name changes.
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
    CREATE TABLE observers (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        client TEXT NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (namespace, tenant, name, client)
    ) STRICT, WITHOUT ROWID;
";
