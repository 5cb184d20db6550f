//! The runner is killed or stopped.

use std::time::{Duration, Instant};

use leasehold_testkit::{RedisServer, eventually};

use crate::tools::{Place, Running, SOON, lives, stderr};

/// kill -9 of the runner takes the command along, its children too, and the lock ends by its ttl.
#[test]
fn a_killed_runner_takes_all_its_processes_along() {
    let place = Place::new();
    let script = "echo $$ > child; sleep 1000 & echo $! > grandchild; \
                  setsid sleep 1000 & echo $! > far; echo in; wait";
    let begun = Instant::now();
    let mut run = Running::start(place.run_script(&["--ttl", "1s", "job"], script));
    let pids: Vec<_> = ["child", "grandchild", "far"]
        .map(|name| place.line_of(name))
        .into();
    assert!(pids.iter().all(|pid| lives(pid)));
    run.signal("KILL");
    run.process.wait().unwrap();
    for pid in &pids {
        eventually(SOON, || !lives(pid));
    }
    let again = place.run_script(&["-w", "20s", "job"], "true").status();
    assert!(again.unwrap().success());
    assert!(begun.elapsed() >= Duration::from_secs(1), "before the ttl");
}

#[test]
fn a_run_leaves_no_process_behind() {
    let place = Place::new();
    let script = "echo $LEASEHOLD_LEASE; echo $PPID > runner";
    let output = place.run_script(&["job"], script).output().unwrap();
    assert!(output.status.success());
    let runner = place.line_of("runner");
    assert!(!lives(&runner));
    // The guardian is a child of the runner, which has waited for it.
    let program = env!("CARGO_BIN_EXE_leasehold");
    let left = std::fs::read_dir("/proc").unwrap().any(|entry| {
        let path = entry.unwrap().path();
        let cmdline = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        let parent_is_runner = stat
            .rsplit_once(')')
            .is_some_and(|(_, rest)| rest.split_ascii_whitespace().nth(1) == Some(runner.as_str()));
        cmdline.starts_with(program.as_bytes()) && parent_is_runner
    });
    assert!(!left);
}

/// Stopped for longer than its ttl, the runner finds the lock lost before anything else.
///
/// On Redis: a process that is stopped in the middle of a SQLite transaction keeps the file to
/// itself until it goes on.
#[test]
fn a_stopped_runner_stops_the_command_when_it_goes_on() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let script = "echo $$ > child; echo in; exec sleep 1000";
    let run = Running::start(place.run_script(&["--ttl", "500ms", "job"], script));
    run.signal("STOP");
    // Another gets the lock meanwhile, so the lease is over for certain.
    let other = place.run_script(&["-w", "20s", "job"], "true").status();
    assert!(other.unwrap().success());
    run.signal("CONT");
    let child = place.line_of("child");
    let output = run.finish();
    assert_eq!(output.status.code(), Some(122), "{}", stderr(&output));
    assert!(stderr(&output).contains("the lock is lost"));
    assert!(!lives(&child));
}

/// Its question is on the way when the time is up, and would be granted with nobody to hold it.
#[test]
fn a_wait_that_times_out_leaves_no_question_behind() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let record = "leasehold:{default:job}";
    let stranger = format!("{}:1", "0".repeat(32));
    server.cli(&["HSET", record, &stranger, "1"]);
    server.cli(&["PEXPIRE", record, "1200"]);
    let begun = Instant::now();
    let mut waiting = place.run_script(&["-w", "600ms", "job"], "true");
    let mut waiting = waiting.spawn().unwrap();
    eventually(SOON, || {
        let calls = server.cli(&["INFO", "commandstats"]);
        calls.contains("cmdstat_evalsha:calls=") && !calls.contains("cmdstat_evalsha:calls=1,")
    });
    server.stop();
    // By then the stranger's lease has ended: whatever is in the server's inbox will be granted.
    let over = Duration::from_millis(1_500);
    eventually(SOON, || begun.elapsed() > over);
    server.cont();
    assert_eq!(waiting.wait().unwrap().code(), Some(124));
    assert!(!place.is_held("job"));
}
