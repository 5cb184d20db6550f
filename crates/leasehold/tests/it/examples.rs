//! The examples, as a user starts them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold_testkit::{OutputLines, RedisServer, RunToEnd as _, finish, kill};
use tokio::time::timeout;

use crate::fence::resources::{exchange, http};
use crate::fixture::Fixture;

/// The program of an example.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let path: PathBuf = profile.join("examples").join(name);
    assert!(
        path.exists(),
        "{name} was not built; run cargo build -p leasehold --examples"
    );
    Command::new(path)
}

/// The number of starts of an example if its store does not reply within 50 ms, its limit.
const STARTS_MAX: usize = 5;

/// What an example prints until it ends with success.
#[track_caller]
fn output(command: &mut Command) -> String {
    let mut starts = 0;
    loop {
        let output = command.run_to_end();
        starts += 1;
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains("within the time limit") && starts < STARTS_MAX {
            continue;
        }
        assert!(output.status.success(), "{command:?}: {errors}");
        return String::from_utf8(output.stdout).unwrap();
    }
}

/// An example that goes on until it is stopped.
fn start(command: &mut Command) -> (Child, OutputLines) {
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = OutputLines::read(process.stdout.take().unwrap());
    (process, lines)
}

/// Numbers differ from run to run.
fn without_numbers(text: &str) -> String {
    let mut digits = text.replace(|c: char| c.is_ascii_digit(), "#");
    while digits.contains("##") {
        digits = digits.replace("##", "#");
    }
    digits
}

#[test]
fn each_that_ends_prints_what_it_shows() {
    for (name, printed) in [
        (
            "locking",
            "held, fencing token #\ntry_lock: refused\nlock_timeout: refused after #ms\n\
             held, token #, for two seconds at most\n",
        ),
        (
            "run_until_lost",
            "importing under token #\n\
             stopped: lock \"import\" at STORE: the lease is lost: an operator revoked the lease\n\
             stopped: an operator revoked the lease\n",
        ),
        ("blocking", "four threads, one at a time\none lease: true\n"),
        (
            "reentry",
            "booked fees, # holds of one lease\nbooked interest, # holds of one lease\n\
             free again: true\n",
        ),
        (
            "fenced_sqlite",
            "next holder: written\nlate holder: refused, stop\norder # is paid\n",
        ),
        ("run_or_skip", "b: skipped\na: done\n"),
        (
            "testing",
            "one process writes the report of a day\n\
             a lock is free when the lease of a dead holder has ended\n\
             a process waits while the holder renews its lease\n\
             work ends when its lock is lost\n",
        ),
    ] {
        let sqlite = Fixture::sqlite();
        let url = sqlite.url().unwrap();
        let in_memory = output(&mut example(name)).replace("memory:", "STORE:");
        let in_file = output(example(name).arg(&url)).replace(&url, "STORE");
        for text in [in_memory, in_file] {
            assert_eq!(without_numbers(&text).replace("::", ":"), printed, "{name}");
        }
    }
}

#[test]
fn a_client_connects_to_every_kind_of_server_by_its_settings() {
    let password = "dd9b1f5c";
    let server = RedisServer::options()
        .acl("billing", password, "~* &* +@all")
        .start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let mut connect = example("connect");
    let user = [("LOCK_USER", "billing"), ("LOCK_PASSWORD", password)];
    let printed = output(connect.arg(&url).envs(user));
    assert!(printed.starts_with("connected to redis://"), "{printed}");
    assert!(!printed.contains(password), "{printed}");
    for (fixture, scheme) in [
        (Fixture::sentinel(), "redis+sentinel://"),
        (Fixture::redlock3(), "redlock://"),
    ] {
        let printed = output(example("connect").arg(fixture.url().unwrap()));
        let connected = format!("connected to {scheme}");
        assert!(printed.starts_with(&connected), "{printed}");
        let held = "invoices is held by connect (invoice run)\n";
        assert!(printed.ends_with(held), "{printed}");
    }
}

#[test]
fn a_worker_that_is_ended_leaves_no_lock_behind() {
    let sqlite = Fixture::sqlite();
    for signal in ["TERM", "INT"] {
        let mut worker = example("graceful_shutdown");
        let (process, lines) = start(worker.arg(sqlite.url().unwrap()));
        // The second one would wait for a lease that the first left behind.
        lines.after("working under token");
        kill(signal, process.id());
        lines.after("ending");
        assert_eq!(lines.after("released "), "1");
        assert!(finish(process).status.success());
    }
}

#[test]
fn a_process_stands_by_until_the_leader_is_dead() {
    let sqlite = Fixture::sqlite();
    let start = || start(example("singleton").arg(sqlite.url().unwrap()));
    let (leader, lines) = start();
    let term = |lines: &OutputLines| lines.after("leading, term ").parse::<u64>().unwrap();
    let first = term(&lines);
    let (next, lines) = start();
    lines.after("standing by");
    kill("KILL", leader.id());
    finish(leader);
    assert!(term(&lines) > first);
    kill("KILL", next.id());
    finish(next);
}

#[tokio::test]
async fn the_fenced_service_listens_where_it_is_told() {
    let (service, lines) = start(example("fenced_http").arg("127.0.0.1:0"));
    let address = lines.after("listening on http://");
    assert_eq!(http(&address, &["7"], "5").await.0, 200);
    assert_eq!(http(&address, &["6"], "6").await.0, 412);
    let read = "GET /stock HTTP/1.1\r\nHost: stock\r\nConnection: close\r\n\r\n";
    let (status, response) = exchange(&address, read).await;
    assert_eq!((status, response.ends_with("\r\n\r\n5")), (200, true));
    kill("KILL", service.id());
    finish(service);
}

#[tokio::test]
async fn a_service_exports_its_metrics() {
    let sqlite = Fixture::sqlite();
    let mut metrics = example("metrics");
    let (service, lines) = start(metrics.args([&sqlite.url().unwrap(), "127.0.0.1:0"]));
    let address = lines.after("metrics at http://");
    let (address, path) = address.split_once('/').unwrap();
    let read = format!("GET /{path} HTTP/1.1\r\nHost: service\r\nConnection: close\r\n\r\n");
    let held = "\nleasehold_hold_seconds_bucket{le=\"0.25\"} ";
    let exported = async { while !exchange(address, &read).await.1.contains(held) {} };
    timeout(Duration::from_secs(30), exported).await.unwrap();
    let (status, page) = exchange(address, &read).await;
    // On a busy machine its short leases may be lost.
    let lost = "\nleasehold_lost_total{cause=\"unreachable\"} ";
    assert_eq!((status, page.contains(lost)), (200, true), "{page}");
    kill("KILL", service.id());
    finish(service);
}
