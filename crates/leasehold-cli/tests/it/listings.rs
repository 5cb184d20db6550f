//! `ls`, `show` and `release` for people and for programs.

use std::fs;
use std::process::Stdio;

use leasehold_testkit::{Masters, RedisServer, eventually, free_port};
use serde_json::Value;

use crate::schema::checked;
use crate::tools::{EndsWith, Fixture, RunToEnd, SOON, assert_like, stderr, stdout};

/// The exit code and the output of a command that prints nothing on stderr.
fn printed(fixture: &Fixture, args: &[&str]) -> (i32, String) {
    let output = fixture.leasehold(args).run_to_end();
    assert_eq!(stderr(&output), "", "{args:?}");
    (output.status.code().unwrap(), stdout(&output))
}

/// The exit code and the object of a command with `--json`.
fn json(fixture: &Fixture, args: &[&str]) -> (i32, Value) {
    let (code, text) = printed(fixture, &[args, &["--json"]].concat());
    (code, checked(args[0], &text))
}

/// A lock that is free, then held with a waiter, then revoked.
pub(crate) fn check(fixture: &Fixture, has_queue: bool) {
    check_free(fixture);
    let run = fixture.hold(&["--label", "nightly", "job"]);
    // Who holds it is written down beside the lock, a moment later.
    eventually(SOON, || printed(fixture, &["ls"]).1.contains("nightly"));
    let mut waiting = fixture.run_script(&["--label", "next", "job"], "true");
    waiting.stdout(Stdio::null()).stderr(Stdio::piped());
    let waiting = waiting.spawn().unwrap();
    let next = match has_queue {
        true => "next".into(),
        false => Value::Null,
    };
    eventually(SOON, || {
        let (_, shown) = json(fixture, &["show", "job"]);
        shown["lock"]["waiters"][0]["client"]["label"] == next
    });
    check_table(fixture, run.process.id(), has_queue);
    check_block(fixture, waiting.id(), has_queue);
    let lock = check_json(fixture, run.process.id());

    let (code, mut released) = json(fixture, &["release", "--force", "job"]);
    let mut held = released["lock"].take();
    held["time_left_ms"].take();
    assert_eq!((code, held), (0, lock));
    run.signal("TERM");
    run.finish();
    waiting.ends_with(0);
}

fn check_free(fixture: &Fixture) {
    let none = fixture.leasehold(["ls"]).ends_with(0);
    assert_eq!(stdout(&none), "");
    let text = stderr(&none);
    let expected = "[..]no locks are held in namespace leasehold, tenant default, at [..]";
    assert_like(&text, expected);
    let (code, listed) = json(fixture, &["ls"]);
    assert_eq!((code, &listed["locks"]), (0, &serde_json::json!([])));
    let store = listed["store"].as_str().unwrap();
    let text = format!("job is free at {store}\n");
    assert_eq!(printed(fixture, &["show", "job"]), (1, text));
    let scope = ["--namespace", "other", "--tenant", "blue"];
    let text = format!("job is free at {store}, namespace other, tenant blue\n");
    let show = [&["show", "job"], &scope[..]].concat();
    assert_eq!(printed(fixture, &show), (1, text));
    let (code, shown) = json(fixture, &["show", "job"]);
    assert_eq!((code, &shown["name"]), (1, &"job".into()));
    assert_eq!(shown["store"], listed["store"]);
    let text = format!("job was free already at {store}\n");
    assert_eq!(printed(fixture, &["release", "--force", "job"]), (1, text));
    let (code, released) = json(fixture, &["release", "--force", "job"]);
    assert_eq!((code, &released["released"]), (1, &false.into()));
}

fn check_table(fixture: &Fixture, holder: u32, has_queue: bool) {
    let (code, table) = printed(fixture, &["ls"]);
    assert_eq!(code, 0);
    let lines: Vec<_> = table.lines().collect();
    let head = ["NAME", "HOLDER", "HELD FOR", "TIME LEFT", "WAITERS"];
    let head = head.map(|column| lines[0].find(column).expect(column));
    assert!(head.is_sorted(), "{table}");
    let in_words = format!(", pid {holder}, sh (\"nightly\")");
    assert_like(lines[1], &format!("job [..]{in_words}[..]"));
    let waiters = if has_queue { "1" } else { "0" };
    assert_eq!(lines[1].split_whitespace().next_back(), Some(waiters));
}

