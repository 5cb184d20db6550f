//! The runner is killed or stopped.

use std::time::{Duration, Instant};

use leasehold_testkit::{eventually, found_within};
use rustix::process::{Pid, Signal, kill_process};

use crate::tools::{
    EndsWith, Fixture, Running, SOON, assert_like, children_of, finish, is_stopped, kill, lives,
    parent_of, stderr, through, zombies_of,
};

/// Processes that hide from the command that started them, each of which writes its id: in a session of its own, with
/// an empty environment, with another title, orphaned twice.
const FAR: &str = "echo $$ > child; sleep 1000 & echo $! > grandchild; \
    setsid sleep 1000 & echo $! > session; \
    env -i /bin/sh -c 'echo $$ > empty; exec sleep 1000' & \
    setsid env -u LEASEHOLD_LEASE sh -c 'echo $$ > unset; exec sleep 1000' & \
    perl -e '$0 = q(worker); open(F, q(>), q(title)); print F qq($$\n); close F; sleep 1000' & \
    (setsid env -i /bin/sh -c '/bin/sleep 1000 & echo $! > orphan' &); \
    echo in; wait";
const FAR_PROCESSES: [&str; 7] = [
    "child",
    "grandchild",
    "session",
    "empty",
    "unset",
    "title",
    "orphan",
];

/// The ids of all processes of such a command.
fn far_processes(fixture: &Fixture) -> Vec<String> {
    let pids: Vec<_> = FAR_PROCESSES.map(|name| fixture.line_of(name)).into();
    assert!(pids.iter().all(|pid| lives(pid)));
    pids
}

/// kill -9 of the runner takes the command along with all its processes, and the lock ends by its ttl. `killall -9
/// leasehold` is what people type: one process must be left that ends the command.
#[test]
fn a_run_that_is_killed_by_its_name_takes_all_its_processes_along() {
    let fixture = Fixture::new();
    let begun = Instant::now();
    let run = Running::start(fixture.run_script(&["--ttl", "9s", "job"], FAR));
    let pids = far_processes(&fixture);
    let name = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let run_pid = run.process.id().to_string();
    let mut by_name = children_of(std::slice::from_ref(&run_pid));
    by_name.retain(|pid| name(pid).contains("leasehold"));
    by_name.push(run_pid);
    // None must notice the end of another.
    for signal in ["STOP", "KILL"] {
        for pid in &by_name {
            kill(signal, pid.parse().unwrap());
        }
    }
    for pid in &pids {
        eventually(SOON, || !lives(pid));
    }
    run.finish();
    assert_eq!(fixture.try_run(&["-w", "20s", "job"]), 0);
    assert!(begun.elapsed() >= Duration::from_secs(9), "before the ttl");
}

/// Without it the runner could no longer be killed, so it ends the command itself.
#[test]
fn a_killed_guardian_ends_the_run() {
    let fixture = Fixture::new();
    let run = Running::start(fixture.run_script(&["job"], FAR));
    let pids = far_processes(&fixture);
    let guardian = parent_of(&pids[0]);
    assert_ne!(guardian, run.process.id().to_string());
    kill("KILL", guardian.parse().unwrap());
    let output = run.ends_with(125);
    assert!(stderr(&output).contains("the guardian of the command was killed"));
    for pid in &pids {
        assert!(!lives(pid));
    }
    assert!(!fixture.is_held("job"));
}

/// Otherwise it would not report the end of the command.
#[test]
fn a_guardian_that_is_stopped_goes_on() {
    let fixture = Fixture::new();
    let run = fixture.hold_until_go_on(&["job"]);
    kill("STOP", fixture.line_of("guardian").parse().unwrap());
    fixture.write("go-on");
    run.ends_with(0);
}

/// Stops the guardian of a run as soon as it is there: it is about to start the command, which must not end by itself.
/// Returns its process id.
fn stop_new_guardian(run: u32) -> u32 {
    let children = format!("/proc/{run}/task/{run}/children");
    let begun = Instant::now();
    let mut guardian = String::new();
    while guardian.is_empty() && begun.elapsed() < SOON {
        guardian = std::fs::read_to_string(&children).unwrap();
    }
    let guardian: i32 = guardian.trim().parse().unwrap();
    // Before that it is a copy of the runner, which waits for it and could not continue it.
    let program = format!("/proc/{guardian}/cmdline");
    while !std::fs::read_to_string(&program)
        .unwrap()
        .contains("-guardian")
    {
        assert!(begun.elapsed() < SOON);
    }
    // Starting kill(1) takes as long as the guardian takes to start the command.
    kill_process(Pid::from_raw(guardian).unwrap(), Signal::STOP).unwrap();
    guardian.unsigned_abs()
}

