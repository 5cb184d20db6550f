//! The schema of the file.

/// Identifies the file in its header: "LSHD".
pub(super) const APPLICATION_ID: i32 = 0x4c53_4844;

/// The version of the tables below, `user_version` of the file.
pub(super) const VERSION: i32 = 4;

/// The tables. All times are microseconds of the store's clock, see
/// [`super::time`]; a ttl is in milliseconds.
///
/// `meta` has one row: the boot id of the machine to which `anchor` belongs, the upper bound of all times
/// given out, and the position of the garbage collector.
/// A record without `client` is free and kept for its counter or its queue. `queue_until` is when the queue
/// expires; without it there is no queue, and `waiters` is not read.
/// The kind of an annotation is a number, see [`super::annotations`]; only a completion for one key has a key.
/// `arrivals` has the ids that have arrived at each latch. Those of an expired latch mean nothing.
/// `revocations` has the lease of each name that was revoked last, for observers.
/// `observers` has the clients that are notified when the record or an annotation of a name changes.
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
    CREATE TABLE records (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        client TEXT,
        number INTEGER,
        count INTEGER,
        expires_at INTEGER,
        last_token INTEGER,
        queue_until INTEGER,
        PRIMARY KEY (namespace, tenant, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE waiters (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        position INTEGER NOT NULL,
        client TEXT NOT NULL,
        number INTEGER NOT NULL,
        ttl INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        PRIMARY KEY (namespace, tenant, name, position)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE clients (
        client TEXT NOT NULL PRIMARY KEY,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        program TEXT NOT NULL,
        label TEXT NOT NULL,
        since_ms INTEGER NOT NULL,
        until INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE annotations (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        kind INTEGER NOT NULL,
        completion_key TEXT NOT NULL,
        client TEXT NOT NULL,
        number INTEGER NOT NULL,
        token INTEGER NOT NULL,
        text TEXT NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (namespace, tenant, name, kind, completion_key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX annotations_by_end ON annotations (until);
    CREATE TABLE latches (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        count INTEGER NOT NULL,
        arrived INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        PRIMARY KEY (namespace, tenant, name)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX latches_by_end ON latches (expires_at);
    CREATE TABLE arrivals (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        id TEXT NOT NULL,
        PRIMARY KEY (namespace, tenant, name, id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE revocations (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        client TEXT NOT NULL,
        number INTEGER NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (namespace, tenant, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE observers (
        namespace TEXT NOT NULL,
        tenant TEXT NOT NULL,
        name TEXT NOT NULL,
        client TEXT NOT NULL,
        until INTEGER NOT NULL,
        PRIMARY KEY (namespace, tenant, name, client)
    ) STRICT, WITHOUT ROWID;
";
