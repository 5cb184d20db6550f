//! What a run prints while it waits for its lock, and when it is refused.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use leasehold_testkit::{OutputLines, Proxy, RedisServer, eventually, found_within};

use crate::tools::{
    EndsWith, Fixture, RunToEnd, SOON, assert_like, at_terminal, kill, spawn_with_lines,
    spawn_with_messages, stderr, stdout,
};

/// A label that would rearrange the line on a terminal.
const LABEL: &str = "#42\u{202e}\n";
const PRINTED_LABEL: &str = "#42\\u{202e}\\n";

/// Starts a run that waits at a terminal. Returns it with its lines there.
fn wait_at_terminal(fixture: &Fixture, args: &[&str], script: &str) -> (Child, OutputLines) {
    spawn_with_lines(&mut at_terminal(&fixture.run_script(args, script)))
}

/// Starts a run that prints the progress of its wait into a pipe. Returns it with its lines.
fn wait_verbosely(fixture: &Fixture, args: &[&str]) -> (Child, OutputLines) {
    spawn_with_messages(&mut fixture.run_script(&[&["-v"], args].concat(), "true"))
}

#[test]
fn a_wait_names_the_holder_and_the_position_in_the_queue() {
    let (_server, redis) = Fixture::redis();
    for fixture in [redis, Fixture::new()] {
        let holder = fixture.hold(&["--label", LABEL, "job"]);
        let pid = format!("pid {}", holder.process.id());
        let by = "leasehold: job is held by ";

        let expected =
            format!("[..]{pid}, sh [..]{PRINTED_LABEL}[..] for [..]; 1st in the queue, waiting");
        // A machine that is too busy to queue a request within a second prints no position at first.
        let first = found_within(SOON, || {
            let (first, lines) = wait_verbosely(&fixture, &["job"]);
            let line = lines.after(by);
            if line.contains(" in the queue, ") {
                assert_like(&line, &expected);
                return Some(first);
            }
            kill("TERM", first.id());
            first.ends_with(143);
            None
        });
        let first = first.expect("a position");

        let begun = Instant::now();
        let (second, lines) = wait_at_terminal(&fixture, &["-w", "100s", "job"], "echo $((6 * 7))");
        let mut line = lines.after(by);
        assert!(begun.elapsed() >= Duration::from_secs(1));
        let limit = "; 2nd in the queue, waiting (at most 1m 40s)";
        while !line.contains(limit) {
            line = lines.after(by);
        }
        assert!(line.contains(&pid), "{line}");
        // The queue moves on.
        kill("TERM", first.id());
        first.ends_with(143);
        lines.after("; 1st in the queue, waiting");

        holder.terminate();
        // Whatever was printed before, the command's output follows.
        lines.after("42");
        second.ends_with(0);
    }
}

#[test]
fn a_refusal_names_the_holder_and_a_quiet_run_prints_nothing() {
    let fixture = Fixture::new();
    let holder = fixture.hold(&["--label", LABEL, "job"]);
    let run = |args: &[&str]| fixture.run_script(args, "echo ran").run_to_end();
    // The holder is registered in the background.
    eventually(SOON, || {
        stderr(&run(&["-n", "job"])).contains(PRINTED_LABEL)
    });
    let not_run = "; the command was not run\n";
    for (args, code, outcome) in [
        (&["-n", "job"][..], 75, not_run),
        (&["-w", "0", "job"], 124, not_run),
        // Long enough for a line about the wait, but this is not a terminal.
        (
            &["-w", "2s", "job"],
            124,
            "; waited 2s, the command was not run\n",
        ),
        (&["--skip-ok", "-v", "job"], 0, "; skipped\n"),
        (&["--skip-ok", "job"], 0, ""),
        (&["-n", "-q", "job"], 75, ""),
        (&["-n", "-q", "-E", "3", "job"], 3, ""),
        (&["-w", "1s", "-q", "-E", "4", "job"], 4, ""),
        (&["-w", "1500ms", "-q", "job"], 124, ""),
        (&["--skip-ok", "--quiet", "job"], 0, ""),
    ] {
        let output = run(args).ends_with(code);
        assert_eq!(stdout(&output), "", "{args:?} ran the command");
        let text = stderr(&output);
        assert!(text.ends_with(outcome), "{args:?}: {text}");
        let by = "leasehold: job is held by ";
        assert_eq!(text.contains(by), !outcome.is_empty(), "{args:?}: {text}");
        let lines = text.lines().filter(|line| line.contains(by));
        assert_eq!(lines.count(), outcome.lines().count(), "{text}");
    }
    holder.terminate();
    run(&["-q", "-v", "job"]).ends_with(125);
    // Errors are printed all the same.
    for (name, command, code) in [("job", "no-such-command", 127), ("a{b}", "true", 125)] {
        let mut command = fixture.leasehold(["run", "-q", name, "--", command]);
        let output = command.ends_with(code);
        assert_eq!(stderr(&output).lines().count(), 1, "{output:?}");
    }
}

