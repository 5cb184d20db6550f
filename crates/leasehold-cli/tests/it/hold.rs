//! `leasehold hold`: a lock for a program that reads lines and closes a pipe.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};

use leasehold_testkit::{OutputLines, eventually};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use crate::schema::checked;
use crate::tools::{
    EndsWith, Fixture, Running, SOON, assert_like, at_terminal, fill, finish, kill, rises,
    spawn_piped, spawn_with_lines, stderr, stdout, through,
};
use crate::watchdog::Node;

/// A process that holds a lock or waits for it. The test is the program that it works for.
pub(crate) struct HoldProcess {
    process: Child,
    lines: OutputLines,
}

impl HoldProcess {
    fn start(fixture: &Fixture, args: &[&str]) -> Self {
        Self::spawn(fixture.leasehold(["hold"]).args(args))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut process = spawn_piped(command.stdin(Stdio::piped()));
        let lines = OutputLines::read(process.stdout.take().unwrap());
        Self { process, lines }
    }

    /// One that holds its lock.
    pub(crate) fn granted(fixture: &Fixture, args: &[&str]) -> Self {
        let hold = Self::start(fixture, args);
        assert_eq!(hold.event("granted")["cause"], Value::Null);
        hold
    }

    /// The next line, which must be of this event.
    #[track_caller]
    fn event(&self, event: &str) -> Value {
        let line = self.lines.next_line().expect(event);
        let line = checked("hold", &line);
        assert_eq!(line["event"], event, "{line}");
        line
    }

    pub(crate) fn close_stdin(&mut self) {
        drop(self.process.stdin.take());
    }

    /// Waits for its end, and checks that no further line was printed.
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> String {
        let (output, rest) = self.finish();
        let output = output.ends_with(code);
        assert_eq!(rest, None);
        stderr(&output)
    }

    /// Waits for its end. Returns its output, and its next line.
    fn finish(mut self) -> (Output, Option<String>) {
        // Otherwise stdin would be closed now.
        let _stdin = self.process.stdin.take();
        (finish(self.process), self.lines.next_line())
    }
}

/// Waits until its lease was renewed, twice.
fn is_renewed(fixture: &Fixture) {
    let time_left = || {
        fixture.lock("job")["time_left_ms"]
            .as_u64()
            .expect("it is held")
    };
    for _ in 0..2 {
        rises(time_left);
    }
}

#[test]
fn the_end_of_stdin_releases_the_lock() {
    let fixture = Fixture::new();
    let args = ["--ttl", "90s", "--label", "#42", "job"];
    let mut hold = HoldProcess::start(&fixture, &args);
    let line = hold.event("granted");
    // The holder is registered in the background.
    eventually(SOON, || fixture.lock("job")["holder"]["label"] == "#42");
    let lock = fixture.lock("job");
    for key in ["name", "lease", "token"] {
        assert_eq!(line[key], lock[key], "{key}");
    }
    let own = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(lock["holder"]["program"], own.trim_end());
    let millis = |key: &str| line[key].as_u64().unwrap();
    let (time_left, lost_in) = (millis("time_left_ms"), millis("lost_in_ms"));
    assert!((70_000..90_000).contains(&time_left), "{line}");
    assert!((40_000..60_000).contains(&lost_in), "{line}");
    // What is written has no effect.
    let mut stdin = hold.process.stdin.as_ref().unwrap();
    stdin.write_all(b"release\n").unwrap();
    assert_eq!(fixture.try_run(&["-n", "job"]), 75);
    hold.close_stdin();
    assert_eq!(hold.ends_with(0), "");
    assert!(!fixture.is_held("job"));
}

/// `hold` with these arguments, which ignores no signal. The tests may ignore one, and so would the process.
fn with_all_signals(fixture: &Fixture, args: &[&str]) -> Command {
    let mut command = fixture.leasehold(["hold"]);
    through(&["env", "--default-signal"], command.args(args))
}

#[test]
fn several_locks_have_lines_of_their_own() {
    let fixture = Fixture::new();
    let hold = HoldProcess::start(&fixture, &["b", "--and", "a"]);
    let names = [(); 2].map(|()| hold.event("granted")["name"].clone());
    assert_eq!(names, ["a", "b"]);
    fixture.revoke("a");
    assert_eq!(hold.event("lost")["name"], "a");
    hold.ends_with(122);
    assert!(!fixture.is_held("b"));
}

