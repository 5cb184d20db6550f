//! The programs in the page of the command line that hold a lock: they are taken from there, and run.

use std::env;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use leasehold_testkit::{OutputLines, eventually};
use rustix::process::Signal;

use crate::schema::checked;
use crate::tools::{Fixture, RunToEnd, SOON, finish, kill, stderr, stdout};

const PAGE: &str = include_str!("../../../../docs/cli.md");

/// The exit code of a program that was ended by a signal.
const BY_TERM: i32 = 128 + Signal::TERM.as_raw();

/// A program that is waiting for Enter under the lock.
struct Program {
    process: Child,
    lines: OutputLines,
    token: u64,
}

impl Program {
    fn start(fixture: &Fixture, command: &[&str]) -> Self {
        let mut program = beside_leasehold(fixture, command);
        program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = program.stderr(Stdio::piped()).spawn().unwrap();
        let lines = OutputLines::read(process.stdout.take().unwrap());
        let token = lines.after("working under token ").parse().unwrap();
        Self {
            process,
            lines,
            token,
        }
    }

    #[track_caller]
    fn ends_with(mut self, code: i32) {
        let _stdin = self.process.stdin.take();
        let output = finish(self.process);
        let status = output.status;
        let by_signal = status.signal().map(|signal| 128 + signal);
        assert_eq!(
            status.code().or(by_signal),
            Some(code),
            "{}",
            stderr(&output)
        );
        assert_eq!(self.lines.next_line(), None);
    }
}

/// A command of a fixture that finds its interpreter, and leasehold.
fn beside_leasehold(fixture: &Fixture, command: &[&str]) -> Command {
    let search_path = format!("{}:{}", Fixture::search_path(), env::var("PATH").unwrap());
    let mut shell = fixture.shell("exec \"$@\"");
    shell.arg("bash").args(command).env("PATH", search_path);
    shell
}

/// The program in a language. A program that is missing there is a failure.
fn program(language: &str) -> &'static str {
    let (_, page) = PAGE
        .split_once("\n### Programs that hold a lock\n")
        .unwrap();
    let (_, program) = page.split_once(&format!("```{language}\n")).unwrap();
    program.split("```").next().unwrap()
}

/// Runs a program to its end, until the loss of its lock, and against another holder; and kills it.
fn holds_a_lock(language: &str, command: &[&str], lost: i32) {
    let fixture = Fixture::new();
    let interpreter = command[0];
    let found = beside_leasehold(&fixture, &["which", interpreter]).run_to_end();
    if !found.status.success() {
        eprintln!("{interpreter} is missing: the program in {language} is not tested");
        return;
    }
    std::fs::write(
        fixture.path(&format!("orders.{language}")),
        program(language),
    )
    .unwrap();
    let command = match language {
        "go" => {
            let built = beside_leasehold(
                &fixture,
                &[command, &["-o", "orders", "orders.go"]].concat(),
            );
            let built = { built }.run_to_end();
            assert!(built.status.success(), "{}", stderr(&built));
            &["./orders"][..]
        }
        _ => command,
    };
    let is_held = || {
        let show = fixture.leasehold(["show", "--json", "orders"]).run_to_end();
        checked("show", &stdout(&show))["lock"]["token"].as_u64()
    };
    let running = Program::start(&fixture, command);
    assert_eq!(is_held(), Some(running.token));
    let refused = beside_leasehold(&fixture, command).run_to_end();
    assert_eq!(refused.status.code(), Some(75), "{}", stderr(&refused));
    assert_eq!(stdout(&refused), "");
    let mut keyboard = running.process.stdin.as_ref().unwrap();
    keyboard.write_all(b"\n").unwrap();
    running.ends_with(0);
    assert_eq!(is_held(), None);

    let running = Program::start(&fixture, command);
    fixture.revoke("orders");
    running.ends_with(lost);

    let running = Program::start(&fixture, command);
    kill("KILL", running.process.id());
    running.ends_with(137);
    eventually(SOON, || is_held().is_none());
}

#[test]
fn sh() {
    holds_a_lock("sh", &["sh", "orders.sh"], BY_TERM);
}

#[test]
fn python() {
    holds_a_lock("python", &["python3", "orders.python"], 122);
}

#[test]
fn javascript() {
    holds_a_lock("javascript", &["node", "orders.javascript"], 122);
}

#[test]
fn go() {
    holds_a_lock("go", &["go", "build"], 122);
}
