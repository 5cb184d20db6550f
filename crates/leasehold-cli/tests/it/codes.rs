//! Exit codes, and what the command sees.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::schema::checked;
use crate::tools::{
    EndsWith, Fixture, RunToEnd, SOON, assert_like, kill, now, spawn_with_messages, stderr, stdout,
};
use leasehold_testkit::{Proxy, RedisServer, eventually};
use rustix::fs::{FlockOperation, fcntl_lock};

/// So many that they compete.
const RUNS: usize = 20;

#[test]
fn a_run_has_the_code_and_the_output_of_its_command() {
    let fixture = Fixture::new();
    let program = env!("CARGO_BIN_EXE_leasehold");
    let nested =
        format!("{program} run inner -- sh -c 'echo $LEASEHOLD_NAME'; echo $LEASEHOLD_NAME");
    // As some daemons start their jobs.
    let no_stderr = format!("exec {program} run -v inner -- sh -c 'exit 6' 2>&-");
    for (args, script, code, out) in [
        (&["job"][..], "exit 0", 0, ""),
        (&["job"], "exit 1", 1, ""),
        (&["job"], "exit 75", 75, ""),
        (&["job"], "exit 122", 122, ""),
        (&["job"], "exit 255", 255, ""),
        (&["job"], "kill -TERM $$", 143, ""),
        (&["job"], "kill -KILL $$", 137, ""),
        (&["--lease", "10s", "job"], "sleep 0.2; exit 3", 3, ""),
        (&["job"], &nested, 0, "inner\njob\n"),
        (&["job"], &no_stderr, 6, ""),
    ] {
        let output = fixture.run_script(args, script).ends_with(code);
        assert_eq!(stdout(&output), out, "{script}");
        assert_eq!(stderr(&output), "", "{script}");
    }
    assert!(!fixture.is_held("job"));
}

#[test]
fn the_command_follows_the_name_with_and_without_a_double_dash() {
    let fixture = Fixture::new();
    for (args, out) in [
        (&["job", "echo", "hi"][..], "hi\n"),
        (&["job", "--", "echo", "hi"], "hi\n"),
        (&["-n", "job", "echo", "hi"], "hi\n"),
        // Options between name and command.
        (&["job", "--wait", "5", "--", "echo", "hi"], "hi\n"),
        (&["job", "-nv", "--label", "x", "echo", "hi"], "hi\n"),
        // Behind its first word all belongs to the command.
        (
            &["job", "printf", "%s ", "-n", "--", "--wait"],
            "-n -- --wait ",
        ),
        (
            &["job", "--", "printf", "%s ", "-v", "--", "-c"],
            "-v -- -c ",
        ),
        // As with flock.
        (&["job", "-c", "echo a && echo $LEASEHOLD_NAME"], "a\njob\n"),
        (&["-c", "printf '%s' \"$0\"", "job"], "sh"),
        (&["--nonblock", "job", "echo", "hi"], "hi\n"),
        (&["--nb", "job", "echo", "hi"], "hi\n"),
    ] {
        let output = fixture.leasehold(["run"]).args(args).ends_with(0);
        assert_eq!(stdout(&output), out, "{args:?}");
    }
}

