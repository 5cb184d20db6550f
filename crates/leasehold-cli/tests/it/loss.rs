//! The lock is lost while the command runs.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use leasehold_testkit::{OutputLines, RedisServer, eventually};
use rustix::io::ioctl_fionbio;

use crate::tools::{
    EndsWith, Fixture, Running, SOON, assert_like, fill, kill, lives, now, rises, stderr, stdout,
    within_deadline,
};

/// A command with a child of its own that ignores TERM, so that only KILL ends it. It writes down
/// the time, over and over, for as long as it lives.
const STUBBORN: &str = "trap '' TERM; echo $$ > child; echo $LEASEHOLD_DEADLINE > deadline; \
    (echo in; while :; do date +%s%N >> beats; sleep 0.01; done)";

/// A stubborn command ends, and the run with the code of a lost lock. Returns what it printed.
fn is_stopped(fixture: &Fixture, run: Running) -> String {
    let child = fixture.line_of("child");
    let output = run.ends_with(122);
    assert!(!lives(&child));
    stderr(&output)
}

/// When a stubborn command wrote its last beat.
fn last_beat(fixture: &Fixture) -> Duration {
    let beats = fixture.read("beats");
    let last = beats.lines().rfind(|line| line.len() == 19).unwrap();
    Duration::from_nanos(last.parse().unwrap())
}

/// A stubborn command wrote its last beat before the lock could pass on.
fn last_beat_before(fixture: &Fixture, end: Duration) {
    let last = last_beat(fixture);
    assert!(last < end, "{:?} too late", last - end);
}

#[test]
fn a_dead_server_stops_the_command_before_the_lock_can_pass_on() {
    let (mut server, fixture) = Fixture::redis();
    let run = Running::start(fixture.run_script(&["--ttl", "15s", "job"], STUBBORN));
    let quiet = fixture.hold(&["--ttl", "15s", "-q", "quiet"]);
    server.kill9();
    // No renewal was granted after this moment.
    let killed = now();
    let printed = is_stopped(&fixture, run);
    last_beat_before(&fixture, killed + Duration::from_secs(15));
    let silence = "leasehold: job: the store does not reply; the command is stopped in ";
    let loss = "the lock is lost: the store did not renew it in time; stopping the command\n";
    let left = printed.strip_prefix(silence).expect(&printed);
    let (left, _) = left.split_once("s unless ").expect("seconds");
    let left = Duration::from_secs_f64(left.parse().expect("seconds"));
    assert!(now() >= killed + left, "{left:?}");
    assert_like(&printed, &format!("[..]\nleasehold: job: {loss}[..]"));
    let printed = stderr(&quiet.ends_with(122));
    assert_eq!(printed, format!("leasehold: quiet: {loss}"));
}

/// The runner cannot do it: it is also stopped. Its guardian does.
#[test]
fn a_stopped_runner_loses_its_command_before_the_lock_can_pass_on() {
    let (_server, fixture) = Fixture::redis();
    let run = Running::start(fixture.run_script(&["--ttl", "12s", "job"], STUBBORN));
    let child = fixture.line_of("child");
    run.signal("STOP");
    // No renewal was sent after this moment.
    let stopped = now();
    eventually(SOON, || !lives(&child));
    last_beat_before(&fixture, stopped + Duration::from_secs(12));
    run.signal("CONT");
    let output = run.ends_with(122);
    assert!(stderr(&output).contains("the lock is lost"));
}

#[test]
fn a_fixed_lease_stops_the_command_before_it_ends() {
    let fixture = Fixture::new();
    let run = Running::start(fixture.run_script(&["--lease", "15s", "job"], STUBBORN));
    let printed = is_stopped(&fixture, run);
    assert_like(&printed, "[..]job: its fixed lease (--lease) ends in [..]");
    let deadline = fixture.line_of("deadline").parse().unwrap();
    last_beat_before(&fixture, Duration::from_millis(deadline));
}

/// Neither does it keep the lock for `--retry-after`: another start takes over.
#[test]
fn a_run_that_its_fixed_lease_cuts_off_begins_no_minimum_hold() {
    let (_server, redis) = Fixture::redis();
    for fixture in [redis, Fixture::new()] {
        for job in [&["job"][..], &["--every", "1h", "job"]] {
            let cut_off = ["-v", "--lease", "4s", "--at-least", "1h"];
            let retry = ["--retry-after", "1h"];
            let options = if job.len() > 1 { &retry[..] } else { &[] };
            let run = fixture.hold(&[&cut_off[..], options, job].concat());
            let waiter = [&["-w", "20s"], job].concat();
            assert_eq!(fixture.try_run(&waiter), 0, "{job:?}");
            let printed = stderr(&run.ends_with(122));
            assert!(!printed.contains("stays taken"), "{printed}");
        }
    }
}

