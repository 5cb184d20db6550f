//! The servers do what tests build on.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold_testkit::{OutputLines, PostgresServer, RedisServer, eventually};

const SOON: Duration = Duration::from_secs(10);

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

/// No process of it is told to end.
#[test]
fn a_killed_postgres_server_is_started_again() {
    let mut server = PostgresServer::start();
    server.run(&["SET synchronous_commit = on", "CREATE TABLE kept ()"]);
    let mut busy = server.psql();
    busy.args(["-c", "SELECT pg_sleep(60)"])
        .stderr(Stdio::null());
    let mut busy = busy.spawn().unwrap();
    let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    eventually(SOON, || server.run(&[sleeping]) == "1");
    server.restart();
    assert!(!busy.wait().unwrap().success());
    server.run(&["SELECT FROM kept"]);
    let log = fs::read_to_string(server.directory().join("server.log")).unwrap();
    assert!(!log.contains("immediate shutdown"), "{log}");
}

/// Runs itself once more in a process of its own, which starts a server and is killed.
#[test]
fn a_stopped_server_dies_with_a_killed_test_process() {
    const VICTIM: &str = "LEASEHOLD_TESTKIT_VICTIM";
    if std::env::var_os(VICTIM).is_some() {
        let server = RedisServer::start();
        server.stop();
        println!("\nvictim {} {}", server.pid(), server.directory().display());
        std::thread::sleep(SOON * 6);
        unreachable!("nobody killed this process");
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_stopped_server_dies_with_a_killed_test_process",
        ])
        .arg("--nocapture")
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = OutputLines::read(victim.stdout.take().unwrap());
    let server = output.after("victim ");
    let (pid, directory) = server.split_once(' ').unwrap();
    // Empty for a zombie, which stays until its new parent reaps it.
    let command = format!("/proc/{pid}/cmdline");
    let runs = || fs::read(&command).is_ok_and(|command| !command.is_empty());
    assert!(runs());
    victim.kill().unwrap();
    victim.wait().unwrap();
    eventually(SOON, || !runs());
    // A killed process does not remove its files.
    fs::remove_dir_all(directory).unwrap();
}
