//! The commands with a lock over many masters.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use leasehold_testkit::{Masters, RedisServer, eventually, fill_connections};
use serde_json::Value;

use crate::tools::{Fixture, RunToEnd, SOON, code, finish, kill, stderr};

fn json(fixture: &Fixture, args: &[&str]) -> (i32, Value) {
    let output = fixture.leasehold(args).run_to_end();
    let answer = serde_json::from_slice(&output.stdout);
    let answer = answer.unwrap_or_else(|_| panic!("{args:?}: {}", stderr(&output)));
    (output.status.code().unwrap(), answer)
}

/// Runs under the lock, shows who holds it, and takes it away.
fn works(fixture: &Fixture, name: &str) {
    let exit = |script: &str| code(&mut fixture.run_script(&[name], script));
    assert_eq!(exit("exit 7"), 7);
    assert!(!fixture.is_held(name));
    let run = fixture.hold(&[name]);
    let (_, listed) = json(fixture, &["ls", "--json"]);
    assert_eq!(listed[0]["name"], name, "{listed}");
    let (shown, lock) = json(fixture, &["show", "--json", name]);
    assert_eq!((shown, &lock["held"]), (0, &Value::Bool(true)));
    let mut other = fixture.leasehold(["run", "--no-wait", name, "--", "true"]);
    assert_ne!(code(&mut other), 0);
    let (_, released) = json(fixture, &["release", "--force", "--json", name]);
    assert_eq!(released["released"], true);
    // Whoever runs under it is told, and ends.
    let ended = run.finish();
    assert_ne!(ended.status.code(), Some(0));
    eventually(SOON, || !fixture.is_held(name));
    assert_eq!(exit("true"), 0);
}

#[test]
fn over_three_also_without_one() {
    let mut masters = Masters::aged(3);
    let fixture = Fixture::with_store(masters.url());
    works(&fixture, "job");
    masters.server_mut(1).kill9();
    works(&fixture, "night");
}

#[test]
fn doctor_names_the_one_that_is_unlike_the_others() {
    let masters = Masters::aged(3);
    let fixture = Fixture::with_store(masters.url());
    let one = masters.server(1);
    one.cli(&["CONFIG", "SET", "appendfsync", "everysec"]);
    let (_, report) = json(&fixture, &["doctor", "--json"]);
    let findings = report["findings"].as_array().unwrap();
    let found = |check: &str, part: &str, node: &str| {
        findings.iter().any(|finding| {
            let has = |field: &str, part: &str| {
                let text = finding[field].as_str();
                text.unwrap_or_default().contains(part)
            };
            has("check", check) && has("seen", part) && has("node", node)
        })
    };
    let port = one.port().to_string();
    assert!(found("persistence", "everysec", &port), "{report}");
    assert!(found("masters", "3 nodes, 1 may be away", ""), "{report}");
}

#[test]
fn without_a_majority_the_reason_is_printed() {
    let mut masters = Masters::aged(3);
    let fixture = Fixture::with_store(masters.url());
    for nth in 0..2 {
        masters.server_mut(nth).kill9();
    }
    let output = fixture.run_script(&["job"], "true").run_to_end();
    assert_eq!(output.status.code(), Some(125));
    let told = stderr(&output);
    assert!(told.contains("no majority of 3 masters"), "{told}");
}

/// How long new masters are kept out: several ttls.
const LONGEST: Duration = Duration::from_secs(6);

#[test]
fn new_masters_are_waited_for() {
    let masters = Masters::start(3);
    let longest = LONGEST.as_secs();
    let fixture = Fixture::with_store(format!("{}?longest-ttl={longest}s", masters.url()));
    let begun = Instant::now();
    let mut run = fixture.run_script(&["--ttl", "1s", "job"], "echo ran > ran");
    let output = run.output().unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert_eq!(fixture.read("ran"), "ran\n");
    // The servers were started a moment before the run was.
    assert!(begun.elapsed() > LONGEST / 2, "{:?}", begun.elapsed());
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 1, "{told}");
    for part in ["kept out for another ", "redlock://127.0.0.1:", "\"job\""] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// What was certainly refused is not released, and nobody waits for that.
