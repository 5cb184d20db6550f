//! Leaders and events: `elect`, `leader` and `watch`.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use leasehold_testkit::{OutputLines, Proxy, RedisServer, eventually, free_port};
use serde_json::Value;

use crate::job_records::jobs;
use crate::jobs::start;
use crate::schema::checked;
use crate::tools::{
    EndsWith, Fixture, RunToEnd, Running, SOON, assert_like, finish, kill, spawn_piped,
    spawn_with_lines, spawn_with_messages, stderr, stdout,
};

const NAME: &str = "scheduler";

/// A candidate whose command ends only by a signal.
pub(crate) fn candidate(fixture: &Fixture, value: &str, args: &[&str]) -> Command {
    let mut elect = fixture.leasehold(["elect", NAME, "--value", value]);
    let script = "echo \"$LEASEHOLD_TERM $LEASEHOLD_TOKEN\" >> terms; echo in; exec sleep 1000";
    elect.args(args).args(["--", "sh", "-c", script]);
    elect
}

/// The exit code and the output of `leader`.
fn leader(fixture: &Fixture) -> (Option<i32>, String) {
    let output = fixture.leasehold(["leader", NAME]).run_to_end();
    (output.status.code(), stdout(&output))
}

pub(crate) fn await_leader(fixture: &Fixture, value: &str) {
    let expected = (Some(0), format!("{value}\n"));
    eventually(SOON, || leader(fixture) == expected);
}

fn leader_object(fixture: &Fixture) -> Value {
    let output = fixture.leasehold(["leader", NAME, "--json"]).run_to_end();
    checked("leader", &stdout(&output))
}

#[test]
fn each_end_of_a_command_that_is_run_again_is_printed() {
    let fixture = Fixture::new();
    for (option, line) in [
        ("--verbose", "ended with exit code 3; campaigning again\n"),
        ("--quiet", ""),
    ] {
        let mut elect = fixture.leasehold(["elect", "--again", option, "--value", "a:1", NAME]);
        elect.args(["-c", "echo in; echo >> ends; exit 3"]);
        let elect = Running::start(elect);
        eventually(SOON, || fixture.read("ends").len() > 2);
        elect.signal("TERM");
        let text = stderr(&elect.finish());
        assert_eq!(text.is_empty(), line.is_empty(), "{text}");
        assert_like(&text, &format!("[..]{line}[..]{line}[..]"));
        std::fs::remove_file(fixture.path("ends")).unwrap();
    }
}

/// A leader that is terminated, and one that is killed.
#[test]
fn the_next_candidate_leads_and_is_found() {
    let fixture = &Fixture::new();
    assert_eq!(leader(fixture), (Some(1), String::new()));
    assert_eq!(leader_object(fixture)["leader"], Value::Null);
    let first = Running::start(candidate(fixture, "a:1", &["--label", "blue"]));
    await_leader(fixture, "a:1");
    let pid = first.process.id();
    eventually(SOON, || {
        leader_object(fixture)["leader"]["holder"]["label"] == "blue"
    });
    let found = leader_object(fixture);
    assert_eq!(found["name"], NAME);
    assert_eq!(found["leader"]["holder"]["pid"], pid);

    let mut second = candidate(fixture, "b:1", &["--ttl", "6s"]);
    let second = spawn_piped(&mut second);
    first.terminate();
    await_leader(fixture, "b:1");
    // A leader is found before its command begins.
    eventually(SOON, || fixture.read("terms").lines().count() == 2);
    kill("KILL", second.id());
    finish(second);
    let third = Running::start(candidate(fixture, "c:1", &[]));
    await_leader(fixture, "c:1");
    third.terminate();
    assert_eq!(leader(fixture), (Some(1), String::new()));

    let terms = fixture.read("terms");
    let terms: Vec<_> = terms
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .collect();
    assert_eq!(terms.len(), 3);
    assert!(terms.iter().all(|(term, token)| term == token), "{terms:?}");
    assert!(
        terms.is_sorted_by_key(|(term, _)| term.parse::<u64>().unwrap()),
        "{terms:?}"
    );
}