fn check_block(fixture: &Fixture, waiter: u32, has_queue: bool) {
    let (code, block) = printed(fixture, &["show", "job"]);
    assert_eq!(code, 0);
    let queue = match has_queue {
        true => "queue      1 waiter",
        false => "queue      empty",
    };
    let fields =
        "name [..]\nholder [..]\nsince [..]\ntime left [..]\ntoken [..]\ncount [..]\nlease [..]\n";
    assert_like(&block, &format!("{fields}{queue}\n[..]"));
    let pid = waiter.to_string();
    let place = |line: &str| {
        let cells: Vec<_> = line.split_whitespace().collect();
        matches!(&*cells, ["1", "next", _, found, "sh", _] if *found == pid)
    };
    assert_eq!(block.lines().any(place), has_queue, "{block}");
}

/// The lock without its remaining time, which is the same in `show` and `ls`.
fn check_json(fixture: &Fixture, holder: u32) -> Value {
    let mut lock = json(fixture, &["show", "job"]).1["lock"].take();
    let mut listed = json(fixture, &["ls"]).1["locks"][0].take();
    let left = lock["time_left_ms"].take().as_u64().unwrap();
    // A busy machine may be about to renew it.
    assert!((10_000..=30_000).contains(&left), "{left}");
    listed["time_left_ms"].take();
    assert_eq!(lock, listed);
    assert_eq!(lock["holder"]["pid"], holder);
    assert_eq!(lock["holder"]["program"], "sh");
    assert_eq!(lock["holder"]["label"], "nightly");
    assert_eq!(lock["count"], 1);
    assert!(lock["token"].as_u64().unwrap() > 1_700_000_000_000_000);
    lock
}

#[test]
fn on_sqlite() {
    check(&Fixture::new(), true);
}

#[test]
fn on_three_masters_also_without_one() {
    let mut masters = Masters::aged(3);
    let fixture = Fixture::with_store(masters.url());
    check(&fixture, false);
    masters.server_mut(1).kill9();
    check(&fixture, false);
}

#[test]
fn locks_are_sorted_and_filtered() {
    let fixture = Fixture::new();
    let hold = |ttl, name| fixture.hold(&["--lease", ttl, name]);
    let runs = [
        hold("2h", "deploy/web"),
        hold("1h", "backup"),
        hold("3h", "deploy/db"),
    ];
    let names = |args: &[&str]| {
        let (_, listed) = json(&fixture, &[&["ls"], args].concat());
        let (_, table) = printed(&fixture, &[&["ls"], args].concat());
        let cells = table
            .lines()
            .skip(1)
            .map(|line| line.split(' ').next().unwrap());
        let locks = listed["locks"].as_array().unwrap().iter();
        let names: Vec<_> = locks.map(|lock| lock["name"].as_str().unwrap()).collect();
        assert_eq!(cells.collect::<Vec<_>>(), names);
        names.join(" ")
    };
    let by_age = "deploy/web backup deploy/db";
    assert_eq!(names(&[]), by_age);
    assert_eq!(names(&["--sort", "age"]), by_age);
    assert_eq!(names(&["--sort", "name"]), "backup deploy/db deploy/web");
    let by_time_left = "backup deploy/web deploy/db";
    assert_eq!(names(&["--sort", "time-left"]), by_time_left);
    assert_eq!(names(&["--filter", "deploy/*"]), "deploy/web deploy/db");
    let both = ["--filter", "deploy/d?", "--sort", "name"];
    assert_eq!(names(&both), "deploy/db");
    let mut none = fixture.leasehold(["ls", "--filter", "deploy"]);
    let none = none.ends_with(0);
    assert_eq!(stdout(&none), "");
    let hint =
        "[..]no held lock matches \"deploy\" in namespace leasehold[..]as in \"*deploy*\"[..]";
    assert_like(&stderr(&none), hint);
    let (_, revoked) = printed(&fixture, &["release", "--force", "backup"]);
    assert_like(&revoked, "backup was revoked\ncut off    [..]");
    for run in runs {
        run.signal("TERM");
        run.finish();
    }
}

