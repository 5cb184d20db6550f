//! The commands with a lock over many masters.

use std::process::{Child, Command, Stdio};

use leasehold_testkit::{Masters, OutputLines, RedisServer, eventually};

use crate::tools::{EndsWith, Fixture, SOON, assert_like, kill, spawn_with_messages};

/// Starts a run, and waits for a line on stderr about its masters, before which they may reply too late on a busy
/// machine. Returns the process with its further lines.
fn message(mut run: Command, part: &str) -> (Child, OutputLines) {
    let (run, lines) = spawn_with_messages(&mut run);
    let mut line = String::new();
    while !line.contains(part) {
        line = lines.next_line().expect(part);
    }
    assert_like(&line, "[..]waiting: [..]redlock://127.0.0.1:[..]");
    (run, lines)
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
    let (waiting, lines) = message(waiting, "no majority of 3 masters for ");
    kill("TERM", waiting.id());
    assert_eq!(lines.next_line(), None);
    waiting.ends_with(143);
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
        let (run, _) = message(run, "still loading");
        for server in loading {
            server.cli(&["CONFIG", "SET", "key-load-delay", "0"]);
        }
        run.ends_with(0);
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
