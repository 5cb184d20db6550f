//! Checks of connections, timeouts and the size of the tables of a PostgreSQL server.

use crate::doctor::Finding;
use crate::store::diagnose::{DatabaseFacts, TableFacts};

/// The number of free connections below which a client that reconnects may be refused.
const CONNECTIONS_MIN: u64 = 5;

/// The number of row versions from which a table is not vacuumed as it should be, and their multiple of the rows.
const DEAD_ROWS_MAX: u64 = 100_000;
const DEAD_RATIO_MAX: u64 = 10;

pub(super) fn check(facts: &DatabaseFacts) -> Vec<Finding> {
    let mut findings: Vec<_> = connections(facts).into_iter().collect();
    findings.extend(timeout(facts));
    findings.push(vacuum(facts));
    findings
}

fn connections(facts: &DatabaseFacts) -> Option<Finding> {
    const CHECK: &str = "connections";
    let settings = &facts.settings;
    let max = settings.number("max_connections")?;
    let reserved = ["superuser_reserved_connections", "reserved_connections"];
    let reserved: u64 = reserved.iter().filter_map(|it| settings.number(it)).sum();
    let used = facts.server.number("connections")?;
    let free = max.saturating_sub(reserved).saturating_sub(used);
    let observed = format!("{used} of {max} used, {reserved} reserved");
    Some(match free < CONNECTIONS_MIN {
        true => Finding::warning(CHECK, observed)
            .because("a client that has to reconnect may be refused, and then loses its locks")
            .fix("raise max_connections, or put a pooler between programs and server"),
        false => Finding::ok(CHECK, observed),
    })
}

fn timeout(facts: &DatabaseFacts) -> Option<Finding> {
    const CHECK: &str = "timeouts";
    const NAME: &str = "idle_in_transaction_session_timeout";
    let database = super::quoted(facts.server.get("database").unwrap_or("NAME"));
    Some(match facts.settings.number(NAME)? {
        0 => Finding::note(CHECK, format!("{NAME} is not set"))
            .because(
                "a program that hangs in a transaction after leasehold.held() keeps its lock from \
                 all others",
            )
            .fix(format!("ALTER DATABASE {database} SET {NAME} = '1min'")),
        millis => Finding::ok(CHECK, format!("{NAME} is {millis} ms")),
    })
}

fn vacuum(facts: &DatabaseFacts) -> Finding {
    const CHECK: &str = "autovacuum";
    const GROWS: &str =
        "versions of rows are not removed: the tables grow, and each request takes longer";
    if facts.settings.is("autovacuum", "off") {
        return Finding::warning(CHECK, "off")
            .because(GROWS)
            .fix("ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf();");
    }
    if let Some(TableFacts { name, .. }) = facts.tables.iter().find(|it| it.is_unvacuumed) {
        return Finding::warning(CHECK, format!("disabled for the table {name}"))
            .because(GROWS)
            .fix(format!("ALTER TABLE {name} RESET (autovacuum_enabled)"));
    }
    let is_bloated =
        |it: &&TableFacts| it.dead_rows > DEAD_ROWS_MAX && it.dead_rows / DEAD_RATIO_MAX > it.rows;
    if let Some(table) = facts.tables.iter().find(is_bloated) {
        let TableFacts {
            name,
            rows,
            dead_rows,
            ..
        } = table;
        let observed = format!("the table {name} has {rows} rows and {dead_rows} dead ones");
        return Finding::warning(CHECK, observed).because(GROWS).fix(
            "end the transactions that are open for long (pg_stat_activity.xact_start), prepared \
             transactions and unused replication slots",
        );
    }
    let size: u64 = facts.tables.iter().map(|table| table.size).sum();
    Finding::ok(CHECK, format!("on; the tables have {} KiB", size / 1024))
}