/// Stops a process. `false`: it has ended.
fn stop(pid: u32) -> bool {
    let has_ended = || !lives(&pid.to_string());
    if !has_ended() {
        kill("STOP", pid);
        eventually(SOON, || is_stopped(pid) || has_ended());
    }
    !has_ended()
}

/// Otherwise the run would wait for its first report for ever.
#[test]
fn a_guardian_that_is_stopped_before_its_first_report_goes_on() {
    let fixture = Fixture::new();
    let script = "until test -e go-on; do sleep 0.02; done";
    let run = fixture.run_script(&["job"], script).spawn().unwrap();
    stop_new_guardian(run.id());
    fixture.write("go-on");
    run.ends_with(0);
}

/// As by a terminal, which stops the runner and not the guardian.
#[test]
fn a_runner_that_is_stopped_before_the_command_begins_loses_it_in_time() {
    let (_server, fixture) = Fixture::redis();
    let script = "echo $$ > child; exec sleep 1000";
    let run = fixture.run_script(&["--ttl", "6s", "job"], script).spawn();
    let run = run.unwrap();
    let guardian = stop_new_guardian(run.id());
    // The runner sends its order meanwhile. Is it too slow, there is nothing to see here.
    std::thread::sleep(Duration::from_millis(500));
    kill("STOP", run.id());
    kill("CONT", guardian);
    assert_eq!(fixture.try_run(&["-w", "20s", "job"]), 0);
    let child = fixture.read("child").trim().to_owned();
    eventually(SOON, || child.is_empty() || !lives(&child));
    kill("CONT", run.id());
    run.ends_with(122);
}

/// As by a machine that is suspended. Even a short command would have done its work before it is killed.
#[test]
fn a_command_that_has_not_begun_when_the_lock_passes_on_is_not_run() {
    let (_server, fixture) = Fixture::redis();
    let script = "touch ran; until test -e go-on; do sleep 0.02; done";
    let begun = found_within(SOON * 3, || {
        let mut run = fixture.run_script(&["--ttl", "6s", "job"], script);
        let run = run.spawn().unwrap();
        let guardian = stop_new_guardian(run.id());
        // The runner first: it may have continued the guardian meanwhile.
        let stopped = stop(run.id()) && stop(guardian);
        let waits = stopped && children_of(&[guardian.to_string()]).is_empty();
        if waits && !fixture.path("ran").exists() {
            return Some((run, guardian));
        }
        // The command has begun while the lock was held, which is right.
        fixture.write("go-on");
        for pid in [guardian, run.id()] {
            if lives(&pid.to_string()) {
                kill("CONT", pid);
            }
        }
        finish(run);
        for name in ["ran", "go-on"] {
            let _ = std::fs::remove_file(fixture.path(name));
        }
        None
    });
    let (run, guardian) = begun.expect("a guardian that is stopped before its command begins");
    assert_eq!(fixture.try_run(&["-w", "20s", "job"]), 0);
    kill("CONT", guardian);
    // Perhaps it has the order already.
    std::thread::sleep(Duration::from_millis(500));
    kill("CONT", run.id());
    run.ends_with(122);
    assert!(!fixture.path("ran").exists());
}

#[test]
fn a_guardian_hides_the_arguments_of_the_command_and_ends_with_the_run() {
    let fixture = Fixture::new();
    let run = fixture.hold_until_go_on(&["job"]);
    let guardian = fixture.line_of("guardian");
    assert_eq!(parent_of(&guardian), run.process.id().to_string());
    let arguments = std::fs::read_to_string(format!("/proc/{guardian}/cmdline")).unwrap();
    assert_like(&arguments, "leasehold-guardian\0__guard\0[..]");
    assert!(!arguments.contains("sleep"), "{arguments}");
    fixture.write("go-on");
    run.ends_with(0);
    // Reaped by the runner, so that it is not even a zombie.
    assert!(!std::path::Path::new(&format!("/proc/{guardian}")).exists());
}