#[test]
fn a_candidate_campaigns_again_until_a_signal_ends_it() {
    let fixture = Fixture::new();
    let script = "echo $LEASEHOLD_TERM >> terms; echo in; test $(wc -l < terms) -lt 3 || exec sleep 1000; exit 7";
    let mut elect = fixture.leasehold(["elect", NAME, "--again", "--value", "a"]);
    elect.args(["--", "sh", "-c", script]);
    let elect = Running::start(elect);
    eventually(SOON, || fixture.read("terms").lines().count() == 3);
    await_leader(&fixture, "a");
    elect.terminate();
    assert_eq!(fixture.read("terms").lines().count(), 3);
    // Without it, the exit code is that of the command.
    let mut once = fixture.leasehold(["elect", NAME, "--value", "a", "--", "sh", "-c", "exit 7"]);
    once.ends_with(7);
}

/// The status line of a reply to a probe, and the text.
pub(crate) fn probe(address: &str, request: &str) -> Option<(String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, text) = reply.split_once("\r\n\r\n")?;
    let status = head.lines().next()?.trim_start_matches("HTTP/1.1 ");
    Some((status.to_owned(), text.trim().to_owned()))
}

#[test]
fn a_probe_fails_while_a_command_runs_on_without_its_leadership() {
    let fixture = Fixture::new();
    let address = format!("127.0.0.1:{}", free_port());
    let healthz = || probe(&address, "GET /healthz").unwrap_or_default();
    let leader = Running::start(candidate(&fixture, "a", &[]));
    let mut follower = candidate(
        &fixture,
        "b",
        &["--health", &address, "--on-lost", "ignore"],
    );
    let follower = spawn_piped(&mut follower);
    eventually(SOON, || healthz() == ("200 OK".into(), "following".into()));
    leader.terminate();
    eventually(SOON, || healthz() == ("200 OK".into(), "leading".into()));
    let (missing, _) = probe(&address, "GET /").unwrap();
    assert_eq!(missing, "404 Not Found");
    let (refused, _) = probe(&address, "POST /healthz").unwrap();
    assert_eq!(refused, "405 Method Not Allowed");
    // A second endpoint at the same address.
    let taken = candidate(&fixture, "c", &["--health", &address]).ends_with(125);
    assert_like(&stderr(&taken), "[..]the port is taken[..]");
    fixture.revoke(NAME);
    let lost = "the leadership is lost, and the command still runs";
    eventually(SOON, || {
        healthz() == ("500 Internal Server Error".into(), lost.into())
    });
    kill("TERM", follower.id());
    finish(follower);
}

/// The events of a leader, of one that waits, and of a lock that is revoked.
#[test]
fn events_are_printed_as_they_happen() {
    let (_server, fixture) = Fixture::redis();
    let fixture = &fixture;
    let (mut watch, lines) =
        spawn_with_lines(&mut fixture.leasehold(["watch", "--json", NAME, "other"]));
    let event = |expected: &str| {
        let event = checked("watch", &lines.next_line().unwrap());
        assert_eq!(event["event"], expected, "{event}");
        event
    };
    let mut names = [event("free"), event("free")].map(|event| event["name"].to_string());
    names.sort();
    assert_eq!(names, ["\"other\"", "\"scheduler\""]);
    let leader = Running::start(candidate(fixture, "a:1", &[]));
    let lease = event("granted")["lease"].clone();
    let told = event("leader");
    assert_eq!(told["leader"]["value"], "a:1");
    assert_eq!(told["leader"]["lease"], lease);
    let mut waiting = fixture.run_script(&[NAME], "until test -e go-on; do sleep 0.02; done");
    let waiting = waiting.spawn().unwrap();
    assert_eq!(event("queue")["waiters"], 1);
    fixture.revoke(NAME);
    assert_eq!(event("revoked")["lease"], lease);
    // The waiter has the lock, and no value.
    event("granted");
    assert_eq!(event("leader")["leader"], Value::Null);
    assert_eq!(event("queue")["waiters"], 0);
    fixture.write("go-on");
    event("released");
    waiting.ends_with(0);
    leader.ends_with(122);
    kill("TERM", watch.id());
    watch.wait().unwrap();
}

