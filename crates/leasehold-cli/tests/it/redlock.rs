//! The commands with a lock over many masters.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStderr, Command, Stdio};

use leasehold_testkit::{Masters, RedisServer, eventually};

use crate::tools::{EndsWith, Fixture, SOON, kill};

/// Starts a run, and waits for a line on stderr about its masters, before which they may reply too late on a busy
/// machine. Returns the stream and the process.
fn message(mut run: Command, part: &str) -> (BufReader<ChildStderr>, Child) {
    let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "{part}");
    }
    for part in ["waiting: ", "redlock://127.0.0.1:"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    (lines, run)
}

#[test]
fn without_a_majority_the_reason_is_printed() {
    let mut masters = Masters::aged(3);
    let fixture = Fixture::with_store(masters.url());
    for nth in 0..2 {
        masters.server_mut(nth).kill9();
    }
    let text = fixture.messages(&["job"], 125);
    assert!(text.contains("no majority of 3 masters"), "{text}");
}

/// What was certainly refused is not released, and nobody waits for that.
#[test]
fn a_wait_for_new_masters_ends_at_its_limit_and_by_a_signal() {
    let masters = Masters::start(3);
    let fixture = Fixture::with_store(masters.url());
    // On a busy machine they may reply too late.
    eventually(SOON, || {
        let text = fixture.messages(&["-w", "1s", "job"], 125);
        assert!(!text.contains("could not be released"), "{text}");
        text.contains("no majority of 3 masters for ")
    });

    let waiting = fixture.run_script(&["job"], "true");
    let (mut lines, mut waiting) = message(waiting, "no majority of 3 masters for ");
    kill("TERM", waiting.id());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(waiting.wait().unwrap().code(), Some(143));
}

/// A newcomer whose masters do not serve yet waits for them, as for a single server.
#[test]
fn masters_that_load_their_data_are_waited_for() {
    let masters = Masters::aged(3);
    let fixture = Fixture::with_store(masters.url());
    // One serves, and the others make no majority without it.
    let loading = &masters.servers()[1..];
    for server in loading {
        let interval = "loading-process-events-interval-bytes";
        server.cli(&["CONFIG", "SET", interval, "1024", "key-load-delay", "2000"]);
        server.cli(&["DEBUG", "POPULATE", "30000", "key", "100"]);
    }
    std::thread::scope(|scope| {
        for server in loading {
            scope.spawn(|| server.cli(&["DEBUG", "RELOAD"]));
            eventually(SOON, || {
                let pong = server.try_cli(&["PING"]);
                pong.is_err_and(|error| error.starts_with("LOADING"))
            });
        }
        let text = fixture.messages(&["--no-wait", "job"], 125);
        assert!(text.contains("still loading its data"), "{text}");
        let run = fixture.run_script(&["-v", "-w", "60s", "job"], "true");
        let (_lines, mut run) = message(run, "still loading");
        for server in loading {
            server.cli(&["CONFIG", "SET", "key-load-delay", "0"]);
        }
        assert_eq!(run.wait().unwrap().code(), Some(0));
    });
}

/// How many commands a server has refused for want of replicas.
fn refused_commands(server: &RedisServer) -> u64 {
    let stats = server.cli(&["INFO", "errorstats"]);
    let mut lines = stats.lines();
    let count = lines.find_map(|line| line.strip_prefix("errorstat_NOREPLICAS:count="));
    count.map_or(0, |count| count.trim().parse().unwrap())
}

/// The lease that a waiter was granted is short until it is renewed, which the server refuses for a while.
#[test]
fn a_grant_that_cannot_be_renewed_at_once_is_waited_for() {
    let (server, fixture) = Fixture::redis();
    let holder = fixture.hold(&["job"]);
    let mut waiter = fixture.run_script(&["-w", "60s", "job"], "echo ran > ran");
    let waiter = waiter.stderr(Stdio::piped()).spawn().unwrap();
    eventually(SOON, || {
        server.cli(&["EXISTS", "leasehold:{default:job}:queue"]) == "1"
    });
    kill("STOP", waiter.id());
    holder.terminate();
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    kill("CONT", waiter.id());
    // Each request is refused in three places at most, and one says only who the client is.
    eventually(SOON, || refused_commands(&server) > 6);
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    waiter.ends_with(0);
    assert_eq!(fixture.read("ran"), "ran\n");
}