/// The program is upgraded while a run waits for its lock.
#[test]
fn a_program_that_was_replaced_has_a_guardian() {
    let fixture = Fixture::new();
    let holder = fixture.hold_until_go_on(&["job"]);
    let program = fixture.path("program");
    // Copied by another process: a file that a child of this one has open for writing cannot be executed.
    let copied = std::process::Command::new("cp")
        .args([
            env!("CARGO_BIN_EXE_leasehold").as_ref(),
            program.as_os_str(),
        ])
        .status();
    assert!(copied.unwrap().success());
    let mut waiting = std::process::Command::new(&program);
    let script = "sleep 1000 & echo $! > grandchild; echo in; wait";
    let waiting = waiting
        .args(["run", "job", "--", "sh", "-c", script])
        .env("XDG_STATE_HOME", fixture.path(""))
        .current_dir(fixture.path(""))
        .spawn()
        .unwrap();
    let runs = format!("/proc/{}/exe", waiting.id());
    eventually(SOON, || std::fs::read_link(&runs).unwrap() == program);
    std::fs::remove_file(&program).unwrap();
    fixture.write("go-on");
    holder.finish();
    let grandchild = fixture.line_of("grandchild");
    kill("KILL", waiting.id());
    finish(waiting);
    eventually(SOON, || !lives(&grandchild));
}

/// As in a container without /proc, or with that of another pid namespace, where other processes have the ids of those
/// that are to be killed.
#[test]
fn a_command_that_cannot_be_guarded_is_not_run() {
    let (_server, fixture) = Fixture::redis();
    let run = fixture.run_script(&["job"], "echo ran");
    let hide = "mount -t tmpfs none /proc && exec \"$@\"";
    let hidden = ["unshare", "-rm", "sh", "-c", hide, "sh"];
    let foreign = ["unshare", "-rpf", "--kill-child"];
    for (wrapper, reason) in [
        (&hidden[..], "the guardian of the command cannot be started"),
        (&foreign, "another pid namespace"),
    ] {
        let output = through(wrapper, &run).ends_with(125);
        assert!(stderr(&output).contains(reason), "{}", stderr(&output));
        assert!(output.stdout.is_empty(), "{output:?}");
        assert!(!fixture.is_held("job"));
    }
}

/// A service of weeks starts helpers and does not wait for them. And orphans of the machine come to the first process
/// of a container, whoever started them.
#[test]
fn orphans_are_reaped() {
    let fixture = Fixture::new();
    let script = "for i in $(seq 300); do ( ( exec true ) & ); done; echo in; \
        until test -e go-on; do sleep 0.02; done";
    let run = fixture.run_script(&["job"], script);
    let container = ["unshare", "-rpf", "--mount-proc", "--kill-child"];
    for wrapper in [&["env"][..], &container] {
        let run = Running::start(through(wrapper, &run));
        let mut parents = vec![run.process.id().to_string()];
        // In a container the runner, then its guardian.
        for _ in 0..2 {
            parents.extend(children_of(&parents));
        }
        eventually(SOON, || zombies_of(&parents).is_empty());
        fixture.write("go-on");
        run.ends_with(0);
        std::fs::remove_file(fixture.path("go-on")).unwrap();
    }
}

/// Its request is under way at the timeout, and would be granted without a holder.
#[test]
fn a_wait_that_times_out_leaves_no_request_behind() {
    let (server, fixture) = Fixture::redis();
    let record = "leasehold:{default:job}";
    let stranger = format!("{}:1", "0".repeat(32));
    server.cli(&["SET", record, &stranger]);
    let mut waiting = fixture.run_script(&["-w", "600ms", "job"], "true");
    let waiting = waiting.spawn().unwrap();
    eventually(SOON, || {
        let calls = server.cli(&["INFO", "commandstats"]);
        calls.contains("cmdstat_evalsha:calls=") && !calls.contains("cmdstat_evalsha:calls=1,")
    });
    server.cli(&["PEXPIRE", record, "1000"]);
    server.stop();
    // By then the wait has timed out, and the stranger's lease has ended: whatever is in the server's inbox will be
    // granted.
    std::thread::sleep(Duration::from_secs(2));
    server.cont();
    waiting.ends_with(124);
    assert!(!fixture.is_held("job"));
}
