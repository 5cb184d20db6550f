//! The servers do what tests build on.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testkit::{PostgresServer, RedisServer, Restart, SentinelSet, eventually};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_server_keeps_or_loses_its_data_over_a_restart() {
    let mut server = RedisServer::start();
    let port = server.port();
    server.cli(&["SET", "a", "1"]);
    server.restart(Restart::Kept);
    assert_eq!(server.cli(&["GET", "a"]), "1");
    server.kill9();
    assert!(server.try_cli(&["PING"]).is_err());
    server.restart(Restart::Empty);
    assert_eq!(server.cli(&["GET", "a"]), "");
    assert_eq!(server.port(), port);
}

#[test]
fn a_replica_follows_its_master() {
    let master = RedisServer::options().requirepass("secret").start();
    let replica = RedisServer::options().replica_of(&master).start();
    master.cli(&["SET", "a", "1"]);
    eventually(SOON, || replica.cli(&["GET", "a"]) == "1");
}

#[test]
fn a_sentinel_set_goes_on_without_its_master() {
    let mut set = SentinelSet::start();
    set.until_in_sync();
    let first = set.kill_master();
    let second = set.master_after(first);
    set.revive(first);
    set.until_in_sync();
    set.servers()[second].cli(&["SET", "a", "1"]);
    set.until_in_sync();
    let ordered = set.order_failover();
    assert_eq!(ordered, second);
    let third = set.master_after(second);
    assert_eq!(set.servers()[third].cli(&["GET", "a"]), "1");
}

#[test]
fn the_clock_of_a_server_can_be_moved_both_ways() {
    let server = RedisServer::options().clock_shim().start();
    let seconds = || -> i64 {
        let time = server.cli(&["TIME"]);
        time.lines().next().unwrap().parse().unwrap()
    };
    let before = seconds();
    server.step_clock(3_600_000);
    assert!(seconds() >= before + 3_600);
    server.step_clock(-7_200_000);
    assert!(seconds() < before - 3_500);
    server.cli(&["SET", "a", "1", "PX", "60000"]);
    server.step_clock(60_001);
    assert_eq!(server.cli(&["GET", "a"]), "");
}

/// Runs itself once more in a process of its own, which starts a server and is killed.
#[test]
fn a_stopped_server_dies_with_a_killed_test_process() {
    const VICTIM: &str = "LEASEHOLD_TESTKIT_VICTIM";
    if std::env::var_os(VICTIM).is_some() {
        let server = RedisServer::start();
        server.stop();
        println!("\nvictim {}", server.pid());
        std::thread::sleep(SOON * 6);
        unreachable!("nobody killed this process");
    }
    // A killed process does not remove its files.
    let directory = tempfile::tempdir().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_stopped_server_dies_with_a_killed_test_process",
        ])
        .arg("--nocapture")
        .env(VICTIM, "1")
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let pid = lines
        .map_while(Result::ok)
        .find_map(|line| Some(line.strip_prefix("victim ")?.to_owned()))
        .unwrap();
    let process = format!("/proc/{pid}");
    assert!(Path::new(&process).exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    eventually(SOON, || !Path::new(&process).exists());
}

#[test]
fn a_postgres_server_keeps_what_it_is_told_and_leaves_nothing() {
    let server = PostgresServer::start();
    let made = server.run(&[
        "CREATE TABLE a (b text)",
        "INSERT INTO a VALUES ('x')",
        "SELECT b FROM a",
    ]);
    assert_eq!(made, "CREATE TABLE\nINSERT 0 1\nx");
    let pids = server.run(&["SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()"]);
    assert!(pids.lines().count() > 1);
    drop(server);
    for pid in pids.lines() {
        eventually(SOON, || !Path::new("/proc").join(pid).exists());
    }
}