#[test]
fn permits_and_readers_are_held_side_by_side() {
    let fixture = Fixture::new();
    let permits = ["--permits", "2", "--numbered", "job"];
    let shared = ["--shared", "job"];
    for (args, refused, slots) in [
        (&permits[..], "--permits=2", [Some(0), Some(1)]),
        (&shared, "--exclusive", [None, None]),
    ] {
        let holds = [(); 2].map(|()| HoldProcess::start(&fixture, args));
        let granted = holds.each_ref().map(|hold| hold.event("granted"));
        let mut granted = granted.map(|granted| granted["slot"].as_u64());
        granted.sort_unstable();
        assert_eq!(granted, slots);
        HoldProcess::start(&fixture, &["-n", refused, "job"]).ends_with(75);
        for mut hold in holds {
            hold.close_stdin();
            assert_eq!(hold.ends_with(0), "");
        }
        assert!(!fixture.is_held("job"));
    }
}

#[test]
fn a_signal_ends_the_wait() {
    let fixture = Fixture::new();
    let mut holder = HoldProcess::granted(&fixture, &["job"]);
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129)] {
        let waiting = HoldProcess::spawn(&mut with_all_signals(&fixture, &["job"]));
        eventually(SOON, || fixture.waiters("job") == 1);
        kill(signal, waiting.process.id());
        assert_eq!(waiting.ends_with(code), "");
    }
    holder.close_stdin();
    holder.ends_with(0);
}

/// The whole group of a program gets a signal. The program finishes its work before it closes the pipe.
#[test]
fn a_signal_leaves_the_lock_to_the_end_of_stdin() {
    let fixture = Fixture::new();
    for signal in ["TERM", "INT", "HUP", "QUIT", "ALRM"] {
        let mut hold = HoldProcess::spawn(&mut with_all_signals(&fixture, &["job"]));
        hold.event("granted");
        let messages = OutputLines::read(hold.process.stderr.take().unwrap());
        for _ in 0..2 {
            kill(signal, hold.process.id());
        }
        let explanation =
            format!("leasehold: job: {signal} does not release the lock; the end of stdin does");
        assert_eq!(messages.next_line(), Some(explanation));
        assert!(fixture.is_held("job"));
        hold.close_stdin();
        hold.ends_with(0);
        assert_eq!(messages.next_line(), None);
        assert!(!fixture.is_held("job"));
    }
}

/// Their default is the end of a process, which would leave the lock until its lease ends.
#[test]
fn signals_that_request_no_exit_have_no_effect() {
    let fixture = Fixture::new();
    let mut holder = HoldProcess::spawn(&mut with_all_signals(&fixture, &["job"]));
    holder.event("granted");
    let mut waiting = HoldProcess::spawn(&mut with_all_signals(&fixture, &["job"]));
    eventually(SOON, || fixture.waiters("job") == 1);
    for signal in [
        "USR1", "USR2", "ABRT", "VTALRM", "PROF", "IO", "PWR", "STKFLT", "XCPU", "XFSZ", "RTMIN+1",
        "64",
    ] {
        kill(signal, holder.process.id());
        kill(signal, waiting.process.id());
    }
    holder.close_stdin();
    assert_eq!(holder.ends_with(0), "");
    waiting.event("granted");
    waiting.close_stdin();
    assert_eq!(waiting.ends_with(0), "");
    assert!(!fixture.is_held("job"));
}

/// A program in a pipeline with `hold`, which finishes its work when it gets a signal.
const FINISHES_ITS_WORK: &str = "exec 2>&1; mkfifo lines; trap : INT TERM; { \
    trap stop=1 INT TERM; exec 4< lines; read -r granted <&4; echo working >&2; \
    until test -n \"$stop\"; do sleep 0.02; done; until test -e go-on; do sleep 0.02; done; echo finished > work; exec >&-; \
    } | leasehold hold job > lines; echo ended ${PIPESTATUS[1]}";