#[test]
fn each_holder_of_a_semaphore_has_its_events() {
    let (_server, fixture) = Fixture::redis();
    let permits = ["--permits", "2", "job"];
    let first = fixture.hold(&permits);
    let (mut watch, lines) = spawn_with_lines(&mut fixture.leasehold(["watch", "--json", "job"]));
    let lease_of = |expected: &str| {
        let event = checked("watch", &lines.next_line().unwrap());
        assert_eq!(event["event"], expected, "{event}");
        event["lease"].clone()
    };
    let held = lease_of("held");
    let second = fixture.hold(&permits);
    let granted = lease_of("granted");
    assert_ne!(granted, held);
    for (holder, lease) in [(first, held), (second, granted)] {
        holder.terminate();
        assert_eq!(lease_of("released"), lease);
    }
    kill("TERM", watch.id());
    watch.wait().unwrap();
}

/// The runs for another key, and those of the periodic job with this name, are not among them.
#[test]
fn completed_runs_for_a_key_are_printed_for_it_only() {
    let (_server, fixture) = Fixture::redis();
    let fixture = &fixture;
    let watch = |args: &[&str]| {
        let mut watch = fixture.leasehold(["watch", "migrate"]);
        spawn_with_lines(watch.args(args))
    };
    let (keyed, of_key) = watch(&["--json", "--key", "v1"]);
    let (periodic, of_period) = watch(&["--json"]);
    let (people, text) = watch(&["--key", "v1"]);
    for lines in [&of_key, &of_period] {
        lines.after("\"event\":\"free\"");
    }
    text.after("  migrate  free");

    let run = |args: &[&str]| start(fixture, args).ends_with(0);
    let recorded = |key: Value| {
        let listed = checked("jobs", &stdout(&jobs(fixture, &["--json"])));
        let mut runs = listed["jobs"].as_array().unwrap().iter();
        let run = runs.find(|run| run["key"] == key).unwrap();
        (key, run["token"].clone())
    };
    let completed = |lines: &OutputLines| {
        loop {
            let event = checked("watch", &lines.next_line().unwrap());
            if event["event"] == "completed" {
                return (event["key"].clone(), event["token"].clone());
            }
            assert_eq!(event["key"], Value::Null, "{event}");
        }
    };
    run(&["once", "migrate", "--key", "v2"]);
    run(&["run", "--every", "1d", "migrate"]);
    run(&["once", "migrate", "--key", "v1"]);
    let first = recorded("v1".into());
    assert_eq!(completed(&of_key), first);
    assert_eq!(completed(&of_period), recorded(Value::Null));
    let completion = format!("for v1 completed, token {}", first.1);
    assert_eq!(text.after("  migrate  run "), completion);

    // A run that is repeated, because its record was removed.
    jobs(fixture, &["--reset", "migrate", "--key", "v1"]).ends_with(0);
    run(&["once", "migrate", "--key", "v1"]);
    let again = recorded("v1".into());
    assert_ne!(again, first);
    assert_eq!(completed(&of_key), again);
    let mut late = fixture.leasehold(["watch", "migrate", "--key", "v1"]);
    let (late, lines) = spawn_with_messages(&mut late);
    let line = lines.after("leasehold: migrate for v1 was completed at 20");
    assert_like(&line, "[..], sh; only later runs are printed");
    for mut watch in [keyed, periodic, people, late] {
        kill("TERM", watch.id());
        watch.wait().unwrap();
    }
}

