//! Facts that `tests/it/doctor` cannot bring about with real servers, as a table.

use super::*;
use crate::doctor::Severity::{Danger, Note, Ok, Unknown, Warning};
use crate::doctor::finding::{ChangeOf, assert_severities, worst};
use crate::store::diagnose::{ClockFacts, Fields, Standby, TableFacts};

fn healthy() -> DatabaseFacts {
    DatabaseFacts {
        name: "postgres://db/app".into(),
        server: Fields::from_iter([("user", "app"), ("in_recovery", "f"), ("connections", "20")]),
        settings: Fields::from_iter([
            ("server_version_num", "170004"),
            ("fsync", "on"),
            ("full_page_writes", "on"),
            ("synchronous_commit", "on"),
            ("synchronous_standby_names", ""),
            ("max_connections", "100"),
            ("superuser_reserved_connections", "3"),
            ("autovacuum", "on"),
            ("idle_in_transaction_session_timeout", "60000"),
            ("default_transaction_read_only", "off"),
        ]),
        standbys: Vec::new(),
        clock: Some(ClockFacts { ahead: 0, error: 0 }),
        link: Link::Session,
        schema: Some("1".into()),
        tables: vec![TableFacts {
            name: "leasehold.heads".into(),
            is_logged: true,
            is_unvacuumed: false,
            rows: 1_000,
            dead_rows: 500,
            size: 65_536,
        }],
        missing_rights: Vec::new(),
        missing: Vec::new(),
    }
}

fn set(facts: &mut DatabaseFacts, name: &str, value: &str) {
    facts.settings.0.insert(name.into(), value.into());
}

fn standby(state: Option<&str>, is_synchronous: Option<bool>) -> Standby {
    Standby {
        name: "db2".into(),
        state: state.map(Into::into),
        is_synchronous,
    }
}

const CHANGES: [ChangeOf<DatabaseFacts>; 13] = [
    (Ok, "", |_| {}),
    (Danger, "role", |it| {
        it.server.0.insert("in_recovery".into(), "t".into());
    }),
    (Note, "version", |it| {
        set(it, "server_version_num", "120022");
    }),
    (Ok, "", |it| it.link = Link::Pooled { listens: true }),
    (Warning, "pooler", |it| {
        it.link = Link::Pooled { listens: false };
    }),
    (Warning, "persistence", |it| {
        set(it, "synchronous_commit", "off");
    }),
    (Warning, "standbys", |it| {
        it.standbys.push(standby(Some("streaming"), Some(false)));
    }),
    (Ok, "", |it| {
        set(it, "synchronous_standby_names", "db2");
        it.standbys.push(standby(Some("streaming"), Some(true)));
    }),
    (Danger, "standbys", |it| {
        set(it, "synchronous_standby_names", "db2");
    }),
    (Warning, "standbys", |it| {
        set(it, "synchronous_standby_names", "db2");
        set(it, "synchronous_commit", "local");
        it.standbys.push(standby(Some("catchup"), Some(true)));
    }),
    (Warning, "connections", |it| {
        it.server.0.insert("connections".into(), "95".into());
    }),
    (Warning, "autovacuum", |it| {
        it.tables[0].is_unvacuumed = true;
    }),
    (Warning, "autovacuum", |it| it.tables[0].dead_rows = 200_000),
];

#[test]
fn each_fact_of_a_database_has_its_severity() {
    assert_severities(healthy, check, &CHANGES);
}

#[test]
fn facts_that_are_hidden_are_unknown() {
    let mut facts = healthy();
    set(&mut facts, "synchronous_standby_names", "db2");
    facts.standbys.push(standby(None, None));
    facts.missing.push("the states of the standbys".into());
    let findings = check(&facts);
    assert_eq!(worst(&findings), Unknown, "{findings:#?}");
    let fix = findings.iter().find_map(|finding| finding.fix.as_deref());
    assert!(fix.is_some_and(|fix| fix.ends_with("GRANT pg_monitor TO \"app\"")));
}
