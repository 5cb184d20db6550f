//! The watchdog and its runs.

use std::process::{Child, Stdio};

use leasehold_testkit::{eventually, found_within};

use crate::elections::probe;
use crate::schema::checked;
use crate::tools::{
    EndsWith, Fixture, RunToEnd, Running, SOON, assert_like, fill, kill, lives,
    spawn_with_messages, stderr, stdout,
};

/// A node in a fixture. It ends with the test.
pub(crate) struct Node {
    process: Child,
    socket: String,
}

impl Node {
    pub(crate) fn start(fixture: &Fixture) -> Self {
        Self::start_with(fixture, &[], Stdio::null())
    }

    fn start_with(fixture: &Fixture, args: &[&str], log: impl Into<Stdio>) -> Self {
        let socket = fixture.path("watchdog.sock").display().to_string();
        let listen = format!("unix:{socket}");
        let mut process = fixture.leasehold(["watchdog", "--listen", &listen]);
        let process = process.args(args).stderr(log).spawn().unwrap();
        let node = Self { process, socket };
        eventually(SOON, || node.status(fixture).is_some());
        node
    }

    /// A node with its log in `log`, and the address of its metrics.
    fn with_metrics(fixture: &Fixture) -> (Self, String) {
        let log = std::fs::File::create(fixture.path("log")).unwrap();
        let args = ["--metrics", "127.0.0.1:0", "--log", "json"];
        let node = Self::start_with(fixture, &args, log);
        // The node replies before another thread writes its log.
        eventually(SOON, || fixture.read("log").contains("/metrics"));
        let log = fixture.read("log");
        let (_, address) = log.split_once("metrics are at http://").unwrap();
        let (address, _) = address.split_once("/metrics").unwrap();
        (node, address.to_owned())
    }

    /// The option `--watchdog`.
    pub(crate) fn option(&self) -> String {
        format!("--watchdog=unix:{}", self.socket)
    }

    fn status(&self, fixture: &Fixture) -> Option<serde_json::Value> {
        let args = ["watchdog", "status", "--json", "--socket", &self.socket];
        let output = fixture.leasehold(args).run_to_end();
        match output.status.code() {
            Some(0) => Some(checked("watchdog_status", &stdout(&output))),
            _ => None,
        }
    }

    /// A field of its only client.
    pub(crate) fn client(&self, fixture: &Fixture, field: &str) -> serde_json::Value {
        // A busy node may reply too late.
        let status = found_within(SOON, || self.status(fixture));
        status.unwrap()["clients"][0][field].clone()
    }