#[test]
fn a_revocation_ends_the_run_as_its_user_wants() {
    let fixture = Fixture::new();
    let term = "trap 'echo term >> got; exit 0' TERM; echo in; while :; do sleep 0.02; done";
    let ignore = "echo in; until test -e go-on; do sleep 0.02; done; exit 6";
    for (args, script, wanted) in [
        (&["-v", "--kill-after", "10s", "job"][..], term, 122),
        (
            &["--lost-exit-code", "99", "--kill-after", "10s", "job"],
            term,
            99,
        ),
        (&["--on-lost", "kill", "job"], term, 122),
        (&["--on-lost", "kill", "-q", "job"], term, 122),
        (&["--on-lost", "ignore", "-v", "job"], ignore, 6),
        (&["--on-lost", "ignore", "-q", "job"], ignore, 6),
    ] {
        let run = Running::start(fixture.run_script(args, script));
        let mut command = fixture.leasehold(["release", "--force", "job"]);
        let released = command.ends_with(0);
        assert!(stdout(&released).contains("cut off"), "{released:?}");
        if wanted == 6 {
            // It runs on without the lock: another can have it.
            assert_eq!(fixture.try_run(&["-w", "20s", "job"]), 0);
            fixture.write("go-on");
        }
        let output = run.ends_with(wanted);
        // Printed even by a quiet run.
        let cause = "leasehold: job: the lock is lost: an operator revoked it; ";
        assert!(stderr(&output).contains(cause), "{output:?}");
        assert!(!stderr(&output).contains("held for"), "{output:?}");
        let _ = std::fs::remove_file(fixture.path("go-on"));
    }
    assert_eq!(fixture.read("got"), "term\nterm\n", "not at --on-lost=kill");
}

#[test]
fn a_loss_that_shows_at_the_end_is_a_loss_all_the_same() {
    let fixture = Fixture::new();
    let run = fixture.hold_until_go_on(&["--ttl", "1h", "job"]);
    fixture.revoke("job");
    fixture.write("go-on");
    let output = run.ends_with(122);
    assert!(stderr(&output).contains("lost"), "{}", stderr(&output));
}

#[test]
fn a_lease_in_jeopardy_is_printed_and_its_command_goes_on_when_it_is_renewed() {
    let (server, fixture) = Fixture::redis();
    let replica = RedisServer::options().replica_of(&server).start();
    eventually(SOON, || {
        server
            .cli(&["INFO", "replication"])
            .contains("state=online")
    });
    // A silent server has an eighth of the ttl between the message and the loss.
    let args = ["--ttl", "24s", "--replicas", "1", "job"];
    let mut run = fixture.hold_until_go_on(&args);
    let lines = OutputLines::read(run.process.stderr.take().unwrap());
    let begins: [&dyn Fn(); 3] = [
        &|| replica.stop(),
        &|| drop(server.cli(&["CONFIG", "SET", "min-replicas-to-write", "2"])),
        &|| server.stop(),
    ];
    let ends: [&dyn Fn(); 3] = [
        &|| replica.cont(),
        &|| drop(server.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"])),
        &|| server.cont(),
    ];
    let problems = [
        "too few replicas acknowledge a renewal; the command is stopped in ",
        "the store replies, but does not renew the lock; the command is stopped in ",
        "the store does not reply; the command is stopped in ",
    ];
    for ((begin, end), problem) in begins.iter().zip(ends).zip(problems) {
        begin();
        let consequence = lines.after("leasehold: job: ");
        assert_like(&consequence, &format!("{problem}[..]s unless [..]"));
        end();
        assert_eq!(lines.after("leasehold: job: "), "held again");
    }
    fixture.write("go-on");
    run.ends_with(0);
    assert_eq!(lines.next_line(), None);
    assert!(!fixture.is_held("job"));
}

/// The pipe is full when the run has to print that its lease is held again.
#[test]
fn a_lease_is_renewed_while_nobody_reads_stderr() {
    let (server, fixture) = Fixture::redis();
    let (reader, mut writer) = std::io::pipe().unwrap();
    let script = "echo in; until test -e go-on; do sleep 0.02; done; exit 6";
    let mut command = fixture.run_script(&["--ttl", "24s", "job"], script);
    let mut process = command
        .stdout(Stdio::piped())
        .stderr(writer.try_clone().unwrap())
        .spawn()
        .unwrap();
    drop(command);
    OutputLines::read(process.stdout.take().unwrap()).after("in");
    let stderr = BufReader::new(reader);
    server.stop();
    let (stderr, line) = within_deadline(process.id(), move || read_line(stderr));
    assert!(line.contains("the store does not reply"), "{line}");
    fill(&mut writer);
    server.cont();
    let time_left = || -> i64 {
        let reply = server.cli(&["PTTL", "leasehold:{default:job}"]);
        reply.trim().parse().unwrap()
    };
    for _ in 0..2 {
        rises(time_left);
    }
    drop(writer);
    let lines = OutputLines::read(stderr);
    assert_eq!(lines.after("leasehold: job: "), "held again");
    fixture.write("go-on");
    process.ends_with(6);
    assert_eq!(lines.next_line(), None);
}

/// Each of these runs prints something, and its last line is the reason for its exit code.
#[test]
fn a_run_ends_although_nobody_reads_its_stderr() {
    let fixture = Fixture::new();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    fill(&mut writer);
    let start = |args: &[&str], command: &[&str]| {
        let mut run = fixture.leasehold(["run", "-v"]);
        run.args(args).arg("--").args(command);
        let stderr = writer.try_clone().unwrap();
        run.stdout(Stdio::null()).stderr(stderr).spawn().unwrap()
    };

    let holder = start(&["job"], &["sleep", "1000"]);
    eventually(SOON, || fixture.is_held("job"));
    start(&["-n", "job"], &["true"]).ends_with(75);
    start(&["other"], &["no-such-command"]).ends_with(127);
    fixture.revoke("job");
    holder.ends_with(122);
    let holder = start(&["job"], &["sleep", "1000"]);
    eventually(SOON, || fixture.is_held("job"));
    // A signal during the start of the command ends the run with the same code.
    kill("TERM", holder.id());
    holder.ends_with(143);
}

/// Another process with the same stderr has made it non-blocking.
#[test]
fn a_full_pipe_that_does_not_block_loses_no_line() {
    let fixture = Fixture::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    fill(&mut writer);
    ioctl_fionbio(&writer, true).unwrap();
    let script = "echo in; until test -e go-on; do sleep 0.02; done";
    let mut command = fixture.run_script(&["-v", "job"], script);
    let mut process = command
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .unwrap();
    drop(command);
    OutputLines::read(process.stdout.take().unwrap()).after("in");
    let lines = OutputLines::read(reader);
    lines.after("leasehold: waited ");
    fixture.write("go-on");
    lines.after("leasehold: held for ");
    process.ends_with(0);
}

fn read_line<R: BufRead>(mut reader: R) -> (R, String) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    (reader, line)
}

