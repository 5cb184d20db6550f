//! Each command over the kinds of servers that the other tests do not use.

use leasehold_testkit::{EtcdCluster, PostgresServer, ZookeeperServer};

use crate::elections::{await_leader, candidate};
use crate::hold::HoldProcess;
use crate::jobs::start;
use crate::listings;
use crate::tools::{EndsWith, Fixture, Running, kill, spawn_with_lines};
use crate::watchdog::Node;

/// `run`, `ls`, `show`, `release`, `watch`, `hold`, `once`, `elect`, `leader` and `watchdog`.
fn all_commands(url: String) {
    let fixture = &Fixture::with_store(url);
    listings::check(fixture, true);

    let mut watch = fixture.leasehold(["watch", "--json", "held"]);
    let (mut watch, events) = spawn_with_lines(&mut watch);
    events.after("\"event\":\"free\"");
    let mut hold = HoldProcess::granted(fixture, &["held"]);
    events.after("\"event\":\"granted\"");
    hold.close_stdin();
    hold.ends_with(0);
    events.after("\"event\":\"released\"");
    kill("TERM", watch.id());
    watch.wait().unwrap();

    for _ in 0..2 {
        start(fixture, &["once", "--key", "v1", "migrate"]).ends_with(0);
    }
    assert_eq!(fixture.read("ran"), "ran\n");

    let leader = Running::start(candidate(fixture, "a:1", &[]));
    await_leader(fixture, "a:1");
    leader.terminate();

    let node = Node::start(fixture);
    let args = ["--watchdog-required", &node.option(), "--ttl", "1h", "job"];
    let run = fixture.hold(&args);
    node.has_run(fixture);
    run.signal("KILL");
    assert_eq!(fixture.try_run(&["-w", "60s", "job"]), 0);
    run.finish();
}

#[test]
fn on_postgres() {
    let server = PostgresServer::start();
    all_commands(server.url());
}

#[test]
fn on_etcd() {
    let server = EtcdCluster::start();
    all_commands(server.url());
}

#[test]
fn on_zookeeper() {
    let server = ZookeeperServer::start();
    all_commands(server.url());
}
