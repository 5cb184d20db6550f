//! The lock is lost while the command runs.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_testkit::{RedisServer, eventually};

use crate::tools::{Place, RunToEnd, Running, SOON, lives, stderr, stdout};

/// A command with a child of its own that ignores TERM, so that only KILL ends it. It writes down
/// the time, over and over, for as long as it lives.
const STUBBORN: &str = "trap '' TERM; echo $$ > child; echo $LEASEHOLD_DEADLINE > deadline; \
    (echo in; while :; do date +%s%N >> beats; sleep 0.01; done)";

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// A stubborn command ends, and the run with the code of a lost lock.
fn is_stopped(place: &Place, run: Running) {
    let child = place.line_of("child");
    let output = run.finish();
    assert!(!lives(&child));
    assert_eq!(output.status.code(), Some(122), "{}", stderr(&output));
}

/// A stubborn command wrote its last beat before the lock could pass on.
fn last_beat_before(place: &Place, end: Duration) {
    let beats = place.read("beats");
    let last = beats.lines().rfind(|line| line.len() == 19).unwrap();
    let last = Duration::from_nanos(last.parse().unwrap());
    assert!(last < end, "{:?} too late", last - end);
}

#[test]
fn a_dead_server_stops_the_command_before_the_lock_can_pass_on() {
    let mut server = RedisServer::start();
    let place = Place::with_store(server.url());
    let run = Running::start(place.run_script(&["--ttl", "5s", "job"], STUBBORN));
    server.kill9();
    // No renewal was granted after this moment.
    let killed = now();
    is_stopped(&place, run);
    last_beat_before(&place, killed + Duration::from_secs(5));
}

/// The runner cannot do it: it is stopped, too. Its guardian does.
#[test]
fn a_stopped_runner_loses_its_command_before_the_lock_can_pass_on() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let run = Running::start(place.run_script(&["--ttl", "4s", "job"], STUBBORN));
    let child = place.line_of("child");
    run.signal("STOP");
    // No renewal was sent after this moment.
    let stopped = now();
    eventually(SOON, || !lives(&child));
    last_beat_before(&place, stopped + Duration::from_secs(4));
    run.signal("CONT");
    assert_eq!(run.finish().status.code(), Some(122));
}

#[test]
fn a_fixed_lease_stops_the_command_before_it_ends() {
    let place = Place::new();
    let run = Running::start(place.run_script(&["--lease", "4s", "job"], STUBBORN));
    is_stopped(&place, run);
    let deadline = place.line_of("deadline").parse().unwrap();
    last_beat_before(&place, Duration::from_millis(deadline));
}

#[test]
fn a_command_within_its_fixed_lease_is_not_disturbed() {
    let place = Place::new();
    let output = place
        .run_script(&["--lease", "10s", "job"], "sleep 0.2; exit 3")
        .run_to_end();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_forced_release_ends_the_run_as_its_user_wants() {
    let place = Place::new();
    let term = "trap 'echo term >> got; exit 0' TERM; echo in; while :; do sleep 0.02; done";
    let ignore = "echo in; until test -e go-on; do sleep 0.02; done; exit 6";
    for (args, script, wanted) in [
        (&["--ttl", "3s", "job"][..], term, 122),
        (&["--ttl", "3s", "--lost-exit-code", "99", "job"], term, 99),
        (&["--ttl", "3s", "--on-lost", "kill", "job"], term, 122),
        (&["--ttl", "3s", "--on-lost", "ignore", "job"], ignore, 6),
    ] {
        let run = Running::start(place.run_script(args, script));
        let released = place.leasehold(["release", "--force", "job"]).run_to_end();
        assert_eq!(released.status.code(), Some(0));
        assert!(stdout(&released).contains("cut off"), "{released:?}");
        if wanted == 6 {
            // It runs on without the lock: another can have it.
            let other = place
                .run_script(&["-w", "20s", "job"], "true")
                .run_to_end()
                .status;
            assert!(other.success());
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
    let released = place
        .leasehold(["release", "--force", "job"])
        .run_to_end()
        .status;
    assert!(released.success());
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
    let other = place
        .run_script(&["-w", "4s", "job"], "true")
        .run_to_end()
        .status;
    assert_eq!(other.code(), Some(124));
    std::fs::write(place.path("go-on"), "").unwrap();
    assert_eq!(run.finish().status.code(), Some(4));
    eventually(SOON, || !place.is_held("job"));
}

/// Forks one process after the other, so that one is always forked while the others are looked for.
const FORKING: &str = "echo in; while :; do sleep 1000 & sleep 0.002; done";

#[test]
fn a_process_that_is_forked_while_the_others_are_told_to_end_is_told_so_too() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    for _ in 0..5 {
        let args = ["--ttl", "1h", "--kill-after", "30m", "job"];
        let run = Running::start(place.run_script(&args, FORKING));
        let released = place.leasehold(["release", "--force", "job"]).run_to_end();
        assert!(released.status.success());
        let output = run.finish();
        assert_eq!(output.status.code(), Some(122), "{}", stderr(&output));
    }
}

#[test]
fn what_a_command_starts_to_clean_up_is_not_told_to_end() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let script = "trap 'sleep 1 && echo clean >> cleaned; exit 0' TERM; \
        echo in; while :; do sleep 0.02; done";
    let args = ["--ttl", "1h", "--kill-after", "30m", "job"];
    let run = Running::start(place.run_script(&args, script));
    let released = place.leasehold(["release", "--force", "job"]).run_to_end();
    assert!(released.status.success());
    assert_eq!(run.finish().status.code(), Some(122));
    assert_eq!(place.read("cleaned"), "clean\n");
}

/// Another can have the lock from the release on, so the command is killed earlier than otherwise.
#[test]
fn a_command_whose_lock_is_anothers_is_killed_soon() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let run = Running::start(place.run_script(&["--ttl", "1h", "job"], STUBBORN));
    let released = now();
    let release = place.leasehold(["release", "--force", "job"]).run_to_end();
    assert!(release.status.success());
    assert_eq!(run.finish().status.code(), Some(122));
    last_beat_before(&place, released + Duration::from_secs(4));
}

/// The runner inside is told to end, and its command by it; its guardian must not take that for the end.
#[test]
fn a_run_inside_a_run_may_clean_up_when_the_outer_lock_is_lost() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let program = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "exec {program} run inner -- sh -c \
         \"trap 'sleep 0.3; echo term >> got; exit 0' TERM; echo in; while :; do sleep 0.02; done\""
    );
    let args = ["--ttl", "1h", "--kill-after", "30m", "outer"];
    let run = Running::start(place.run_script(&args, &script));
    let released = place
        .leasehold(["release", "--force", "outer"])
        .run_to_end();
    assert!(released.status.success());
    assert_eq!(run.finish().status.code(), Some(122));
    assert_eq!(place.read("got"), "term\n");
    assert!(!place.is_held("inner"));
}
