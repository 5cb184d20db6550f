//! The records of jobs: `jobs`, its checks and its resets.

use std::process::Output;

use leasehold_testkit::{RedisServer, eventually, found_within};

use crate::jobs::start;
use crate::schema::checked;
use crate::tools::{
    EndsWith, Fixture, RunToEnd, SOON, assert_like, now, shown_at_terminal, stderr, stdout,
};

pub(crate) fn jobs(fixture: &Fixture, args: &[&str]) -> Output {
    fixture.leasehold([&["jobs"], args].concat()).run_to_end()
}

#[test]
fn jobs_are_listed_and_reset() {
    let fixture = Fixture::new();
    let none = jobs(&fixture, &[]);
    assert!(none.status.success() && stdout(&none).is_empty());
    let message = stderr(&none);
    let (store, none) = message.split_once('\n').unwrap();
    assert!(store.contains(" (default), for this user"), "{message}");
    assert!(none.starts_with("no completed runs are recorded in "));
    let anchor = "2026-01-05T02:00:00Z";
    let nightly = [
        "run",
        "--every",
        "7d",
        "--anchor",
        anchor,
        "--label",
        "a \u{202e}b",
        "nightly",
    ];
    start(&fixture, &nightly).ends_with(0);
    start(&fixture, &["once", "migrate", "--key", "v1"]).ends_with(0);
    let table = stdout(&jobs(&fixture, &[]));
    let mut lines = table.lines();
    let header: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    let columns = ["NAME", "KEY", "ENDED", "TOOK", "EXIT", "BY", "NEXT"];
    assert_eq!(header, columns);
    let (migrate, nightly) = (lines.next().unwrap(), lines.next().unwrap());
    assert_like(migrate, "migrate [..]  kept until 20[..]");
    assert!(nightly.contains(r#", sh ("a \u{202e}b")"#), "{table}");
    let (before, next) = nightly.rsplit_once("  ").unwrap();
    assert_like(before, "[..] ago [..]");
    assert_like(next, "in [..]");
    let listed = checked("jobs", &stdout(&jobs(&fixture, &["--json"])));
    let (migrate, nightly) = (&listed["jobs"][0], &listed["jobs"][1]);
    assert_eq!(migrate["name"], "migrate");
    assert_eq!(migrate["key"], "v1");
    assert!(migrate["period_ms"].is_null() && migrate["next_slot"].is_null());
    let next = nightly["next_slot"].as_str().unwrap();
    assert!(next.ends_with("T02:00:00.000Z"), "{next}");
    assert_eq!(nightly["period_ms"], 7 * 86_400_000);
    assert_eq!(nightly["exit_code"], 0);
    assert_eq!(nightly["overdue"], false);
    records_are_reset(&fixture);
}

/// The records of `nightly`, and of `migrate` for the key `v1`.
fn records_are_reset(fixture: &Fixture) {
    // The records that may be meant are named.
    let other = jobs(fixture, &["--reset", "migrate"]);
    assert!(stdout(&other).ends_with("; recorded: --key v1\n"));
    for (args, removed) in [
        (&["nightly", "--key", "v1"][..], false),
        (&["migrate"], false),
        (&["nightly"], true),
        (&["nightly"], false),
        (&["migrate", "--key", "v1"], true),
    ] {
        let output = jobs(fixture, &[&["--reset"], args, &["--json"]].concat());
        let output = output.ends_with(i32::from(!removed));
        let reset = checked("jobs_reset", &stdout(&output));
        assert_eq!(reset["reset"], removed, "{args:?}");
    }
    start(fixture, &["once", "migrate", "--key", "v1"]).ends_with(0);
    let reset = jobs(fixture, &["--reset", "migrate", "--key", "v1"]);
    assert!(stdout(&reset).contains("the run of migrate for v1 was removed"));
    for key in ["k1", "k2", "k3", "k4", "k5", "k6", "k7"] {
        let once = ["once", "-q", "--key", key, "migrate", "true"];
        fixture.leasehold(once).ends_with(0);
    }
    let message = stdout(&jobs(fixture, &["--reset", "migrate"]));
    assert_eq!(message.matches("--key k").count(), 5, "{message}");
    assert!(message.ends_with(", and 2 more\n"), "{message}");
}

#[test]
fn overdue_jobs_fail_a_check_and_are_metrics() {
    const HOUR: i64 = 3_600_000;
    let server = RedisServer::options().clock_shim().start();
    let fixture = Fixture::with_store(server.url());
    let now = now().as_secs_f64();
    let names = ["daily", r#"with "quotes" \ and more"#];
    // A day and a half ago: the next run of the first was half a day ago.
    for (name, hours) in names.into_iter().zip([-37, 37]) {
        server.step_clock(hours * HOUR);
        start(&fixture, &["run", "--every", "1d", name]).ends_with(0);
    }
    start(&fixture, &["once", "--key", "v1", "migrate"]).ends_with(0);
    let check = |args: &[&str]| {
        let output = jobs(&fixture, &[&["--check"], args].concat());
        let code = output.status.code().unwrap();
        (code, stdout(&output), stderr(&output))
    };
    let (code, printed, message) = check(&[]);
    assert_eq!((code, printed.as_str()), (1, ""));
    assert_like(&message, "leasehold: daily is overdue: 13h [..]");
    let lines: Vec<_> = message.lines().collect();
    assert_like(lines[0], "[..]; its last run ended 1d 13h[..]");
    let retired = "leasehold: if daily is retired: leasehold jobs --reset daily";
    assert_eq!(lines[1..], [retired]);
    assert_eq!(check(&["daily"]).0, 1);
    assert_eq!(check(&[names[1]]), (0, String::new(), String::new()));
    // A job that never ran is not silently right.
    let (code, _, message) = check(&[names[1], "migrate"]);
    assert_eq!(code, 1);
    let expected = "leasehold: migrate has completed runs for keys only on record, at redis://";
    assert!(message.starts_with(expected), "{message}");
    let (code, printed, _) = check(&["--json"]);
    let listed = checked("jobs", &printed);
    assert_eq!((code, &listed["jobs"][0]["overdue"]), (1, &true.into()));

    are_metrics(&fixture, now);
    // Another program that runs the job after that.
    let mut late = fixture.leasehold(["run", "-q", "--every", "1d", "daily", "--", "true"]);
    let message = stderr(&late.ends_with(0));
    let expected = "daily: the record is of a run of sh --every 1d, and this is true --every 1d; ";
    assert!(message.contains(expected), "{message}");
    assert_eq!(check(&["daily"]).0, 0);
}

/// Its lock is held by a run that takes longer than the period.
#[test]
fn an_overdue_job_that_is_running_says_so() {
    let fixture = Fixture::with_file();
    let job = ["--every", "1s", "slow"];
    assert_eq!(fixture.try_run(&job), 0);
    let check = || {
        let output = jobs(&fixture, &["--check", "slow"]);
        (output.status.code().unwrap(), stderr(&output))
    };
    eventually(SOON, || check().0 == 1);
    let (_, message) = check();
    assert!(!message.contains("running"), "{message}");
    let slow = fixture.hold_until_go_on(&job);
    // The holder is described a moment later.
    let (code, message) = found_within(SOON, || {
        Some(check()).filter(|(_, message)| message.contains("s on "))
    })
    .expect("a description of the holder");
    assert_eq!(code, 1);
    let (_, running) = message
        .split_once(" ago, running now for ")
        .expect(&message);
    let (place, _) = running.split_once("; its last run ended ").expect(&message);
    assert!(place.contains("s on "), "{message}");
    let table = stdout(&jobs(&fixture, &[]));
    assert!(table.contains(" ago, running now for "), "{table}");
    fixture.write("go-on");
    slow.ends_with(0);
}

/// The two periodic jobs, of which `daily` is overdue since less than an hour.
fn are_metrics(fixture: &Fixture, now: f64) {
    let metrics = stdout(&jobs(fixture, &["--prometheus"]));
    let lines: Vec<_> = metrics.lines().collect();
    assert_eq!(lines.len(), 8, "{metrics}");
    let kind = "# TYPE leasehold_job_last_success_timestamp_seconds gauge";
    assert_eq!(lines[1], kind);
    let series = r#"leasehold_job_overdue_timestamp_seconds{name="daily"} "#;
    let overdue_at = lines[6].strip_prefix(series).expect(&metrics);
    let ago = now - overdue_at.parse::<f64>().unwrap();
    assert!((0.0..3600.0).contains(&ago), "{metrics}");
    let quoted = r#"{name="with \"quotes\" \\ and more"}"#;
    assert!(lines[7].contains(quoted), "{metrics}");
}

/// The anchor is the local time of a timer in a zone east of UTC, so each run is before it.
#[test]
fn an_anchor_in_local_time_has_a_hint() {
    const MINUTE: i64 = 60_000;
    let server = RedisServer::options().clock_shim().start();
    let fixture = Fixture::with_store(server.url());
    server.step_clock(-21 * 60 * MINUTE);
    // No zone has the second offset.
    for (name, minutes, has_hint) in [("tokyo", 8 * 60, true), ("odd", 8 * 60 + 8, false)] {
        let anchor = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes - 21 * 60);
        let anchor = anchor.strftime("%H:%M").to_string();
        let daily = ["run", "--every", "1d", "--anchor", &anchor, name];
        let message = stderr(&start(&fixture, &daily).run_to_end());
        let hint = format!(
            "leasehold: this start is about 8h before its anchor {anchor}:00 UTC: was a local time meant?\n"
        );
        assert_eq!(message.contains(&hint), has_hint, "{message}");
        assert_eq!(message.contains("local time"), has_hint, "{message}");
        let message = stderr(&jobs(&fixture, &["--check", name]));
        assert!(message.contains(" is overdue: "), "{message}");
        let hint =
            "; it began about 8h before its anchor, which is in UTC: was a local time meant?\n";
        assert_eq!(message.contains(hint), has_hint, "{message}");
        assert_eq!(message.contains("local time"), has_hint, "{message}");
        // A person may start it at any time.
        fixture.leasehold(["jobs", "--reset", name]).ends_with(0);
        let message = shown_at_terminal(&start(&fixture, &daily));
        assert!(message.contains("to undo that"), "{message}");
        assert!(!message.contains("local time"), "{message}");
    }
}

/// The hand try was half a period before the time of the timer, whose starts differ by some minutes.
#[test]
fn a_second_run_at_one_time_of_the_timer_has_a_hint() {
    const MINUTE: i64 = 60_000;
    let server = RedisServer::options().clock_shim().start();
    let fixture = Fixture::with_store(server.url());
    let started = || {
        let output = start(&fixture, &["run", "-q", "--every", "1d", "job"]).ends_with(0);
        stderr(&output)
    };
    assert_eq!(started(), "");
    server.step_clock((36 * 60 - 20) * MINUTE);
    assert_eq!(started(), "");
    server.step_clock(40 * MINUTE);
    let message = started();
    let expected = "leasehold: job: the run before this one, by [..], sh, began 40m[..]; set --anchor to the time of the timer\n";
    assert_like(&message, expected);
    assert_eq!(message.lines().count(), 1, "{message}");
    server.step_clock(24 * 60 * MINUTE);
    assert_eq!(started(), "");
    assert_eq!(fixture.read("ran").lines().count(), 4);
}

/// A record of a newer version, or a damaged one: each start of the job fails.
#[test]
fn a_record_that_cannot_be_read_fails_a_check() {
    let (server, fixture) = Fixture::redis();
    for args in [&["run", "--every", "1d"][..], &["once", "--key", "v1"]] {
        let job = [args, &["bad"]].concat();
        start(&fixture, &job).ends_with(0);
    }
    jobs(&fixture, &["--check"]).ends_with(0);
    let keys = ["", ":v1"].map(|key| format!("leasehold:{{default:bad}}:completion{key}"));
    for key in &keys {
        let record = server.cli(&["GET", key]);
        let newer = record.trim().replace(" 1 requested=", " 2 requested=");
        assert_ne!(newer, record.trim());
        server.cli(&["SET", key, &newer]);
    }
    are_unreadable(&fixture);
    for key in &keys {
        server.cli(&["SETRANGE", key, "0", "garbage"]);
    }
    are_unreadable(&fixture);
    for key in &keys {
        server.cli(&["DEL", key]);
        server.cli(&["RPUSH", key, "garbage"]);
    }
    are_unreadable(&fixture);
    jobs(&fixture, &["--reset", "bad"]).ends_with(0);
    assert_eq!(server.cli(&["EXISTS", &keys[0]]).trim(), "0");
}

/// The records of the job `bad`, the periodic one and that of the key `v1`.
fn are_unreadable(fixture: &Fixture) {
    for (args, code, names) in [
        (&["--check"][..], 1, &["bad"][..]),
        (&["--check", "bad"], 1, &["bad"]),
        (&["--check", "bad", "--key", "v1"], 1, &["bad for v1"]),
        (&[], 0, &["bad", "bad for v1"]),
        (&["--prometheus"], 0, &["bad", "bad for v1"]),
    ] {
        let message = stderr(&jobs(fixture, args).ends_with(code));
        let unreadable = message.lines().filter(|line| line.ends_with(" removes it"));
        let unreadable: Vec<_> = unreadable.collect();
        assert_eq!(unreadable.len(), names.len(), "{args:?}: {message}");
        for (line, name) in unreadable.iter().zip(names) {
            let begin = format!("leasehold: {name}: its record cannot be read, at redis://");
            assert!(line.starts_with(&begin), "{message}");
        }
        assert!(!message.contains("on record, at"), "{message}");
    }
}

#[test]
fn a_reset_says_that_the_lock_is_taken() {
    let fixture = Fixture::with_file();
    let reset = || stdout(&jobs(&fixture, &["--reset", "job"]));
    let running = fixture.hold_until_go_on(&["--every", "1d", "job"]);
    let message = reset();
    let expected = "there is no record of the last run of job at [..]; its lock is held: a run that is under way writes a new record\n";
    assert_like(&message, expected);
    fixture.write("go-on");
    running.ends_with(0);
    assert!(reset().ends_with("; the next start runs it\n"));
    let failing = ["--every", "1d", "--retry-after", "1h", "job"];
    fixture.run_script(&failing, "exit 4").ends_with(4);
    let message = reset();
    let expected = "[..]; its lock stays taken for 59m [..], unless leasehold release --force job revokes it\n";
    assert_like(&message, expected);
}

#[test]
fn a_check_has_the_named_jobs_only_and_those_that_are_missing() {
    let fixture = Fixture::with_file();
    for args in [
        &["run", "--every", "1d", "daily"][..],
        &["run", "--every", "1d", "other"],
        &["once", "--key", "v1", "migrate"],
    ] {
        start(&fixture, args).ends_with(0);
    }
    for (args, listed, missing, message) in [
        (&["daily"][..], &["daily"][..], &[][..], ""),
        (
            &["daily", "absent"],
            &["daily"],
            &["absent"],
            "leasehold: absent has no completed run on record, at sqlite:",
        ),
        (
            &["migrate"],
            &["migrate"],
            &["migrate"],
            "leasehold: migrate has completed runs for keys only on record, at sqlite:",
        ),
        (&["migrate", "--key", "v1"], &["migrate"], &[], ""),
        (
            &["migrate", "--key", "v2"],
            &[],
            &["migrate"],
            "leasehold: migrate has no completed run for v2 on record, at sqlite:",
        ),
        (&[], &["daily", "migrate", "other"], &[], ""),
    ] {
        let output = jobs(&fixture, &[&["--check"], args, &["--json"]].concat());
        let checked = checked("jobs", &stdout(&output));
        let names = checked["jobs"].as_array().unwrap().iter();
        let names: Vec<_> = names.map(|job| job["name"].as_str().unwrap()).collect();
        assert_eq!(names, listed, "{args:?}");
        assert_eq!(checked["missing"], serde_json::json!(missing), "{args:?}");
        let code = i32::from(!missing.is_empty());
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        let text = stderr(&output);
        assert!(text.starts_with(message), "{text}");
        assert_eq!(text.is_empty(), message.is_empty(), "{text}");
    }
}