#[test]
fn a_wait_for_new_masters_ends_at_its_limit_and_by_a_signal() {
    let masters = Masters::start(3);
    let fixture = Fixture::with_store(masters.url());
    let output = fixture
        .run_script(&["-w", "1s", "job"], "true")
        .output()
        .unwrap();
    let told = stderr(&output);
    assert_eq!(output.status.code(), Some(125), "{told}");
    assert!(told.contains("kept out for another "), "{told}");
    assert!(!told.contains("could not be released"), "{told}");

    let mut waiting = fixture.run_script(&["job"], "true");
    let mut waiting = waiting.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(line.contains("kept out for another "), "{line}");
    kill("TERM", waiting.id());
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    assert_eq!(waiting.wait().unwrap().code(), Some(143));
}

/// How many connections a server has refused, asked on one that it has.
fn rejected(stream: &mut TcpStream) -> u64 {
    stream.write_all(b"INFO stats\r\n").unwrap();
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        let mut part = [0; 4096];
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "{answer}");
        answer.push_str(std::str::from_utf8(&part[..read]).unwrap());
    }
    let mut lines = answer.lines();
    let count = lines.find_map(|line| line.strip_prefix("rejected_connections:"));
    count.unwrap().parse().unwrap()
}

/// A newcomer whose masters do not serve yet waits for them, as for a single server.
#[test]
fn masters_that_load_their_data_are_waited_for() {
    let masters = Masters::aged(3);
    let fixture = Fixture::with_store(masters.url());
    // One serves, and the others make no majority without it.
    let loading = &masters.servers()[1..];
    for server in loading {
        server.cli(&[
            "CONFIG",
            "SET",
            "loading-process-events-interval-bytes",
            "1024",
        ]);
        server.cli(&["CONFIG", "SET", "key-load-delay", "2000"]);
        server.cli(&["DEBUG", "POPULATE", "30000", "key", "100"]);
    }
    std::thread::scope(|scope| {
        for server in loading {
            scope.spawn(|| server.cli(&["DEBUG", "RELOAD"]));
        }
        for server in loading {
            eventually(SOON, || {
                let pong = server.try_cli(&["PING"]);
                pong.is_err_and(|error| error.starts_with("LOADING"))
            });
        }
        let refused = fixture
            .run_script(&["--no-wait", "job"], "true")
            .run_to_end();
        assert_eq!(refused.status.code(), Some(125));
        let told = stderr(&refused);
        assert!(told.contains("still loading its data"), "{told}");

        let mut run = fixture.run_script(&["-v", "-w", "60s", "job"], "echo ran > ran");
        let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(run.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        for server in loading {
            server.cli(&["CONFIG", "SET", "key-load-delay", "0"]);
        }
        for part in ["waiting: ", "redlock://127.0.0.1:", "still loading"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert_eq!(finish(run).status.code(), Some(0));
    });
    assert_eq!(fixture.read("ran"), "ran\n");
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
    let server = RedisServer::start();
    let fixture = Fixture::with_store(server.url());
    let holder = fixture.hold(&["job"]);
    let mut waiter = fixture.run_script(&["-w", "60s", "job"], "echo ran > ran");
    let waiter = waiter.stderr(Stdio::piped()).spawn().unwrap();
    eventually(SOON, || {
        server.cli(&["EXISTS", "leasehold:{default:job}:queue"]) == "1"
    });
    kill("STOP", waiter.id());
    holder.signal("TERM");
    holder.ends_with(143);
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    server.cli(&["CONFIG", "RESETSTAT"]);
    kill("CONT", waiter.id());
    // Each request is refused in three places at most, and one says only who the client is.
    eventually(SOON, || refused_commands(&server) > 6);
    server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    let output = finish(waiter);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fixture.read("ran"), "ran\n");
}

/// A newcomer that a server does not let in for a while.
#[test]
fn a_server_that_is_full_is_waited_for() {
    let server = RedisServer::start();
    let fixture = Fixture::with_store(server.url());
    server.cli(&["CONFIG", "SET", "maxclients", "4"]);
    let mut others = fill_connections(server.port(), SOON);
    let refused = fixture.run_script(&["--no-wait", "job"], "true").output();
    let told = stderr(&refused.unwrap());
    assert!(told.contains("maxclients"), "{told}");
    let mut run = fixture.run_script(&["-w", "60s", "job"], "echo ran > ran");
    let mut run = run.spawn().unwrap();
    // It is refused, and asks again.
    let before = rejected(&mut others[0]);
    eventually(SOON, || rejected(&mut others[0]) >= before + 2);
    assert!(run.try_wait().unwrap().is_none());
    drop(others);
    assert_eq!(run.wait().unwrap().code(), Some(0));
    assert_eq!(fixture.read("ran"), "ran\n");
}