    /// Waits until a run is registered with all its processes.
    pub(crate) fn has_run(&self, fixture: &Fixture) {
        eventually(SOON, || {
            self.client(fixture, "leases") == 1 && self.client(fixture, "processes") == 3
        });
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A run whose command waits for a file.
fn run(fixture: &Fixture, node: &Node, ttl: &str) -> Running {
    let script =
        "echo $$ > child; echo in; while ! test -e go-on; do sleep 0.01; done; echo out > end";
    let watchdog = node.option();
    let args = ["--watchdog-required", &watchdog, "--ttl", ttl, "job"];
    let run = Running::start(fixture.run_script(&args, script));
    node.has_run(fixture);
    run
}

/// The node keeps the leases of others.
#[test]
fn a_node_works_and_ends_while_nobody_reads_its_stderr() {
    let fixture = Fixture::new();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    fill(&mut writer);
    let mut node = Node::start_with(&fixture, &["--log", "json"], writer);
    kill("TERM", node.process.id());
    eventually(SOON, || node.process.try_wait().unwrap().is_some());
    assert_eq!(node.process.wait().unwrap().code(), Some(0));
}

#[test]
fn a_stopped_run_keeps_its_lock_and_its_command() {
    let (_server, fixture) = Fixture::redis();
    let node = Node::start(&fixture);
    let run = run(&fixture, &node, "12s");
    let child = fixture.line_of("child");
    run.signal("STOP");
    // A wait for two ttls times out.
    assert_eq!(fixture.try_run(&["-w", "24s", "job"]), 124);
    assert_eq!(node.client(&fixture, "state"), "silent");
    assert!(lives(&child));
    run.signal("CONT");
    eventually(SOON, || node.client(&fixture, "state") == "alive");
    fixture.write("go-on");
    run.ends_with(0);
    assert_eq!(fixture.line_of("end"), "out");
    assert!(!fixture.is_held("job"));
}

/// The next run begins immediately after the last process of the killed one has ended, and not before.
#[test]
fn a_killed_run_frees_its_lock_at_once_after_the_last_of_its_processes() {
    let (_server, fixture) = Fixture::redis();
    let node = Node::start(&fixture);
    let script = "for i in $(seq 100); do setsid env -i sleep 1000 & echo $! >> workers; done; \
        echo in; wait";
    let watchdog = node.option();
    let args = ["--watchdog-required", &watchdog, "--ttl", "1h", "job"];
    let run = Running::start(fixture.run_script(&args, script));
    node.has_run(&fixture);
    run.signal("KILL");
    let look = "for pid in $(cat workers); do ! kill -0 $pid || echo $pid; done 2> /dev/null";
    let output = fixture.run_script(&["-w", "20s", "job"], look).ends_with(0);
    assert_eq!(stdout(&output), "", "they worked on without the lock");
}

/// Stops a run, then ends or stops its node, and checks that the command ends with the lease.
fn check_lost_when_node_gets(signal: &str) {
    let (_server, fixture) = Fixture::redis();
    let node = Node::start(&fixture);
    let run = run(&fixture, &node, "12s");
    run.signal("STOP");
    kill(signal, node.process.id());
    let child = fixture.line_of("child");
    assert_eq!(fixture.try_run(&["-w", "30s", "job"]), 0);
    assert!(!lives(&child), "it worked on without the lock");
    run.signal("CONT");
    run.ends_with(122);
}

/// The node goes on to renew the other one.
#[test]
fn a_stopped_run_of_several_names_loses_its_command_with_one_of_them() {
    let (_server, fixture) = Fixture::redis();
    let node = Node::start(&fixture);
    let watchdog = node.option();
    let options = ["--watchdog-required", &watchdog, "--ttl", "6s"];
    let args = [&options[..], &["a", "--and", "b"]].concat();
    let script = "echo $$ > child; echo in; exec sleep 1000";
    let run = Running::start(fixture.run_script(&args, script));
    eventually(SOON, || {
        node.client(&fixture, "leases") == 2 && node.client(&fixture, "processes") == 3
    });
    run.signal("STOP");
    fixture.revoke("b");
    let child = fixture.line_of("child");
    eventually(SOON, || !lives(&child));
    assert!(fixture.is_held("a"));
    run.signal("CONT");
    run.ends_with(122);
}

#[test]
fn a_run_that_was_stopped_is_lost_when_the_watchdog_is_gone() {
    check_lost_when_node_gets("KILL");
}

/// It accepts what the guardian asks, and never replies.
#[test]
fn a_run_that_was_stopped_is_lost_when_the_watchdog_is_stopped_as_well() {
    check_lost_when_node_gets("STOP");
}

#[test]
fn without_a_watchdog_a_run_runs() {
    let fixture = Fixture::new();
    let nowhere = "--watchdog=unix:/nonexistent/watchdog.sock";
    let mut command = fixture.run_script(&[nowhere, "job"], "echo in");
    let output = command.run_to_end();
    assert_eq!(stdout(&output), "in\n");
    let words = stderr(&output);
    let expected = "leasehold: no watchdog at unix:/nonexistent/watchdog.sock ([..]the lock is not watched \
                    (--watchdog-required to insist)\n";
    assert_like(&words, expected);
    assert_eq!(words.lines().count(), 1, "{words}");
    let mut quiet = fixture.run_script(&["-q", nowhere, "job"], "true");
    assert_eq!(stderr(&quiet.run_to_end()), words);
}

/// A name of the store that is not the node's does not go unnoticed.
#[test]
fn a_node_that_does_not_serve_the_store_is_named_with_its_stores() {
    let (server, fixture) = Fixture::redis();
    let node = Node::start(&fixture);
    let other = server.url().replace("127.0.0.1", "localhost");
    let run = |args: &[&str]| {
        // Long enough for the reply of the node, for which the exit hardly waits.
        let mut run = fixture.run_script(
            &[&["--store", &other, &node.option()], args].concat(),
            "sleep 3",
        );
        run.run_to_end()
    };
    let words = stderr(&run(&["job"]).ends_with(0));
    let (served, port) = (format!("(it serves: {})", server.url()), server.port());
    let not_served = format!(
        "at unix:{} does not serve redis://localhost:{port}",
        node.socket
    );
    let expected =
        format!("[..]{not_served}[..]{served}[..]--watchdog-store[..]the lock is not watched[..]");
    assert_like(&words, &expected);
    assert_eq!(words.lines().count(), 1, "{words}");
    let words = stderr(&run(&["--watchdog-required", "job"]).ends_with(125));
    assert_like(&words, &format!("[..]{not_served}[..]{served}[..]"));
    let output = run(&["--watchdog-store", &server.url(), "job"]).ends_with(0);
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_node_that_is_lost_and_found_is_reported_once_each() {
    let fixture = Fixture::new();
    let node = Node::start(&fixture);
    let script = "until test -e go-on; do sleep 0.02; done";
    let mut run = fixture.run_script(&[&node.option(), "job"], script);
    let (run, messages) = spawn_with_messages(&mut run);
    node.has_run(&fixture);
    let socket = node.socket.clone();
    drop(node);
    let lost = format!("leasehold: the connection to the watchdog at unix:{socket} has ended[..]");
    assert_like(&messages.next_line().unwrap(), &lost);
    let node = Node::start(&fixture);
    let found = format!("leasehold: the watchdog at unix:{socket} watches the lock now");
    assert_eq!(messages.next_line(), Some(found));
    node.has_run(&fixture);
    fixture.write("go-on");
    run.ends_with(0);
    assert_eq!(messages.next_line(), None);
}

/// Only a client that dies with leases is a death.
#[test]
fn an_ordinary_end_is_not_a_death() {
    let fixture = Fixture::new();
    let (node, metrics) = Node::with_metrics(&fixture);
    let watchdog = node.option();
    let required = ["--watchdog-required", &watchdog, "job"];
    for _ in 0..4 {
        assert_eq!(fixture.try_run(&required), 0);
    }
    let count = |name: &str| {
        let (status, metrics) = probe(&metrics, "GET /metrics").unwrap();
        assert_eq!(status, "200 OK");
        let line = format!("leasehold_watchdog_{name}_total ");
        let value = metrics.lines().find_map(|it| it.strip_prefix(&*line));
        value.map_or(0, |value| value.parse::<u32>().unwrap())
    };
    // A run waits only briefly until the node has noticed its end.
    eventually(SOON, || count("ended") == 4);
    assert_eq!(count("deaths"), 0);
    for _ in 0..4 {
        assert_eq!(fixture.try_run(&[&watchdog, "job"]), 0);
    }
    assert_eq!(count("deaths"), 0);
    assert!(!fixture.read("log").contains("a client is dead"));
    let run = fixture.hold(&required);
    node.has_run(&fixture);
    run.signal("KILL");
    eventually(SOON, || count("deaths") == 1);
    run.finish();
    assert_eq!(fixture.try_run(&["-w", "20s", "job"]), 0);
    assert_eq!(count("deaths"), 1);
    assert!(fixture.read("log").contains("a client is dead"));
}

#[test]
fn the_status_lists_the_clients() {
    let fixture = Fixture::new();
    let node = Node::start(&fixture);
    // A busy node may reply too late.
    let status_with = |words: &str| {
        let args = ["watchdog", "status", "--socket", &node.socket];
        let status = || Some(stdout(&fixture.leasehold(args).run_to_end()));
        found_within(SOON, || status().filter(|text| text.contains(words))).expect(words)
    };
    status_with("0 clients, 0 leases");
    let run = run(&fixture, &node, "30s");
    let text = status_with("1 client, 1 lease");
    let pid = run.process.id();
    let expected = format!("[..]1 client, 1 lease[..]STATE[..]{pid}[..]alive[..]sqlite:[..]");
    assert_like(&text, &expected);
    fixture.write("go-on");
    run.ends_with(0);
    let none = serde_json::json!([]);
    eventually(SOON, || {
        let status = node.status(&fixture);
        status.is_some_and(|status| status["clients"] == none)
    });
}

#[test]
fn a_node_lives_on_when_nobody_reads_its_log() {
    for form in ["text", "json"] {
        let fixture = Fixture::new();
        let (reader, log) = std::io::pipe().unwrap();
        drop(reader);
        let node = Node::start_with(&fixture, &["--log", form], log);
        let required = ["--watchdog-required", &node.option(), "job"];
        assert_eq!(fixture.try_run(&required), 0, "{form}");
    }
}

/// Neither a label nor the URL of a store breaks a record, or reaches the terminal.
#[test]
fn a_record_of_the_json_log_is_one_line_of_visible_characters() {
    let odd = "a\"b\\c\n{\"d\": 1}\r\u{1b}[31me\u{9b}f\u{202e}g";
    let fixture = Fixture::new();
    let log = std::fs::File::create(fixture.path("log")).unwrap();
    let store = format!("odd=sqlite:/nonexistent/{odd}");
    let node = Node::start_with(&fixture, &["--log", "json", "--serve", &store], log);
    let watchdog = node.option();
    let label = format!("--label={odd}");
    let name = "a\"b\\c";
    let run = fixture.hold(&["--watchdog-required", &watchdog, &label, name]);
    node.has_run(&fixture);
    run.signal("KILL");
    eventually(SOON, || fixture.read("log").contains("a client is dead"));
    run.finish();
    let log = fixture.read("log");
    let is_visible = |c: char| !c.is_control() && c != '\u{202e}';
    let mut records = Vec::new();
    for line in log.lines().filter(|line| !line.starts_with("leasehold: ")) {
        assert!(line.chars().all(is_visible), "{line:?}");
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        records.push(record["fields"].clone());
    }
    let field = |message: &str, name: &str| {
        let mut all = records.iter();
        let record = all.find(|it| it["message"].as_str().unwrap().contains(message));
        record.unwrap()[name].as_str().unwrap().to_owned()
    };
    // The library takes no control characters into a label.
    let label: String = odd.chars().filter(|c| !c.is_control()).collect();
    assert_eq!(field("a client is dead", "label"), label);
    let store = field("cannot open a store", "store");
    assert_eq!(store, format!("sqlite:/nonexistent/{odd}"));
}