/// Forks one process after the other, so that one is always forked while the others are looked for.
const FORKING: &str = "echo in; while :; do sleep 1000 & sleep 0.002; done";

#[test]
fn a_process_that_is_forked_while_the_others_are_told_to_end_is_told_so_too() {
    let (_server, fixture) = Fixture::redis();
    for _ in 0..5 {
        let args = ["--ttl", "1h", "--kill-after", "30m", "job"];
        let run = Running::start(fixture.run_script(&args, FORKING));
        fixture.revoke("job");
        run.ends_with(122);
    }
}

#[test]
fn what_a_command_starts_to_clean_up_is_not_told_to_end() {
    let (_server, fixture) = Fixture::redis();
    let script = "trap 'sleep 1 && echo clean >> cleaned; exit 0' TERM; \
        echo in; while :; do sleep 0.02; done";
    let args = ["--ttl", "1h", "--kill-after", "30m", "job"];
    let run = Running::start(fixture.run_script(&args, script));
    fixture.revoke("job");
    run.ends_with(122);
    assert_eq!(fixture.read("cleaned"), "clean\n");
}

/// Another can have the lock from the release on, so the command is killed earlier than otherwise.
#[test]
fn a_command_whose_lock_is_anothers_is_killed_soon() {
    let (_server, fixture) = Fixture::redis();
    // A command whose lock is still its own may take longer every time.
    eventually(SOON, || {
        let run = Running::start(fixture.run_script(&["--ttl", "1h", "job"], STUBBORN));
        let released = now();
        fixture.revoke("job");
        run.ends_with(122);
        last_beat(&fixture) < released + Duration::from_secs(4)
    });
}

/// The runner inside is told to end, and its command by it; its guardian must not take that for the end.
#[test]
fn a_run_inside_a_run_may_clean_up_when_the_outer_lock_is_lost() {
    let (_server, fixture) = Fixture::redis();
    let program = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "exec {program} run inner -- sh -c \
         \"trap 'sleep 0.3; echo term >> got; exit 0' TERM; echo in; while :; do sleep 0.02; done\""
    );
    let args = ["--ttl", "1h", "--kill-after", "30m", "outer"];
    let run = Running::start(fixture.run_script(&args, &script));
    fixture.revoke("outer");
    run.ends_with(122);
    assert_eq!(fixture.read("got"), "term\n");
    assert!(!fixture.is_held("inner"));
}

/// The command itself has succeeded, and the lock is free when its lease ends.
#[test]
fn a_release_that_fails_is_printed_unless_the_run_is_quiet() {
    let (mut server, fixture) = Fixture::redis();
    let loud = fixture.hold_until_go_on(&["--ttl", "1h", "job"]);
    let quiet = fixture.hold_until_go_on(&["--ttl", "1h", "-q", "quiet"]);
    server.kill9();
    fixture.write("go-on");
    let printed = stderr(&loud.ends_with(0));
    let failed =
        "leasehold: job: the release of the lock failed, so it is free when its lease ends: ";
    assert!(printed.starts_with(failed), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
    assert_eq!(stderr(&quiet.ends_with(0)), "");
}
