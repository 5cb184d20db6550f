//! The programs in the page of the languages, which hold a lock: they are taken from there, and run.

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Output, Stdio};

use leasehold_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::tools::{EndsWith, Fixture, RunToEnd, SOON, finish, kill, stderr, stdout, through};

const PAGE: &str = include_str!("../../../../docs/languages.md");

/// A program that works under the lock, in a process group of its own. Its output is in the file `log`.
struct Program(Child);

impl Program {
    fn start(fixture: &Fixture, command: &[&str]) -> Self {
        let program = beside_leasehold(fixture, command);
        let mut program = through(&["env", "--default-signal"], &program);
        let log = File::create(fixture.path("log")).unwrap();
        program.process_group(0).stdout(log).stderr(Stdio::piped());
        let program = Self(program.spawn().unwrap());
        eventually(SOON, || fixture.read("log").contains('\n'));
        program
    }

    #[track_caller]
    fn ends_with(self, code: i32) {
        let output = finish(self.0);
        assert_eq!(code_of(&output), Some(code), "{}", stderr(&output));
    }
}

/// The exit code as a shell has it.
fn code_of(output: &Output) -> Option<i32> {
    let by_signal = output.status.signal().map(|signal| 128 + signal);
    output.status.code().or(by_signal)
}

/// A command of a fixture that finds its interpreter, and leasehold, but no other program that cargo has built.
fn beside_leasehold(fixture: &Fixture, command: &[&str]) -> Command {
    let bin = fixture.path("bin");
    if fs::create_dir(&bin).is_ok() {
        symlink(env!("CARGO_BIN_EXE_leasehold"), bin.join("leasehold")).unwrap();
    }
    let search_path = format!("{}:{}", bin.display(), env::var("PATH").unwrap());
    let mut shell = fixture.shell("exec \"$@\"");
    shell.arg("bash").args(command).env("PATH", search_path);
    shell
}

/// The program in a language. A program that is missing there is a failure.
fn program(language: &str) -> &'static str {
    let (_, program) = PAGE.split_once(&format!("```{language}\n")).unwrap();
    program.split("```").next().unwrap()
}

/// Stops a program with its whole group, ends it by the loss of its lock, tries it against another holder, and kills it.
fn holds_a_lock(language: &str, command: &[&str]) {
    let fixture = Fixture::new();
    let interpreter = command[0];
    let found = beside_leasehold(&fixture, &["which", interpreter]).run_to_end();
    if !found.status.success() {
        eprintln!("{interpreter} is missing: the program in {language} is not tested");
        return;
    }
    let source = fixture.path(&format!("orders.{language}"));
    std::fs::write(source, program(language)).unwrap();
    let command = match language {
        "go" => {
            let build = [command, &["-o", "orders", "orders.go"]].concat();
            let built = beside_leasehold(&fixture, &build).run_to_end();
            assert!(built.status.success(), "{}", stderr(&built));
            &["./orders"][..]
        }
        _ => command,
    };
    let running = Program::start(&fixture, command);
    let log = fixture.read("log");
    let token = log.lines().next().unwrap().rsplit_once(' ').unwrap().1;
    assert_eq!(fixture.lock("orders")["token"].to_string(), token);
    let refused = beside_leasehold(&fixture, command).ends_with(75);
    assert_eq!(stdout(&refused), "");
    // The next holder sees what was done when the lock passed on.
    let mut next = fixture.leasehold(["run", "orders", "--", "cp", "log", "seen"]);
    let next = next.stderr(Stdio::piped()).spawn().unwrap();
    eventually(SOON, || fixture.waiters("orders") == 1);
    let group = Pid::from_child(&running.0);
    kill_process_group(group, Signal::TERM).unwrap();
    running.ends_with(0);
    next.ends_with(0);
    let steps = fixture.read("seen");
    assert!(steps.ends_with("\ndone\n"), "{steps}");
    assert_eq!(steps, fixture.read("log"));
    assert!(!fixture.is_held("orders"));

    let running = Program::start(&fixture, command);
    fixture.revoke("orders");
    running.ends_with(122);

    let running = Program::start(&fixture, command);
    kill("KILL", running.0.id());
    running.ends_with(137);
    eventually(SOON, || !fixture.is_held("orders"));
}

#[test]
fn sh() {
    holds_a_lock("sh", &["sh", "orders.sh"]);
}

#[test]
fn python() {
    holds_a_lock("python", &["python3", "orders.python"]);
}

#[test]
fn javascript() {
    holds_a_lock("javascript", &["node", "orders.javascript"]);
}

#[test]
fn go() {
    holds_a_lock("go", &["go", "build"]);
}
