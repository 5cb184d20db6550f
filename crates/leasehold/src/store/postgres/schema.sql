-- The schema of Leasehold on PostgreSQL 12 and later. It can be run again, in one transaction:
--
--     BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock(5498968541953545298); \i schema.sql; COMMIT;
--
-- A role that only locks needs:
--
--     GRANT USAGE ON SCHEMA leasehold TO role;
--     GRANT SELECT ON leasehold.version TO role;
--     GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.heads, leasehold.members TO role;
--
-- A role that only calls leasehold.held needs USAGE on the schema.

CREATE SCHEMA IF NOT EXISTS leasehold;

-- One row: the version of this schema.
CREATE TABLE IF NOT EXISTS leasehold.version (
    id integer PRIMARY KEY CHECK (id = 1),
    version integer NOT NULL
);

-- The head of each name, as its text. No index has "value" or "until", so an update changes no index. "until" is when
-- the row may be removed, in microseconds of the server's clock.
CREATE TABLE IF NOT EXISTS leasehold.heads (
    namespace text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    until bigint NOT NULL,
    PRIMARY KEY (namespace, tenant, name)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

-- Everything beside the heads. Classes: 1 holder, 2 waiter, 3 arrival, 4 note, 5 description, 6 watcher. "place" is that
-- of a waiter. A row without "until" may be removed together with its head.
CREATE TABLE IF NOT EXISTS leasehold.members (
    class smallint NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    place bigint,
    value text COLLATE "C" NOT NULL,
    until bigint,
    PRIMARY KEY (namespace, tenant, name, class, id)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX IF NOT EXISTS members_by_place ON leasehold.members (namespace, tenant, name, place)
    WHERE place IS NOT NULL;

CREATE INDEX IF NOT EXISTS notes_by_name ON leasehold.members (namespace, tenant, name, id) WHERE class = 4;

-- The advisory locks of a name. Seed 1: its record is being changed. Seed 2, shared: a user's transaction relies on its
-- holder. Seed 3, shared, with the id of a client as the name: the client listens.
CREATE OR REPLACE FUNCTION leasehold.key(namespace text, tenant text, name text, seed bigint) RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT pg_catalog.hashtextextended(pg_catalog.concat('leasehold/', $1, '/', $2, '/', $3), $4) $$;

-- Whether no session has this lock.
CREATE OR REPLACE FUNCTION leasehold.is_free(key bigint) RETURNS boolean
    LANGUAGE sql VOLATILE
    AS $$ SELECT CASE WHEN pg_catalog.pg_try_advisory_lock($1) THEN pg_catalog.pg_advisory_unlock($1) ELSE false END $$;

-- Raises an error unless a lease with this token holds the lock. Until the transaction of the caller ends, no lease that
-- excludes it is granted the lock. The SQLSTATE is LH001 if none holds it, and LH002 if that cannot be checked here.
CREATE OR REPLACE FUNCTION leasehold.held(
    name text,
    token bigint,
    namespace text DEFAULT 'leasehold',
    tenant text DEFAULT 'default'
) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    AS $$
#variable_conflict use_column
DECLARE
    words text[];
    clock bigint;
    is_held boolean := false;
BEGIN
    IF pg_is_in_recovery() THEN
        RAISE EXCEPTION 'leasehold: the lock % cannot be checked on a standby', quote_nullable(held.name)
            USING ERRCODE = 'LH002', HINT = 'Run the transaction on the primary server.';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(leasehold.key(held.namespace, held.tenant, held.name, 2));
    IF current_setting('transaction_isolation') NOT LIKE 'read %committed' THEN
        -- The snapshot may be older than the lock. Locking the row fails if it has changed since (SQLSTATE 40001). The
        -- exception releases the lock of the row, which would delay renewals.
        BEGIN
            PERFORM 1 FROM leasehold.heads AS h
            WHERE h.namespace = held.namespace AND h.tenant = held.tenant AND h.name = held.name
            FOR SHARE;
            RAISE EXCEPTION USING ERRCODE = 'LH000';
        EXCEPTION WHEN SQLSTATE 'LH000' THEN
            NULL;
        END;
    END IF;
    SELECT string_to_array(h.value, ' ') INTO words FROM leasehold.heads AS h
    WHERE h.namespace = held.namespace AND h.tenant = held.tenant AND h.name = held.name;
    clock := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    IF words[1] = '1' AND words[3] = 'mutex' AND words[5] = 'held' THEN
        -- A lease that is handed off inside a process has several tokens, up to the counter.
        is_held := held.token BETWEEN words[8]::bigint AND words[2]::bigint AND clock < words[10]::bigint;
    ELSIF words[1] = '1' AND words[3] IN ('semaphore', 'rwlock') THEN
        -- Readers have one token, so no writer has come while one of them holds.
        SELECT EXISTS (
            SELECT FROM leasehold.members AS m
            WHERE m.class = 1 AND m.namespace = held.namespace AND m.tenant = held.tenant AND m.name = held.name
              AND split_part(m.value, ' ', 1) = '1' AND split_part(m.value, ' ', 2) = 'held'
              AND split_part(m.value, ' ', 5) = held.token::text AND clock < split_part(m.value, ' ', 7)::bigint
        ) INTO is_held;
    END IF;
    IF is_held IS NOT TRUE THEN
        RAISE EXCEPTION 'leasehold: the lock % is not held with the token %',
            quote_nullable(held.name), coalesce(held.token::text, 'NULL')
            USING ERRCODE = 'LH001', HINT = 'The lease has ended or was taken over. Do not repeat the transaction.';
    END IF;
END
$$;

INSERT INTO leasehold.version (id, version) VALUES (1, 1) ON CONFLICT (id) DO NOTHING;