/// The store refuses the lock, but does not reply to the query for the holder.
#[test]
fn a_refusal_without_a_known_holder_is_printed_without_it() {
    let server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let holder = Fixture::with_store(server.url()).hold(&["job"]);
    let fixture = Fixture::with_store(proxy.url());
    proxy.hold_requests("PTTL", 1);
    let text = fixture.messages(&["-n", "job"], 75);
    let elsewhere = "leasehold: job was held elsewhere; the command was not run\n";
    assert_eq!(text, elsewhere);
    holder.terminate();
}

/// A stopped server accepts connections, and replies to nothing.
#[test]
fn a_stopped_store_is_printed_and_given_up() {
    let (server, fixture) = Fixture::redis();
    let stranger = format!("{}:1", "0".repeat(32));
    server.cli(&["SET", "leasehold:{default:job}", &stranger, "PX", "600000"]);
    let args = ["--ttl", "6s", "job"];
    // Neither at a terminal nor with `-v`, so that only the failure of the store is printed.
    let mut logged = fixture.run_script(&args, "true");
    let logged = logged.stderr(Stdio::piped()).spawn().unwrap();
    let (waiting, lines) = wait_at_terminal(&fixture, &args, "true");
    lines.after("leasehold: job is held by ");
    eventually(SOON, || {
        server.cli(&["LLEN", "leasehold:{default:job}:queue"]) == "4"
    });
    server.stop();
    let stopped = Instant::now();
    let line = lines.after("leasehold: waiting: lock \"job\" at redis://127.0.0.1:");
    assert_like(line.trim_end(), "[..]/0: no reply for 600ms");
    let line = lines.after("leasehold: waiting: lock \"job\" at redis://");
    let (_, times) = line.rsplit_once(" (for ").unwrap();
    let (_, left) = times.split_once("s, gives up in ").unwrap();
    let left: f64 = left.trim_end().trim_end_matches("s)").parse().unwrap();
    lines.after("leasehold: lock \"job\"");
    assert!(stopped.elapsed().as_secs_f64() >= left, "{line}");
    waiting.ends_with(125);
    let text = stderr(&logged.ends_with(125));
    let silence = "leasehold: waiting: lock \"job\" at redis://127.0.0.1:";
    assert_like(
        &text,
        &format!("{silence}[..]\n[..]; the command was not run\n"),
    );
    assert_eq!(text.lines().count(), 2, "{text}");
    // The next run does not even connect.
    let (waiting, lines) = wait_verbosely(&fixture, &args);
    let line = lines.after("leasehold: waiting: lock \"job\" at redis://127.0.0.1:");
    assert!(line.ends_with("/0: no reply for 600ms"), "{line}");
    waiting.ends_with(125);
    server.cont();
}

/// What was certainly refused is not released, and no exit waits for that.
#[test]
fn a_permanent_refusal_ends_the_run_at_once() {
    let master = RedisServer::options()
        .acl("alice", "pw", "~other:* &leasehold:* +@all")
        .acl("silent", "pw", "~leasehold:* resetchannels +@all")
        .start();
    let replica = RedisServer::options().replica_of(&master).start();
    for (url, reason) in [
        (
            master.url_of("alice", "pw"),
            "permissions to access one of the keys",
        ),
        (master.url_of("alice", "wrong"), "user and password"),
        (master.url_of("silent", "pw"), "permissions to notify"),
        (replica.url(), "read-only replica"),
    ] {
        let fixture = Fixture::with_store(url);
        for args in [
            &["job"][..],
            &["-v", "job"],
            &["-w", "30s", "job"],
            &["-n", "job"],
        ] {
            // The release of a lock that may be held would take longer every time.
            eventually(SOON, || {
                let begun = Instant::now();
                let text = fixture.messages(args, 125);
                assert!(text.contains(reason), "{reason}: {text}");
                let names_store = |line: &&str| line.starts_with("leasehold: the store is ");
                let lines = text.lines().filter(|line| !names_store(line));
                assert_eq!(lines.count(), 1, "{args:?}: {text}");
                begun.elapsed() < Duration::from_secs(2)
            });
        }
    }
}
