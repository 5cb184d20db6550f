//! Checks of a PostgreSQL database.

mod capacity;
mod durability;

use super::{Finding, clock};
use crate::store::diagnose::{DatabaseFacts, Link};

/// The first major version that still gets fixes of its errors.
const SUPPORTED_SINCE: u64 = 14;

pub(super) fn check(facts: &DatabaseFacts) -> Vec<Finding> {
    let missing = Finding::incomplete(
        &facts.missing,
        "settings under which held locks are forgotten would not be found",
        format!(
            "run doctor as a user that may read statistics: GRANT pg_monitor TO {}",
            user(facts)
        ),
    );
    let mut findings: Vec<_> = missing.into_iter().collect();
    findings.extend(version(facts));
    if let Some(unfit) = read_only(facts) {
        // The other checks are meaningless for a server that cannot keep locks.
        findings.push(unfit);
        return findings;
    }
    findings.push(schema(facts));
    findings.extend(rights(facts));
    findings.push(link(facts.link));
    findings.extend(durability::check(facts));
    findings.extend(capacity::check(facts));
    findings.extend(facts.clock.map(clock::check));
    findings
}

/// The user of the locks, as statements have it.
fn user(facts: &DatabaseFacts) -> String {
    quoted(facts.server.get("user").unwrap_or("NAME"))
}

fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

fn version(facts: &DatabaseFacts) -> Option<Finding> {
    let number = facts.settings.number("server_version_num")?;
    let (major, minor) = (number / 10_000, number % 10_000);
    let observed = format!("PostgreSQL {major}.{minor}");
    Some(match major < SUPPORTED_SINCE {
        true => Finding::note("version", observed)
            .because("its errors are no longer fixed, and Leasehold is not tested with it")
            .fix("upgrade to a supported version of PostgreSQL"),
        false => Finding::ok("version", observed),
    })
}

/// The finding that the server accepts no writes.
fn read_only(facts: &DatabaseFacts) -> Option<Finding> {
    let (observed, fix) = if facts.server.is("in_recovery", "t") {
        (
            "this is a read-only standby",
            "name the primary in the store URL, or all hosts: the writable one is chosen",
        )
    } else if facts.settings.is("default_transaction_read_only", "on") {
        (
            "transactions are read-only by default",
            "ALTER ROLE or ALTER DATABASE ... RESET default_transaction_read_only",
        )
    } else {
        return None;
    };
    let finding = Finding::danger("role", observed).because("no lock can be acquired there");
    Some(finding.fix(fix))
}

fn schema(facts: &DatabaseFacts) -> Finding {
    const CHECK: &str = "schema";
    let user = facts.server.get("user").unwrap_or("NAME");
    match &facts.schema {
        Some(version) => Finding::ok(CHECK, format!("version {version}")),
        None if !facts.tables.is_empty() => Finding::danger(CHECK, "its version cannot be read")
            .because("no lock can be acquired")
            .fix("grant the rights that are missing"),
        None if facts.server.is("may_create", "t") => {
            Finding::ok(CHECK, "it does not exist yet; the first lock creates it")
        }
        None => Finding::danger(CHECK, "it does not exist, and our user may not create it")
            .because("no lock can be acquired")
            .fix(format!(
                "as the owner of the database: leasehold doctor --setup --role {user} | psql"
            )),
    }
}

fn rights(facts: &DatabaseFacts) -> Option<Finding> {
    const CHECK: &str = "rights";
    let user = user(facts);
    if facts.tables.is_empty() {
        return None;
    }
    Some(match &facts.missing_rights[..] {
        [] => Finding::ok(CHECK, format!("user {user} has all rights that locks need")),
        missing => Finding::danger(CHECK, format!("user {user} lacks {}", missing.join(", ")))
            .because("it is not granted any lock, or cannot renew or release one")
            .fix(
                missing
                    .iter()
                    .map(|right| format!("GRANT {right} TO {user};"))
                    .collect::<Vec<_>>()
                    .join(" "),
            ),
    })
}

fn link(link: Link) -> Finding {
    const CHECK: &str = "pooler";
    match link {
        Link::Session => Finding::ok(CHECK, "none, or one that keeps sessions"),
        Link::Pooled { listens: true } => Finding::ok(
            CHECK,
            "transactions are pooled; notifications have a connection of their own",
        ),
        Link::Pooled { listens: false } => Finding::warning(CHECK, "transactions are pooled")
            .because(
                "no notification arrives through such a pooler: waiters retry at intervals, in no \
                 order, and a loss is noticed at the next renewal",
            )
            .fix("add ?listen=HOST:PORT, the address of the server itself, to the store URL"),
    }
}

#[cfg(test)]
mod tests;
