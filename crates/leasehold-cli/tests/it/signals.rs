//! Signals reach the command, once.

use std::io::{BufRead as _, Write};
use std::process::Stdio;

use leasehold_testkit::eventually;

use crate::tools::{
    EndsWith, Fixture, RunToEnd, Running, SOON, assert_like, at_terminal, finish, kill, lives,
    stat, stderr, through,
};

#[test]
fn term_is_passed_on_and_the_commands_answer_counts() {
    let fixture = Fixture::new();
    for signal in ["TERM", "INT", "HUP", "USR1", "QUIT"] {
        let script = format!(
            "trap 'echo {signal} >> got; exit 9' {signal}; echo in; while :; do sleep 0.05; done"
        );
        // Whoever runs the tests may ignore a signal, and so would the command.
        let run = fixture.run_script(&["job"], &script);
        let run = Running::start(through(&["env", "--default-signal"], &run));
        run.signal(signal);
        run.ends_with(9);
    }
    assert_eq!(fixture.read("got"), "TERM\nINT\nHUP\nUSR1\nQUIT\n");
    assert!(!fixture.is_held("job"));
}

/// As nohup(1) starts it.
#[test]
fn what_was_ignored_stays_ignored() {
    let fixture = Fixture::new();
    let program = env!("CARGO_BIN_EXE_leasehold");
    let script = "grep SigIgn /proc/self/status";
    let outer = format!("trap '' HUP; exec {program} run job -- {script}");
    let output = fixture.run_script(&["outer"], &outer).run_to_end();
    let text = String::from_utf8_lossy(&output.stdout);
    let mask = text.trim().strip_prefix("SigIgn:").unwrap().trim();
    assert_eq!(u64::from_str_radix(mask, 16).unwrap() & 1, 1, "{text}");
}

#[test]
fn a_signal_ends_the_waiting_and_leaves_nothing() {
    let fixture = Fixture::new();
    let holder = fixture.hold(&["job"]);
    let mut waiting = fixture.run_script(&["-v", "job"], "echo ran > ran");
    let waiting = waiting.stderr(Stdio::null()).spawn().unwrap();
    // Its handlers are installed before it asks for the lock.
    eventually(SOON, || catches_term(waiting.id()));
    kill("TERM", waiting.id());
    waiting.ends_with(143);
    holder.terminate();
    assert!(!fixture.is_held("job"));
    assert_eq!(fixture.read("ran"), "");
}

/// The signal ends all processes of the command, but not in the same instant.
#[test]
fn background_processes_that_a_signal_ends_do_not_run_on() {
    let fixture = Fixture::new();
    let script = "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo in; wait";
    let messages = (0..20).map(|_| {
        let run = fixture.run_script(&["job"], script);
        let run = Running::start(through(&["env", "--default-signal"], &run));
        run.signal("TERM");
        stderr(&run.ends_with(143))
    });
    let messages: Vec<_> = messages.filter(|text| !text.is_empty()).collect();
    assert!(!messages.concat().contains(" on without"), "{messages:?}");

    let script = "(trap '' TERM; echo in; exec sleep 1000) 2> /dev/null & echo $! > left; wait";
    let run = fixture.run_script(&["job"], script);
    let run = Running::start(through(&["env", "--default-signal"], &run));
    let left = fixture.line_of("left");
    run.signal("TERM");
    let message = stderr(&run.ends_with(143));
    let expected = format!(
        "leasehold: job: 1 background process of the command had not ended yet when the lock was released: process {left} \
         ([..]); add --wait-all if it needs the lock\n"
    );
    assert_like(&message, &expected);
    kill("KILL", left.parse().unwrap());
}

/// The ticks of processor time that processes have used.
fn ticks(pids: &[String]) -> u64 {
    let of = |pid: &String| {
        let times = stat(pid).unwrap().into_iter().skip(11).take(2);
        times.map(|time| time.parse::<u64>().unwrap()).sum::<u64>()
    };
    pids.iter().map(of).sum()
}

#[test]
fn a_run_that_waits_for_background_processes_passes_signals_on_and_costs_nothing() {
    let fixture = Fixture::new();
    let script = "echo $$ > child; echo $PPID > guardian; \
        setsid sleep 1000 > /dev/null 2>&1 & echo $! > left; echo in";
    let run = Running::start(fixture.run_script(&["--wait-all", "job"], script));
    let left = fixture.line_of("left");
    let child = fixture.line_of("child");
    eventually(SOON, || !lives(&child));
    let pids = [run.process.id().to_string(), fixture.line_of("guardian")];
    let before = ticks(&pids);
    let since = std::time::Instant::now();
    eventually(SOON, || since.elapsed() > std::time::Duration::from_secs(3));
    // Of 300. The end of the command is within them.
    let used = ticks(&pids) - before;
    assert!(used < 10, "{used} ticks");
    assert!(lives(&left) && fixture.is_held("job"));
    run.signal("TERM");
    run.ends_with(0);
    assert!(!lives(&left));
    assert!(!fixture.is_held("job"));
}

fn catches_term(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    caught & (1 << (15 - 1)) != 0
}

/// The timer is that of the runner, even at a terminal.
#[test]
fn an_alarm_is_passed_on() {
    let fixture = Fixture::new();
    let run = fixture.run_script(&["job"], "exec sleep 1000");
    let run = through(&["perl", "-e", "alarm 2; exec @ARGV"], &run);
    at_terminal(&run).ends_with(142);
}

/// Runs a script under a lock at a terminal. These keys are pressed after its first line, which follows the one that names
/// the store. Returns the exit code.
fn run_at_terminal(fixture: &Fixture, script: &str, keys: &[u8]) -> Option<i32> {
    let terminal = at_terminal(&fixture.run_script(&["job"], script));
    let Running { process, mut lines } = Running::start(terminal);
    lines.read_line(&mut String::new()).unwrap();
    let mut keyboard = process.stdin.as_ref().unwrap();
    keyboard.write_all(keys).unwrap();
    let code = finish(process).status.code();
    // The last output must have a reader.
    drop(lines);
    code
}

#[test]
fn a_command_at_a_terminal_owns_it_and_gets_each_signal_once() {
    let fixture = Fixture::new();
    // The terminal sends the signal to the whole group; passing it on as well would make it two.
    let counting = "trap 'echo int >> got' INT; echo in; \
                    while ! test -s got; do sleep 0.05; done; sleep 0.3; exit 5";
    let plain = "echo $$ > pid; echo in; exec sleep 1000";
    // The command is not a background process, which could not read.
    let reading = "echo in; read word; echo $word > word; test -t 0";
    for (script, keys, code) in [
        (counting, "\x03", 5),
        (plain, "\x03", 130),
        (reading, "hello\n", 0),
    ] {
        let ended = run_at_terminal(&fixture, script, keys.as_bytes());
        assert_eq!(ended, Some(code), "{script}");
        assert!(!fixture.is_held("job"));
    }
    assert_eq!(fixture.read("got"), "int\n");
    assert!(!lives(&fixture.line_of("pid")));
    assert_eq!(fixture.read("word"), "hello\n");
}
