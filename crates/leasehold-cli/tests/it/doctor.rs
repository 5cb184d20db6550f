//! `doctor` for people and for programs.

use leasehold_testkit::{PostgresServer, RedisOptions, RedisServer};
use serde_json::Value;

use crate::schema::checked;
use crate::tools::{EndsWith, Fixture, RunToEnd, stderr, stdout};

/// A server with which nothing is wrong.
fn healthy() -> RedisOptions {
    let options = RedisServer::options().append_only();
    options.config("aof-load-truncated no")
}

fn json(fixture: &Fixture) -> (i32, Value) {
    let output = fixture.leasehold(["doctor", "--json"]).run_to_end();
    let report = checked("doctor", &stdout(&output));
    (output.status.code().unwrap(), report)
}

#[test]
fn the_exit_code_shows_the_severity() {
    let server = healthy().start();
    let fixture = Fixture::with_store(server.url());
    for (settings, exit, severity) in [
        (&[][..], 0, "ok"),
        (&[("aof-load-truncated", "yes")], 0, "note"),
        (&[("appendfsync", "everysec")], 1, "warning"),
        (
            &[("maxmemory-policy", "allkeys-lru"), ("maxmemory", "100mb")],
            2,
            "danger",
        ),
    ] {
        for (name, value) in settings {
            server.cli(&["CONFIG", "SET", name, value]);
        }
        let (code, report) = json(&fixture);
        assert_eq!((code, report["severity"].as_str()), (exit, Some(severity)));
        let human = fixture.leasehold(["doctor"]).ends_with(exit);
        assert_eq!(stderr(&human), "");
    }
}

#[test]
fn the_json_has_what_was_found() {
    let server = healthy().config("appendfsync everysec").start();
    let fixture = Fixture::with_store(server.url());
    let (_, report) = json(&fixture);
    assert_eq!(report["store"], server.url());
    let acl = report["acl"].as_str().unwrap();
    assert!(acl.starts_with("ACL SETUSER leasehold "), "{acl}");
    let findings = report["findings"].as_array().unwrap();
    let rank = |finding: &Value| {
        let order = ["danger", "warning", "unknown", "note", "ok"];
        let severity = finding["severity"].as_str().unwrap();
        order.iter().position(|known| *known == severity).unwrap()
    };
    assert!(findings.is_sorted_by_key(rank));
    assert_eq!(findings[0]["check"], "persistence");
    for finding in findings {
        assert!(finding["node"].is_null());
        let fine = finding["severity"] == "ok";
        assert_eq!(finding["fix"].is_null(), fine, "{finding}");
        assert_eq!(finding["consequence"].is_null(), fine, "{finding}");
    }
}

#[test]
fn the_text_has_consequences_and_fixes() {
    let (_server, fixture) = Fixture::redis();
    let text = stdout(&fixture.leasehold(["doctor"]).run_to_end());
    for part in [
        "danger   persistence  none",
        "a restart of the server frees every lock",
        "fix: CONFIG SET appendonly yes",
        "ok       eviction     noeviction",
        "ACL SETUSER leasehold reset on >PASSWORD ~leasehold:* &leasehold:* ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let last = text.trim_end().lines().next_back().unwrap();
    let counted = "1 danger, 0 warnings, 0 unknown, 0 notes";
    assert!(last.contains(counted), "{last}");
    assert_aligned(&text);
}

/// Checks that the text beside the columns is aligned and wrapped, and that no line ends with a space.
#[track_caller]
fn assert_aligned(text: &str) {
    const COLUMNS: usize = 22;
    let severities = ["danger ", "warning ", "unknown ", "note ", "ok "];
    let findings = text.lines().skip(2).take_while(|line| !line.is_empty());
    for line in findings.clone() {
        let (columns, beside) = line.split_at(COLUMNS);
        let is_head = severities.iter().any(|it| columns.starts_with(it));
        assert!(is_head || columns.trim().is_empty(), "{line}");
        assert!(!beside.starts_with(' ') && columns.ends_with(' '), "{line}");
    }
    for line in text.lines() {
        assert_eq!(line, line.trim_end());
        assert!(
            line.contains("ACL SETUSER") || line.chars().count() <= 100,
            "{line}"
        );
    }
    let is_complete = |lines: Vec<&str>| {
        lines[0].starts_with("ok ")
            || lines.len() > 2 && lines.iter().any(|it| it.contains("fix: "))
    };
    let lines: Vec<_> = findings.collect();
    let blocks = lines.chunk_by(|_, next| next.starts_with(' '));
    assert!(blocks.map(<[_]>::to_vec).all(is_complete), "{text}");
}

#[test]
fn the_default_store_and_memory() {
    let fixture = Fixture::new();
    fixture.leasehold(["doctor"]).ends_with(0);
    assert!(!fixture.path("leasehold").exists(), "it has made the file");
    assert_eq!(fixture.try_run(&["job"]), 0);
    let text = stdout(&fixture.leasehold(["doctor"]).run_to_end());
    assert!(text.contains("it can be read and written"), "{text}");
    let (code, report) = json(&fixture);
    assert_eq!((code, &report["acl"]), (0, &Value::Null));
    let (code, _) = json(&Fixture::with_store("memory:".to_owned()));
    assert_eq!(code, 1);
}

/// What it prints is what the server runs.
#[test]
fn the_setup_of_a_database_is_printed() {
    let server = PostgresServer::start();
    let fixture = Fixture::with_store(server.url().replace("testkit@", "app@"));
    server.run(&["CREATE ROLE app LOGIN"]);
    for args in [
        &["doctor", "--setup"][..],
        &["doctor", "--setup", "--role", "app"],
    ] {
        let setup = fixture.leasehold(args).run_to_end();
        server.run(&[&stdout(&setup)]);
        assert_eq!(server.run(&["SELECT version FROM leasehold.version"]), "1");
    }
    assert_eq!(fixture.try_run(&["job"]), 0);
    let text = stdout(&fixture.leasehold(["doctor"]).run_to_end());
    for part in [
        "ok       rights       user \"app\" has all",
        "danger   persistence  fsync off",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut command = fixture.leasehold(["doctor", "--role", "app"]);
    command.ends_with(125);
}