/// A stopped server accepts connections, and replies to nothing.
#[test]
fn a_store_that_does_not_reply_is_an_event() {
    let server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let fixture = Fixture::with_store(proxy.url());
    let start = |args: &[&str]| {
        let mut watch = fixture.leasehold(["watch", "job"]);
        let mut watch = spawn_piped(watch.args(args));
        let stdout = OutputLines::read(watch.stdout.take().unwrap());
        let stderr = OutputLines::read(watch.stderr.take().unwrap());
        (watch, stdout, stderr)
    };
    let (json, events, _) = start(&["--json"]);
    let (people, lines, messages) = start(&[]);
    let event = || checked("watch", &events.next_line().unwrap());
    assert_eq!(event()["event"], "free");
    lines.after("  job  free");
    server.stop();
    proxy.cut();
    let silence = event();
    assert_eq!(silence["event"], "unobserved");
    let (since, time) = (silence["since"].as_str(), silence["time"].as_str());
    assert!(since < time, "{silence}");
    let message = messages.after("leasehold: lock \"job\" at redis://");
    assert!(message.contains(": not observed since 20"), "{message}");
    server.cont();
    assert_eq!(event()["event"], "observed");
    let message = messages.after("leasehold: lock \"job\" at redis://");
    assert!(message.ends_with(": observed again"), "{message}");
    // Even the client of a very short command is known if its grant was read at all.
    let granted = || {
        assert_eq!(fixture.try_run(&["job"]), 0);
        events.after_within("\"event\":\"granted\"", SOON / 100)
    };
    let mut line = None;
    eventually(SOON, || {
        line = granted();
        line.is_some()
    });
    let line = line.unwrap();
    assert!(line.contains("\"program\":\"sh\""), "{line}");
    for watch in [json, people] {
        kill("TERM", watch.id());
        finish(watch);
    }
}

#[test]
fn events_are_printed_for_people() {
    let fixture = Fixture::new();
    let watch = fixture
        .shell("leasehold watch job > events & echo $! > watch; wait")
        .spawn();
    let mut watch = watch.unwrap();
    eventually(SOON, || fixture.read("events").contains("  job  free\n"));
    let mut elect = fixture.leasehold(["elect", "job", "--value", "a\u{1b}:1"]);
    elect.args(["-c", "until grep -q leader events; do sleep 0.02; done"]);
    elect.ends_with(0);
    eventually(SOON, || {
        fixture.read("events").contains("  job  released, lease ")
    });
    let events = fixture.read("events");
    let second = events.lines().nth(1).unwrap();
    assert_like(second, "[..]  job  granted to [..]");
    assert!(!events.contains('\u{1b}'), "{events}");
    kill("TERM", fixture.line_of("watch").parse().unwrap());
    watch.wait().unwrap();
    // It ends with its reader, although nothing else happens.
    let mut first = fixture.shell("leasehold watch job | head -n 1");
    assert!(stdout(&first.run_to_end()).ends_with("  job  free\n"));
}

/// As `show` and `ls` do.
#[test]
fn a_minimum_hold_is_printed_with_its_end() {
    let fixture = Fixture::new();
    let (mut watch, lines) = spawn_with_lines(&mut fixture.leasehold(["watch", "job"]));
    let line_with = |part: &str| {
        let line = lines.next_line().unwrap();
        assert!(line.contains(part), "{part}: {line}");
        line
    };
    line_with("  job  free");
    let run = fixture.hold_until_go_on(&["--at-least", "5h", "job"]);
    line_with("  job  granted to ");
    fixture.write("go-on");
    run.ends_with(0);
    let released = line_with("  job  released, lease ");
    assert!(released.contains(", free in 4h "), "{released}");
    kill("TERM", watch.id());
    watch.wait().unwrap();
    let mut later = fixture.shell("leasehold watch job | head -n 1");
    let first = stdout(&later.run_to_end());
    assert_like(&first, "[..]  job  minimum hold of [..], free in 4h [..]");
}