/// Also after a failed command, until it is over or revoked.
#[test]
fn a_lock_stays_taken_for_its_minimum_hold() {
    let fixture = Fixture::new();
    let printed = |args: &[&str]| {
        let output = fixture.leasehold(args).run_to_end();
        (output.status.code(), stdout(&output) + &stderr(&output))
    };
    for expected in [0, 3] {
        let args = ["--at-least", "1h", "--label", "nightly", "job"];
        let script = format!("exit {expected}");
        fixture.run_script(&args, &script).ends_with(expected);
        let (refused, text) = printed(&["run", "-n", "job", "true"]);
        assert_eq!(refused, Some(75));
        assert!(text.contains("job is free in 59m "), "{text}");
        assert!(text.contains(": the run of "), "{text}");
        assert_eq!(fixture.try_run(&["-n", "--skip-ok", "job"]), 0);
        let (shown, text) = printed(&["show", "job"]);
        assert_eq!(shown, Some(0));
        assert!(text.contains("holder     minimum hold of "), "{text}");
        assert!(printed(&["ls"]).1.contains("minimum hold of "));
        let (_, text) = printed(&["show", "--json", "job"]);
        assert_eq!(checked("show", &text)["lock"]["min_hold"], true);
        let (released, text) = printed(&["release", "--force", "job"]);
        assert_eq!(released, Some(0));
        assert!(text.contains("cut off    minimum hold of "), "{text}");
    }
    // Nothing has run here, and another machine may have the command.
    let missing = printed(&["run", "--at-least", "1h", "job", "no-such-command"]);
    assert_eq!(missing.0, Some(127));
    assert!(!fixture.is_held("job"));
    let begun = Instant::now();
    let (ended, text) = printed(&["run", "-v", "--at-least", "6s", "job", "true"]);
    assert_eq!(ended, Some(0));
    assert!(text.contains(", stays taken for "), "{text}");
    let (ended, text) = printed(&["run", "-v", "job", "true"]);
    assert_eq!(ended, Some(0));
    assert_like(&text, "[..]job is free in [..]waiting[..]");
    assert!(begun.elapsed() >= Duration::from_secs(6));
    assert!(!fixture.is_held("job"));
}

/// The limit is over before the store has replied for the first time.
#[test]
fn a_short_wait_is_one_attempt() {
    let server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let others = Fixture::with_store(server.url());
    let holder = others.hold(&["job"]);
    let fixture = Fixture::with_store(proxy.url());
    let record = "leasehold:{default:job}";
    proxy.hold_requests(record, 1);
    proxy.count(record);
    let mut run = fixture.run_script(&["-w", "500ms", "job"], "true");
    run.stdout(Stdio::null()).stderr(Stdio::piped());
    let run = run.spawn().unwrap();
    // The first request has timed out, and is followed by others.
    eventually(SOON, || proxy.counted(record) > 1);
    proxy.deliver();
    let output = run.ends_with(124);
    assert!(stderr(&output).contains("waited 500ms, the command was not run"));
    holder.terminate();
}

/// All are refused while another process creates the file, and then open it at the same time.
#[test]
fn many_runs_at_once_on_one_file_all_get_their_turn() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path("leasehold")).unwrap();
    let file = std::fs::File::create(fixture.path("leasehold/locks.db")).unwrap();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    let told = fixture.messages(&["--no-wait", "job"], 125);
    assert!(told.contains("keeps the file locked"), "{told}");
    let start = |_| {
        let args = ["-v", "-w", "100s", "job"];
        spawn_with_messages(&mut fixture.run_script(&args, "echo ran >> ran"))
    };
    let runs: Vec<_> = (0..RUNS).map(start).collect();
    for (_, messages) in &runs {
        messages.after("leasehold: waiting:");
    }
    drop(file);
    for (run, _) in runs {
        run.ends_with(0);
    }
    assert_eq!(fixture.read("ran"), "ran\n".repeat(RUNS));
}

#[test]
fn the_command_has_the_variables_of_its_lock_and_its_own_arguments() {
    let fixture = Fixture::new();
    let script = r#"printf '%s\n' "$LEASEHOLD_NAME" "$LEASEHOLD_TOKEN" "$LEASEHOLD_LEASE" \
        "$LEASEHOLD_DEADLINE" "$LEASEHOLD_STORE" "$0" "$@""#;
    let mut command = fixture.run_script(&["job one"], script);
    command.args(["--verbose", "-n", "a b", "$HOME", "*"]);
    let output = command.run_to_end();
    let text = stdout(&output);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "job one");
    assert!(lines[1].parse::<u64>().unwrap() > 1_700_000_000_000_000);
    assert!(lines[2].contains(':'));
    let now = now().as_millis();
    let deadline: u128 = lines[3].parse().unwrap();
    assert!(deadline > now && deadline < now + 30_000);
    assert!(lines[4].starts_with("sqlite:") && lines[4].ends_with("/leasehold/locks.db"));
    assert_eq!(lines[5..], ["--verbose", "-n", "a b", "$HOME", "*"]);
}

