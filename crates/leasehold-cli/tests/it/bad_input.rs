//! What is wrong is said in one sentence, with code 125, and nothing is held.

use std::fs;
use std::process::Command;

use leasehold_testkit::{RedisServer, eventually, free_port};

use crate::tools::{Fixture, RunToEnd, SOON, code, stderr, stdout};

/// The one sentence of a call that must fail.
fn refused(fixture: &Fixture, args: &[&str]) -> String {
    let output = fixture.leasehold(args).run_to_end();
    assert_eq!(output.status.code(), Some(125), "{args:?}");
    assert_eq!(stdout(&output), "", "{args:?}");
    let text = stderr(&output);
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// Expects a refusal in one line that contains a hint.
fn check_sentence(fixture: &Fixture, args: &[&str], hint: &str) {
    let text = refused(fixture, args);
    assert!(text.contains(hint), "{args:?}: {text}");
    assert_eq!(text.trim_end().lines().count(), 1, "{args:?}: {text}");
}

#[test]
fn invalid_arguments_are_refused() {
    let fixture = Fixture::new();
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let long = "n".repeat(513);
    // The messages of clap have more lines.
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
        &["no-such-command"],
        &["doctor", "more"],
        &["completions", "no-such-shell"],
    ] {
        refused(&fixture, args);
    }
    let (name, range) = ("cannot be the name of a lock", "from 100 ms to 24 h");
    let scheme = "store URL must start with";
    for (args, hint) in [
        (&["release", "job"][..], "--force"),
        (&["--tenant", "a:b", "ls"], "tenant"),
        (&["doctor", "--ttl", "1ms"], range),
        (&["doctor", "--store", "nonsense"], scheme),
        (&["doctor", "--store", &nobody], "127.0.0.1"),
        (&["run", "", "--", "true"], name),
        (&["run", "a{b}", "--", "true"], name),
        (&["run", "a\nb", "--", "true"], name),
        (&["run", &long, "--", "true"], name),
    ] {
        check_sentence(&fixture, args, hint);
    }
    for (option, value, hint) in [
        ("--ttl", "0", range),
        ("--ttl", "99ms", range),
        ("--ttl", "25h", range),
        ("--lease", "0", range),
        ("--lease", "25h", range),
        ("--store", "memory:", "memory:"),
        ("--store", "", scheme),
        ("--store", "http://localhost/", scheme),
        ("--store", "redis://", ""),
        ("--store", "redis://host:notaport", ""),
        ("--store", "sqlite:", ""),
        ("--store", &nobody, "127.0.0.1"),
    ] {
        let args = ["run", option, value, "job", "--", "true"];
        check_sentence(&fixture, &args, hint);
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
fn an_invalid_log_filter_is_reported_and_ends_nothing() {
    let fixture = Fixture::new();
    let output = fixture
        .leasehold(["run", "job", "--", "echo", "ran"])
        .env("LEASEHOLD_LOG", "leasehold=loud")
        .run_to_end();
    assert_eq!(
        (stdout(&output).as_str(), output.status.code()),
        ("ran\n", Some(0))
    );
    let text = stderr(&output);
    assert!(text.contains("LEASEHOLD_LOG is not a log filter"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
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
    let program = env!("CARGO_BIN_EXE_leasehold");
    let script = format!("set -o pipefail; {program} man | head -c 10");
    let output = Command::new("bash").args(["-c", &script]).run_to_end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn missing_replicas_are_an_error_at_once() {
    let run = ["run", "--replicas", "1", "job", "--", "true"];
    let text = refused(&Fixture::new(), &run);
    assert!(text.contains("this store has no replicas"), "{text}");
    let (server, fixture) = Fixture::redis();
    let text = refused(&fixture, &run);
    assert!(text.contains("has 0 replicas that are online"), "{text}");
    let _replica = RedisServer::options().replica_of(&server).start();
    eventually(SOON, || code(&mut fixture.leasehold(run)) == 0);
    let calls = server.cli(&["INFO", "commandstats"]);
    assert!(calls.contains("cmdstat_wait"), "{calls}");
}