/// Ends that program by a signal to its group.
fn finishes_its_work(fixture: &Fixture, mut command: Command, signal: &str, send: impl Fn(&Child)) {
    let (process, lines) = spawn_with_lines(&mut command);
    lines.after("working");
    send(&process);
    lines.after(&format!(
        "leasehold: job: {signal} does not release the lock"
    ));
    assert!(fixture.is_held("job"));
    assert_eq!(fixture.read("work"), "");
    fixture.write("go-on");
    assert_eq!(lines.after("ended ").trim(), "0");
    finish(process);
    assert_eq!(fixture.read("work"), "finished\n");
    assert!(!fixture.is_held("job"));
}

#[test]
fn ctrl_c_at_a_terminal_leaves_the_lock_to_the_program() {
    let fixture = Fixture::new();
    let terminal = at_terminal(&fixture.shell(FINISHES_ITS_WORK));
    finishes_its_work(&fixture, terminal, "INT", |process| {
        let mut keyboard = process.stdin.as_ref().unwrap();
        keyboard.write_all(b"\x03").unwrap();
    });
}

/// As systemd stops a service.
#[test]
fn term_to_all_processes_leaves_the_lock_to_the_program() {
    let fixture = Fixture::new();
    let shell = fixture.shell(FINISHES_ITS_WORK);
    let mut group = through(&["env", "--default-signal"], &shell);
    group.process_group(0);
    finishes_its_work(&fixture, group, "TERM", |process| {
        kill_process_group(Pid::from_child(process), Signal::TERM).unwrap();
    });
}

/// Otherwise the lock would stay held for as long as a process lives that has inherited the pipe.
#[test]
fn a_second_signal_after_the_end_of_the_program_releases_the_lock() {
    let fixture = Fixture::new();
    let script = "leasehold hold job <&0 & echo $! > pid; until test -e go-on; do sleep 0.02; done";
    let shell = fixture.shell(script);
    let mut program = HoldProcess::spawn(&mut through(&["env", "--default-signal"], &shell));
    program.event("granted");
    let messages = OutputLines::read(program.process.stderr.take().unwrap());
    let pid = fixture.line_of("pid");
    let signal = |signal: &str| {
        kill(signal, pid.parse().unwrap());
    };
    for _ in 0..2 {
        signal("TERM");
    }
    messages.after("job: TERM does not release the lock; the end of stdin does");
    fixture.write("go-on");
    let stdin = program.process.stdin.take();
    program.process.wait().unwrap();
    signal("HUP");
    messages.after("job: HUP does not release the lock: the process that started hold has ended, ");
    assert!(fixture.is_held("job"));
    signal("HUP");
    assert_eq!(messages.next_line(), None);
    assert!(!fixture.is_held("job"));
    drop(stdin);
}

#[test]
fn a_lock_that_is_held_elsewhere_is_refused_as_by_run() {
    let fixture = Fixture::new();
    let mut holder = HoldProcess::granted(&fixture, &["job"]);
    for (args, code, end) in [
        (&["-n", "job"][..], 75, "; the lock was not acquired\n"),
        (
            &["-w", "1s", "job"],
            124,
            "; waited 1s, the lock was not acquired\n",
        ),
        (&["-q", "-n", "job"], 75, ""),
    ] {
        let text = HoldProcess::start(&fixture, args).ends_with(code);
        assert!(text.ends_with(end), "{args:?}: {text}");
        let by = "leasehold: job is held by ";
        assert_eq!(text.starts_with(by), !end.is_empty(), "{args:?}: {text}");
    }
    // In the queue, as the first one.
    let mut next = HoldProcess::start(&fixture, &["-v", "-w", "60s", "job"]);
    eventually(SOON, || fixture.waiters("job") == 1);
    holder.close_stdin();
    holder.ends_with(0);
    next.event("granted");
    next.close_stdin();
    let text = next.ends_with(0);
    for part in ["leasehold: waited ", ", token ", "leasehold: held for "] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// Otherwise it would release the lock immediately, and the user would notice nothing.
#[test]
fn a_stdin_that_has_ended_already_is_an_error() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("file"), "x\n").unwrap();
    for stdin in ["< /dev/null", "<&-", "< file"] {
        let script = format!("leasehold hold job {stdin}");
        let output = fixture.shell(&script).ends_with(125);
        let text = stderr(&output);
        assert_like(&text, "leasehold: job: stdin has ended already, [..]");
        assert_eq!(stdout(&output), "", "{stdin}");
    }
    // The store was not even opened.
    assert!(!fixture.path("leasehold").exists());
}

