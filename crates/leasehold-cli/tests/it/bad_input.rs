//! What is wrong is said in one sentence, with code 125, and nothing is held.

use std::fs;

use leasehold_testkit::{RedisServer, free_port};

use crate::tools::{Fixture, RunToEnd, stderr, stdout};

/// The one sentence of a call that must fail.
fn refused(fixture: &Fixture, args: &[&str]) -> String {
    let output = fixture.leasehold(args).run_to_end();
    assert_eq!(output.status.code(), Some(125), "{args:?}");
    assert_eq!(stdout(&output), "", "{args:?}");
    let text = stderr(&output);
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn usage_errors_are_125() {
    let fixture = Fixture::new();
    for args in [
        &[][..],
        &["run"],
        &["run", "job"],
        &["run", "job", "--"],
        &["run", "--no-such-option", "job", "--", "true"],
        &["run", "-n", "-w", "1s", "job", "--", "true"],
        &["run", "--ttl", "soon", "job", "--", "true"],
        &["run", "--ttl", "10s", "--lease", "10s", "job", "--", "true"],
        &["run", "-E", "256", "job", "--", "true"],
        &["run", "-E", "0", "job", "--", "true"],
        &["run", "--replicas", "0", "job", "--", "true"],
        &["run", "--replicas", "some", "job", "--", "true"],
        &["run", "--replicas-timeout", "1s", "job", "--", "true"],
        &["run", "--lost-exit-code", "0", "job", "--", "true"],
        &["--store", "memory:", "run", "job", "--", "true"],
        &["no-such-command"],
        &["release", "job"],
        &["completions", "no-such-shell"],
    ] {
        refused(&fixture, args);
    }
    assert!(refused(&fixture, &["release", "job"]).contains("--force"));
}

#[test]
fn invalid_names_and_durations_are_refused() {
    let fixture = Fixture::new();
    let long = "n".repeat(513);
    for name in ["", "a{b}", "a\nb", &long] {
        let text = refused(&fixture, &["run", name, "--", "true"]);
        assert!(text.contains("cannot be the name of a lock"), "{text}");
    }
    for (option, value) in [
        ("--ttl", "0"),
        ("--ttl", "99ms"),
        ("--ttl", "25h"),
        ("--lease", "0"),
        ("--lease", "25h"),
    ] {
        let text = refused(&fixture, &["run", option, value, "job", "--", "true"]);
        assert!(text.contains("from 100 ms to 24 h"), "{text}");
    }
    let text = refused(&fixture, &["--tenant", "a:b", "ls"]);
    assert!(text.contains("tenant"), "{text}");
}

#[test]
fn invalid_stores_are_refused() {
    let fixture = Fixture::new();
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    for (url, hint) in [
        ("", "store URL must start with"),
        ("nonsense", "store URL must start with"),
        ("http://localhost/", "store URL must start with"),
        ("redis://", ""),
        ("redis://host:notaport", ""),
        ("sqlite:", ""),
        (nobody.as_str(), "127.0.0.1"),
    ] {
        let text = refused(&fixture, &["--store", url, "run", "job", "--", "true"]);
        assert!(text.contains(hint), "{url}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{url}: {text}");
    }
}

#[test]
fn a_state_directory_that_cannot_be_written_is_named() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), "").unwrap();
    let mut run = fixture.run_script(&["job"], "true");
    run.env("XDG_STATE_HOME", fixture.path("file"));
    let output = run.run_to_end();
    assert_eq!(output.status.code(), Some(125));
    let text = stderr(&output);
    assert!(text.contains("/file/leasehold"), "{text}");
}

#[test]
fn a_damaged_file_is_named_and_left_alone() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("leasehold")).unwrap();
    let file = fixture.path("leasehold/locks.db");
    fs::write(&file, "this is no database, whatever its name says").unwrap();
    let text = refused(&fixture, &["run", "job", "--", "true"]);
    assert!(text.contains("locks.db"), "{text}");
    assert!(fs::read_to_string(file).unwrap().starts_with("this is no"));
}

#[test]
fn passwords_stay_out_of_argv_errors_and_listings() {
    let server = RedisServer::options().requirepass("s3cret").start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let with_password = format!("redis://:s3cret@127.0.0.1:{}", server.port());
    let fixture = Fixture::new();

    let text = refused(&fixture, &["--store", &with_password, "ls"]);
    assert!(text.contains("LEASEHOLD_PASSWORD"), "{text}");
    assert!(!text.contains("s3cret"), "{text}");
    let text = refused(&fixture, &["--store", &url, "ls"]);
    assert!(text.contains("password"), "{text}");

    let run = |variable: &str, value: &str| {
        let mut run = fixture.run_script(&["job"], "echo $LEASEHOLD_STORE");
        run.env("LEASEHOLD_STORE", &url).env(variable, value);
        run.run_to_end()
    };
    let wrong = run("LEASEHOLD_PASSWORD", "wr0ng");
    assert_eq!(wrong.status.code(), Some(125));
    assert!(!stderr(&wrong).contains("wr0ng"), "{}", stderr(&wrong));
    fs::write(fixture.path("password"), "s3cret\n").unwrap();
    let file = fixture.path("password");
    for output in [
        run("LEASEHOLD_STORE", &with_password),
        run("LEASEHOLD_PASSWORD", "s3cret"),
        run("LEASEHOLD_PASSWORD_FILE", file.to_str().unwrap()),
    ] {
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let shown = stdout(&output);
        assert!(shown.starts_with("redis://") && !shown.contains("s3cret"));
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let fixture = Fixture::new();
    let program = env!("CARGO_BIN_EXE_leasehold");
    let mut shell = std::process::Command::new("bash");
    shell.args([
        "-c",
        &format!("set -o pipefail; {program} man | head -c 10"),
    ]);
    let output = shell.run_to_end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    drop(fixture);
}

#[test]
fn missing_replicas_are_an_error_at_once() {
    let fixture = Fixture::new();
    let text = refused(&fixture, &["run", "--replicas", "all", "job", "--", "true"]);
    assert!(text.contains("waits for no replicas"), "{text}");
    let server = RedisServer::start();
    let run = ["run", "--replicas", "1", "job", "--", "true"];
    let url = server.url();
    let text = refused(&fixture, &[&["--store", &url][..], &run].concat());
    assert!(
        text.contains("has 0 replicas that are online, and 1 must"),
        "{text}"
    );
    let _replica = RedisServer::options().replica_of(&server).start();
    leasehold_testkit::eventually(std::time::Duration::from_secs(10), || {
        let output = fixture.leasehold(["--store", &url]).args(run).run_to_end();
        output.status.success()
    });
    assert!(
        server
            .cli(&["INFO", "commandstats"])
            .contains("cmdstat_wait")
    );
}
