//! The lock is lost while the command runs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_testkit::{RedisServer, eventually};

use crate::tools::{Place, Running, SOON, lives, stderr, stdout};

/// A command with a child of its own that ignores TERM, so that only KILL ends it. It writes down
/// the time, over and over, for as long as it lives.
const STUBBORN: &str = "trap '' TERM; echo $$ > child; \
    (echo in; while :; do date +%s%N >> beats; sleep 0.01; done)";

/// The lease cannot have begun before this moment, nor end before this moment and its length.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// A stubborn command wrote its last beat before the lock could pass on.
fn stopped_in_time(place: &Place, run: Running, begun: Duration, lease: Duration) {
    let child = place.line_of("child");
    let output = run.finish();
    assert!(!lives(&child));
    assert_eq!(output.status.code(), Some(122), "{}", stderr(&output));
    last_beat_in_time(place, begun, lease);
}

fn last_beat_in_time(place: &Place, begun: Duration, lease: Duration) {
    let beats = place.read("beats");
    let last = beats.lines().rfind(|line| line.len() == 19).unwrap();
    let stopped = Duration::from_nanos(last.parse().unwrap()) - begun;
    assert!(stopped < lease, "worked for {stopped:?} of {lease:?}");
}

#[test]
fn a_dead_server_stops_the_command_before_the_lock_can_pass_on() {
    let mut server = RedisServer::start();
    let place = Place::with_store(server.url());
    let begun = now();
    let run = Running::start(place.run_script(&["--ttl", "3s", "job"], STUBBORN));
    server.kill9();
    stopped_in_time(&place, run, begun, Duration::from_secs(3));
}

/// The runner cannot do it: it is stopped, too. Its guardian does.
#[test]
fn a_stopped_runner_loses_its_command_before_the_lock_can_pass_on() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let run = Running::start(place.run_script(&["--ttl", "2s", "job"], STUBBORN));
    let child = place.line_of("child");
    run.signal("STOP");
    // No renewal was sent after this moment.
    let stopped = now();
    eventually(SOON, || !lives(&child));
    last_beat_in_time(&place, stopped, Duration::from_secs(2));
    run.signal("CONT");
    assert_eq!(run.finish().status.code(), Some(122));
}

#[test]
fn a_fixed_lease_stops_the_command_before_it_ends() {
    let place = Place::new();
    let begun = now();
    let run = Running::start(place.run_script(&["--lease", "2s", "job"], STUBBORN));
    stopped_in_time(&place, run, begun, Duration::from_secs(2));
}

#[test]
fn a_command_within_its_fixed_lease_is_not_disturbed() {
    let place = Place::new();
    let output = place
        .run_script(&["--lease", "10s", "job"], "sleep 0.2; exit 3")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_forced_release_ends_the_run_as_its_user_wants() {
    let place = Place::new();
    let term = "trap 'echo term >> got; exit 0' TERM; echo in; while :; do sleep 0.02; done";
    let ignore = "echo in; until test -e go-on; do sleep 0.02; done; exit 6";
    for (args, script, wanted) in [
        (&["--ttl", "600ms", "job"][..], term, 122),
        (
            &["--ttl", "600ms", "--lost-exit-code", "99", "job"],
            term,
            99,
        ),
        (&["--ttl", "600ms", "--on-lost", "kill", "job"], term, 122),
        (&["--ttl", "600ms", "--on-lost", "ignore", "job"], ignore, 6),
    ] {
        let run = Running::start(place.run_script(args, script));
        let released = place
            .leasehold(["release", "--force", "job"])
            .output()
            .unwrap();
        assert_eq!(released.status.code(), Some(0));
        assert!(stdout(&released).contains("cut off"), "{released:?}");
        if wanted == 6 {
            // It runs on without the lock: another can have it.
            let other = place.run_script(&["-w", "20s", "job"], "true").status();
            assert!(other.unwrap().success());
            std::fs::write(place.path("go-on"), "").unwrap();
        }
        let output = run.finish();
        assert_eq!(output.status.code(), Some(wanted), "{args:?}");
    }
    assert_eq!(place.read("got"), "term\nterm\n", "not at --on-lost=kill");
}

#[test]
fn a_loss_that_shows_at_the_end_is_a_loss_all_the_same() {
    let place = Place::new();
    let script = "echo in; until test -e go-on; do sleep 0.02; done; exit 0";
    let run = Running::start(place.run_script(&["--ttl", "1h", "job"], script));
    let released = place.leasehold(["release", "--force", "job"]).status();
    assert!(released.unwrap().success());
    std::fs::write(place.path("go-on"), "").unwrap();
    let output = run.finish();
    assert_eq!(output.status.code(), Some(122), "{}", stderr(&output));
    assert!(stderr(&output).contains("lost"), "{}", stderr(&output));
}

#[test]
fn a_server_that_pauses_for_less_than_the_margin_loses_nothing() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let script = "echo in; until test -e go-on; do sleep 0.02; done; exit 4";
    let run = Running::start(place.run_script(&["--ttl", "3s", "job"], script));
    server.stop();
    std::thread::sleep(Duration::from_millis(1_200));
    server.cont();
    // Held for longer than one ttl after all that: it was renewed.
    let other = place.run_script(&["-w", "4s", "job"], "true").status();
    assert_eq!(other.unwrap().code(), Some(124));
    std::fs::write(place.path("go-on"), "").unwrap();
    assert_eq!(run.finish().status.code(), Some(4));
    eventually(SOON, || !place.is_held("job"));
}
