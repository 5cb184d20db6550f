//! Signals reach the command, once.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use leasehold_testkit::eventually;

use crate::tools::{
    Fixture, RunToEnd, Running, SOON, finish, kill, lives, with_default_signals, within_deadline,
};

#[test]
fn term_is_passed_on_and_the_commands_answer_counts() {
    let fixture = Fixture::new();
    for (signal, wanted) in [
        ("TERM", 9),
        ("INT", 9),
        ("HUP", 9),
        ("USR1", 9),
        ("QUIT", 9),
    ] {
        let script = format!(
            "trap 'echo {signal} >> got; exit 9' {signal}; echo in; while :; do sleep 0.05; done"
        );
        // Whoever runs the tests may ignore a signal, and so would the command.
        let run = with_default_signals(&fixture.run_script(&["job"], &script));
        let run = Running::start(run);
        run.signal(signal);
        run.ends_with(wanted);
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
    assert_eq!(finish(waiting).status.code(), Some(143));
    holder.signal("TERM");
    holder.finish();
    assert!(!fixture.is_held("job"));
    assert_eq!(fixture.read("ran"), "");
}

/// The ticks of processor time that processes have used.
fn ticks(pids: &[String]) -> u64 {
    let of = |pid: &String| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let times = rest.split_ascii_whitespace().skip(11).take(2);
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

/// A run at a real terminal, made by script(1). What is written to it is typed.
struct Terminal {
    process: std::process::Child,
    /// `None` while they are read.
    lines: Option<BufReader<std::process::ChildStdout>>,
}

impl Terminal {
    fn run(fixture: &Fixture, args: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_leasehold");
        let mut process = Command::new("script")
            .args([
                "-q",
                "-e",
                "-c",
                // No signal is ignored, whatever the tests ignore.
                &format!("exec env --default-signal {program} run {args}"),
                "/dev/null",
            ])
            .env("XDG_STATE_HOME", fixture.path(""))
            .env("SHELL", "/bin/sh")
            .current_dir(fixture.path(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Some(BufReader::new(process.stdout.take().unwrap()));
        Self { process, lines }
    }

    fn wait_for(&mut self, wanted: &str) {
        let mut lines = self.lines.take().unwrap();
        let wanted = wanted.to_owned();
        self.lines = Some(within_deadline(self.process.id(), move || {
            let mut line = String::new();
            while !line.contains(&wanted) {
                line.clear();
                let read = lines.read_line(&mut line).unwrap();
                assert!(read > 0, "no {wanted:?}");
            }
            lines
        }));
    }

    fn type_key(&mut self, key: &[u8]) {
        let mut keyboard = self.process.stdin.as_ref().unwrap();
        keyboard.write_all(key).unwrap();
    }

    fn finish(self) -> Option<i32> {
        let Self { process, lines } = self;
        let code = finish(process).status.code();
        // Its last words must have a reader.
        drop(lines);
        code
    }
}

/// The terminal sends it to the whole group; passing it on as well would make it two.
#[test]
fn ctrl_c_reaches_the_command_once() {
    let fixture = Fixture::new();
    let script = "trap \"echo int >> got\" INT; echo in; \
                  while ! test -s got; do sleep 0.05; done; sleep 0.3; exit 5";
    let mut terminal = Terminal::run(&fixture, &format!("job -- sh -c '{script}'"));
    terminal.wait_for("in");
    terminal.type_key(b"\x03");
    assert_eq!(terminal.finish(), Some(5));
    assert_eq!(fixture.read("got"), "int\n");
    assert!(!fixture.is_held("job"));
}

#[test]
fn ctrl_c_ends_a_command_that_does_not_catch_it() {
    let fixture = Fixture::new();
    let mut terminal = Terminal::run(
        &fixture,
        "job -- sh -c 'echo $$ > pid; echo in; exec sleep 1000'",
    );
    terminal.wait_for("in");
    terminal.type_key(b"\x03");
    assert_eq!(terminal.finish(), Some(130));
    assert!(!lives(&fixture.line_of("pid")));
    assert!(!fixture.is_held("job"));
}

/// The command can read what is typed: it is not a background process of its terminal.
#[test]
fn the_command_owns_the_terminal() {
    let fixture = Fixture::new();
    let mut terminal = Terminal::run(
        &fixture,
        "job -- sh -c 'echo in; read word; echo got $word; test -t 0'",
    );
    terminal.wait_for("in");
    terminal.type_key(b"hello\n");
    terminal.wait_for("got hello");
    assert_eq!(terminal.finish(), Some(0));
}
