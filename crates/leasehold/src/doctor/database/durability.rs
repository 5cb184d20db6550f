//! Checks of what a crash or a failover of a PostgreSQL server forgets.

use crate::doctor::Finding;
use crate::doctor::finding::count;
use crate::store::diagnose::{DatabaseFacts, Standby};

/// Settings without which a crash of the machine can destroy the database.
const SAFE: [&str; 2] = ["fsync", "full_page_writes"];

pub(super) fn check(facts: &DatabaseFacts) -> Vec<Finding> {
    let mut findings = vec![crash(facts)];
    findings.extend(unlogged(facts));
    findings.extend(standbys(facts));
    findings
}

/// Whether commits wait for the synchronous standbys to write them to their disks.
fn waits_for_standbys(facts: &DatabaseFacts) -> bool {
    let settings = &facts.settings;
    let names = settings.get("synchronous_standby_names");
    let commit = settings.get("synchronous_commit").unwrap_or("on");
    !["off", "local", "remote_write"].contains(&commit)
        && names.is_some_and(|names| !names.trim().is_empty())
}

fn crash(facts: &DatabaseFacts) -> Finding {
    const CHECK: &str = "persistence";
    let settings = &facts.settings;
    let unsafe_setting = SAFE.into_iter().find(|name| settings.is(name, "off"));
    if let Some(name) = unsafe_setting {
        return Finding::danger(CHECK, format!("{name} off"))
            .because("a crash of the machine can destroy the database, locks and tokens included")
            .fix(format!(
                "ALTER SYSTEM SET {name} = on; SELECT pg_reload_conf();"
            ));
    }
    let commit = settings.get("synchronous_commit").unwrap_or("unknown");
    let observed = format!("synchronous_commit {commit}");
    match commit {
        "off" => Finding::warning(CHECK, observed)
            .because(
                "a crash of the server forgets the last moments: up to three times \
                 wal_writer_delay, which is 200 ms by default",
            )
            .fix("leave synchronous_commit out of the store URL"),
        _ => Finding::ok(CHECK, observed),
    }
}

fn unlogged(facts: &DatabaseFacts) -> Option<Finding> {
    let table = facts.tables.iter().find(|table| !table.is_logged)?;
    let name = &table.name;
    let finding = Finding::danger("persistence", format!("the table {name} is unlogged"))
        .because("a crash of the server empties it: all locks are free")
        .fix(format!("ALTER TABLE {name} SET LOGGED"));
    Some(finding)
}

fn standbys(facts: &DatabaseFacts) -> Vec<Finding> {
    const CHECK: &str = "standbys";
    let (standbys, waits) = (&facts.standbys, waits_for_standbys(facts));
    let is_hidden = standbys.iter().any(|it| it.is_synchronous.is_none());
    let is_synchronous = |it: &&Standby| it.is_synchronous == Some(true);
    let synchronous = standbys.iter().filter(is_synchronous).count();
    let number = count(standbys.len() as u64, "standby connection");
    if waits && synchronous == 0 && !is_hidden {
        let names = facts.settings.get("synchronous_standby_names");
        let observed = format!(
            "synchronous_standby_names is {}, and none of them is connected",
            names.unwrap_or_default()
        );
        return vec![
            Finding::danger(CHECK, observed)
                .because("no commit ends: no lock can be acquired, renewed or released")
                .fix("bring a standby back, or change synchronous_standby_names"),
        ];
    }
    if standbys.is_empty() {
        return vec![Finding::ok(CHECK, "none, so none can be promoted")];
    }
    let mut findings: Vec<_> = standbys.iter().filter_map(behind).collect();
    findings.push(match waits {
        true => Finding::ok(CHECK, format!("{number}; commits wait for some of them")),
        false => Finding::warning(CHECK, format!("{number}, and no commit waits for one"))
            .because(
                "replication is asynchronous: a promoted standby may lack locks that are held, and \
                 a primary that is cut off continues to grant until it is stopped",
            )
            .fix(
                "set synchronous_standby_names, and leave synchronous_commit on; promote only \
                 synchronous standbys; check fencing tokens",
            ),
    });
    findings
}

fn behind(standby: &Standby) -> Option<Finding> {
    let state = standby.state.as_deref().filter(|it| *it != "streaming")?;
    let observed = format!("the standby {} is in the state {state}", standby.name);
    let finding = Finding::warning("standbys", observed)
        .because("if it is promoted, it lacks the changes that it has not received")
        .fix("check its log and its network");
    Some(finding)
}