#[test]
fn a_caller_that_leaves_during_the_wait_leaves_nothing() {
    let fixture = Fixture::new();
    let holder = fixture.hold(&["job"]);
    let mut waiting = HoldProcess::start(&fixture, &["job"]);
    eventually(SOON, || fixture.waiters("job") == 1);
    waiting.close_stdin();
    let early = "leasehold: job: stdin has ended before the lock was granted\n";
    assert_eq!(waiting.ends_with(125), early);
    assert_eq!(fixture.waiters("job"), 0);
    holder.terminate();
}

/// Starts `hold` with pipes, but for this stdout.
fn start_into(fixture: &Fixture, args: &[&str], stdout: impl Into<Stdio>) -> Child {
    let mut command = fixture.leasehold(["hold"]);
    command.args(args).stdin(Stdio::piped()).stdout(stdout);
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// As after the death of a caller whose stdin was a terminal, or whose children have inherited the pipe.
#[test]
fn without_a_reader_the_lock_is_released() {
    let fixture = Fixture::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut process = start_into(&fixture, &["job"], writer);
    eventually(SOON, || fixture.is_held("job"));
    drop(reader);
    let stdin = process.stdin.take();
    let output = process.ends_with(141);
    let closed = "leasehold: job: stdout was closed by its reader\n";
    assert_eq!(stderr(&output), closed);
    assert!(!fixture.is_held("job"));
    drop(stdin);
    // Nor can a full disk be written.
    let full = std::fs::File::create("/dev/full").unwrap();
    let mut process = start_into(&fixture, &["job"], full);
    let stdin = process.stdin.take();
    let output = process.ends_with(125);
    assert_like(&stderr(&output), "[..]stdout cannot be written[..]");
    drop(stdin);
}

/// The pipe is full when the lock is granted, and another process may have made it non-blocking.
#[test]
fn a_stalled_reader_keeps_no_lease_from_renewal_and_no_lock_from_release() {
    let fixture = Fixture::new();
    for is_blocking in [true, false] {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        fill(&mut writer);
        ioctl_fionbio(&writer, !is_blocking).unwrap();
        let process = start_into(&fixture, &["--ttl", "15s", "job"], writer);
        eventually(SOON, || fixture.is_held("job"));
        is_renewed(&fixture);
        // Now its stdin is closed.
        assert_eq!(stderr(&process.ends_with(0)), "");
        assert!(!fixture.is_held("job"));
        // No part of a line was written.
        let mut filled = String::new();
        reader.read_to_string(&mut filled).unwrap();
        assert_eq!(filled.trim_start_matches('x'), "");
    }
}

#[test]
fn a_loss_is_a_line_with_its_cause_and_an_exit_code() {
    let fixture = Fixture::new();
    let lost = |hold: HoldProcess, cause: &str, words: &str| {
        let line = hold.event("lost");
        assert_eq!(line["cause"], cause, "{line}");
        assert_eq!(line["lost_in_ms"], 0, "{line}");
        let text = hold.ends_with(122);
        assert_eq!(text, format!("leasehold: job: the lock is lost: {words}\n"));
        line
    };
    let hold = HoldProcess::granted(&fixture, &["-q", "job"]);
    fixture.revoke("job");
    let line = lost(hold, "revoked", "an operator revoked it");
    assert_eq!(line["time_left_ms"], 0, "{line}");
    let fixed = ["--lease", "3s", "--at-least", "1h", "job"];
    let fixed = HoldProcess::granted(&fixture, &fixed);
    lost(fixed, "expired", "its fixed lease (--lease) has expired");
    // It begins no minimum hold.
    assert_eq!(fixture.try_run(&["-w", "20s", "job"]), 0);
    // The release or a message of the server detects this loss.
    let (server, fixture) = Fixture::redis();
    let mut hold = HoldProcess::granted(&fixture, &["--ttl", "1h", "job"]);
    kill("STOP", hold.process.id());
    server.cli(&["FLUSHALL"]);
    hold.close_stdin();
    kill("CONT", hold.process.id());
    let (output, _) = hold.finish();
    assert_like(&stderr(&output.ends_with(122)), "[..]lost[..]");
}

#[test]
fn a_jeopardy_is_a_line_and_so_is_its_end() {
    let (mut server, fixture) = Fixture::redis();
    let hold = HoldProcess::granted(&fixture, &["--ttl", "15s", "job"]);
    server.stop();
    let line = hold.event("jeopardy");
    assert_eq!(line["cause"], "unreachable", "{line}");
    let [lost_in, time_left] = ["lost_in_ms", "time_left_ms"].map(|it| line[it].as_u64());
    assert!(lost_in > Some(0) && lost_in < time_left, "{line}");
    server.cont();
    hold.event("held");
    server.kill9();
    hold.event("jeopardy");
    let line = hold.event("lost");
    assert_eq!(line["cause"], "unreachable", "{line}");
    // No other client can have it before that time has passed.
    assert!(line["time_left_ms"].as_u64().unwrap() > 2_000, "{line}");
    let text = hold.ends_with(122);
    let silence = "leasehold: job: the store does not reply; the lock is lost in ";
    assert!(text.contains(silence), "{text}");
}

#[test]
fn a_killed_hold_frees_its_lock_at_once_under_a_watchdog() {
    let (_server, fixture) = Fixture::redis();
    let node = Node::start(&fixture);
    let args = ["--watchdog-required", &node.option(), "--ttl", "1h", "job"];
    let hold = HoldProcess::granted(&fixture, &args);
    eventually(SOON, || node.client(&fixture, "leases") == 1);
    kill("KILL", hold.process.id());
    hold.finish();
    assert_eq!(fixture.try_run(&["-w", "20s", "job"]), 0);
    // An ordinary end is not a death, and a missing node is reported.
    let mut hold = HoldProcess::granted(&fixture, &args);
    hold.close_stdin();
    assert_eq!(hold.ends_with(0), "");
    let nowhere = "--watchdog=unix:/nonexistent/watchdog.sock";
    let mut hold = HoldProcess::granted(&fixture, &[nowhere, "job"]);
    hold.close_stdin();
    let text = hold.ends_with(0);
    assert!(text.contains("the lock is not watched"), "{text}");
}

#[test]
fn a_terminal_is_a_caller_too() {
    let fixture = Fixture::new();
    let mut terminal = at_terminal(&fixture.leasehold(["hold", "job"]));
    let (mut process, lines) = spawn_with_lines(&mut terminal);
    let mut screen = [(); 3].map(|()| lines.next_line().unwrap());
    screen.sort();
    assert_like(&screen[0], "leasehold: job is held; Ctrl-D releases it[..]");
    assert_like(&screen[1], "leasehold: the store is sqlite:[..]");
    assert_like(&screen[2], "{\"event\":\"granted\",[..]");
    let mut keyboard = process.stdin.take().unwrap();
    keyboard.write_all(b"\x04").unwrap();
    process.ends_with(0);
    assert!(!fixture.is_held("job"));
    drop(keyboard);
    // Nobody else closes stdin there.
    let terminal = at_terminal(&fixture.leasehold(["hold", "job"]));
    let Running { mut process, lines } = Running::start(terminal);
    let mut keyboard = process.stdin.take().unwrap();
    keyboard.write_all(b"\x03").unwrap();
    process.ends_with(130);
    // The end of the keyboard would be Ctrl-D, and the last output must have a reader.
    drop((keyboard, lines));
    assert!(!fixture.is_held("job"));
}

/// A process in the background of a terminal that reads from it would be stopped, and would lose its lock.
#[test]
fn in_the_background_of_a_terminal_the_lock_is_held() {
    let fixture = Fixture::new();
    let script = "set -m; leasehold hold --ttl 6s job & \
        read word; echo read $word; read word; kill %1; wait %1; echo ended $?";
    let mut terminal = at_terminal(&fixture.shell(script));
    let (mut process, lines) = spawn_with_lines(&mut terminal);
    lines.after("granted");
    let mut keyboard = process.stdin.take().unwrap();
    keyboard.write_all(b"one\n").unwrap();
    assert_eq!(lines.after("read ").trim(), "one");
    is_renewed(&fixture);
    keyboard.write_all(b"two\n").unwrap();
    assert_eq!(lines.after("ended ").trim(), "143");
    finish(process);
    assert!(!fixture.is_held("job"));
}