/// With `--json` a failure is one object on stderr, whose message is that of the text.
#[test]
fn failures_are_objects_with_json() {
    let server = RedisServer::options().requirepass("s3cret").start();
    let fixture = Fixture::with_file();
    let nobody = format!("redis://127.0.0.1:{}", free_port());
    let locked = format!("redis://127.0.0.1:{}", server.port());
    fs::write(fixture.path("damaged"), "this is no database").unwrap();
    let damaged = format!("sqlite:{}", fixture.path("damaged").display());
    let nowhere = ["watchdog", "status", "--socket", "/nonexistent/a"];
    let _held = fixture.hold(&["job"]);
    for (args, kind) in [
        (&["ls", "--store", &nobody][..], "unreachable"),
        (&["show", "job", "--store", &nobody], "unreachable"),
        (&["ls", "--store", &locked], "no_password"),
        (&["show", "job", "--store", &damaged], "invalid_config"),
        (&["show", "a{b"], "invalid_name"),
        (&["doctor", "--store", "nonsense"], "invalid_config"),
        (&["ls", "--password-file", "missing"], "system"),
        (&["ls", "--watch", "1ms"], "usage"),
        (&["show"], "usage"),
        (&nowhere, "unreachable"),
    ] {
        let lock = match args {
            ["show", name, ..] => Value::from(*name),
            _ => Value::Null,
        };
        let plain = fixture.leasehold(args).run_to_end();
        let output = fixture.leasehold(args).arg("--json").run_to_end();
        assert_eq!(stdout(&output), "", "{args:?}");
        assert_eq!(output.status, plain.status, "{args:?}");
        let text = stderr(&output);
        assert_eq!(text.lines().count(), 1, "{text}");
        let error = checked("error", &text)["error"].take();
        assert_eq!(error["exit_code"], output.status.code().unwrap());
        assert_eq!(error["kind"], kind, "{text}");
        assert_eq!(error["lock"], lock, "{text}");
        assert_eq!(error["transient"], kind == "unreachable", "{text}");
        let first = |text: &str| text.lines().next().unwrap().to_owned();
        let plain = stderr(&plain);
        let (_, message) = plain.split_once(": ").unwrap();
        assert_eq!(first(error["message"].as_str().unwrap()), first(message));
        if let Some(url) = args.iter().find(|arg| arg.starts_with("redis://")) {
            let store = error["store"].as_str().unwrap();
            assert!(store.starts_with(url), "{text}");
        }
    }
}

/// Texts of other clients must not control the terminal.
#[test]
fn invisible_characters_of_others_are_escaped() {
    let fixture = Fixture::with_file();
    let label = "\u{1b}[31mred\u{7}\u{ad}";
    let name = "pay\u{202e}llor\u{200b}\u{e0041}";
    // No command line acquires it.
    assert_eq!(fixture.try_run(&[name]), 125);
    let _held = fixture.hold_in_program(name, label);
    eventually(SOON, || {
        let output = fixture.leasehold(["ls"]).run_to_end();
        stdout(&output).contains("red")
    });
    for args in [&["ls"][..], &["show", name]] {
        let output = fixture.leasehold(args).run_to_end();
        let shown = stdout(&output);
        assert_like(&shown, "[..]pay\\u{202e}llor\\u{200b}\\u{e0041}[..]");
        assert_like(&shown, "[..](\"\\u{1b}[31mred\\u{7}\\u{ad}\")[..]");
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(stderr(&output), "");
    }
    // Messages as well, and what is for programs stays exact.
    let output = fixture.leasehold(["release", name]).run_to_end();
    assert_like(&stderr(&output), "[..]pay\\u{202e}llor[..]");
    let (_, text) = printed(&fixture, &["ls", "--json"]);
    assert!(text.is_ascii(), "{text}");
    let listed = checked("ls", &text);
    assert_eq!(listed["locks"][0]["name"], name);
    assert_eq!(listed["locks"][0]["holder"]["label"], label);
}