#[test]
fn stdin_and_stdout_are_the_commands_own() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("in"), "through\n").unwrap();
    let mut run = fixture.leasehold(["run", "job", "--", "cat"]);
    run.stdin(std::fs::File::open(fixture.path("in")).unwrap());
    assert_eq!(stdout(&run.run_to_end()), "through\n");
}

#[test]
fn background_processes_that_end_together_with_the_command_are_not_reported() {
    let fixture = Fixture::new();
    for _ in 0..20 {
        let output = fixture.run_script(&["job"], "true & exit 0").run_to_end();
        let text = stderr(&output);
        assert!(!text.contains(" 0 background"), "{text}");
    }
}

#[test]
fn background_processes_are_reported_or_waited_for() {
    let fixture = Fixture::new();
    let script = "(until test -e go-on; do sleep 0.02; done; sleep 0.3; echo late >> out) > /dev/null 2>&1 &";
    let output = fixture.run_script(&["job"], script).ends_with(0);
    assert!(stderr(&output).contains(" of the command run"));
    assert!(!fixture.is_held("job"));
    fixture.write("go-on");
    eventually(SOON, || fixture.read("out") == "late\n");

    let one = "sleep 1000 > /dev/null 2>&1 & echo $! >> background;";
    for (count, told) in [
        (1, "1 background process of"),
        (2, "2 background processes of"),
    ] {
        let mut command = fixture.run_script(&["job"], &one.repeat(count));
        let output = command.run_to_end();
        let text = stderr(&output);
        let fix = "; add --wait-all if it needs the lock\n";
        assert!(text.contains(told) && text.ends_with(fix), "{text}");
        let pids = fixture.read("background");
        let is_named = |pid: &str| text.contains(&format!(" the lock: process {pid} ("));
        assert!(pids.lines().any(is_named), "{text}");
        assert_eq!(text.contains(" and others; "), count > 1, "{text}");
    }
    for pid in fixture.read("background").lines() {
        kill("KILL", pid.parse().unwrap());
    }

    // A lock that does not cover the work is not a detail.
    std::fs::remove_file(fixture.path("go-on")).unwrap();
    let output = fixture.run_script(&["-q", "job"], script).ends_with(0);
    assert!(stderr(&output).contains(" of the command run"));
    fixture.write("go-on");
    eventually(SOON, || fixture.read("out") == "late\nlate\n");

    let mut run = fixture.run_script(&["--wait-all", "job"], script);
    run.ends_with(0);
    assert_eq!(fixture.read("out"), "late\nlate\nlate\n");
}

/// No limit is a panic, and one that is too low is named, also by a command that could begin with it.
#[test]
fn too_few_open_files_are_an_error_that_says_what_to_do() {
    let fixture = Fixture::new();
    let commands = [
        "run job true",
        "once job --key a true",
        "elect job --value v true",
        "hold job",
        "ls",
        "show job",
        "leader job",
        "watch job",
        "jobs",
        "release job",
        "doctor",
        "watchdog",
    ];
    let limited = |files: u32, command: &str| {
        let script = format!("ulimit -n {files}; exec leasehold {command}");
        let output = fixture.shell(&script).run_to_end();
        (output.status.code(), stderr(&output))
    };
    let advice = "; raise the limit of open files (ulimit -n, or LimitNOFILE= of a unit)\n";
    for command in commands {
        for files in (4..=12).chain([20, 26]) {
            let (code, message) = limited(files, command);
            assert_eq!(code, Some(125), "{files}, {command}: {message}");
            assert!(message.ends_with(advice), "{files}, {command}: {message}");
        }
    }
    // It may inherit some.
    for files in 40..=48 {
        let (code, message) = limited(files, "run job true");
        assert_eq!((code, &*message), (Some(0), ""), "{files}");
    }
}
