//! A state directory for a test, and the program.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, PipeWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::{Client, Guard};
use leasehold_testkit::{OutputLines, RedisServer, eventually, temp_dir};
pub(crate) use leasehold_testkit::{RunToEnd, finish, kill, within_deadline};
use rustix::io::ioctl_fionbio;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::schema::checked;

/// How long a test waits for what must happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A state directory and a store.
pub(crate) struct Fixture {
    directory: TempDir,
    store: Option<String>,
}

impl Fixture {
    /// With the default store, a file in the state directory.
    pub(crate) fn new() -> Self {
        let machine = Path::new("/etc/leasehold/store");
        assert!(
            !machine.exists(),
            "these tests would use the store in {machine:?}; move it away"
        );
        Self {
            directory: temp_dir(),
            store: None,
        }
    }

    pub(crate) fn with_store(url: String) -> Self {
        Self {
            store: Some(url),
            ..Self::new()
        }
    }

    /// With a file that somebody has chosen. A job in the default store has a message.
    pub(crate) fn with_file() -> Self {
        let mut fixture = Self::new();
        let file = fixture.path("chosen.db");
        fixture.store = Some(format!("sqlite:{}", file.display()));
        fixture
    }

    /// With a Redis server.
    pub(crate) fn redis() -> (RedisServer, Self) {
        let server = RedisServer::start();
        let fixture = Self::with_store(server.url());
        (server, fixture)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The program, in this directory, without the `LEASEHOLD_` variables of the tests.
    pub(crate) fn leasehold<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        self.command(env!("CARGO_BIN_EXE_leasehold"), args)
    }

    /// A shell that runs a script, and finds the program by its name.
    pub(crate) fn shell(&self, script: &str) -> Command {
        let mut shell = self.command("bash", ["--norc", "-c", script]);
        shell.env("PATH", Self::search_path());
        shell
    }

    /// Where it finds programs.
    pub(crate) fn search_path() -> String {
        let directory = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap();
        format!("{}:/usr/bin:/bin", directory.display())
    }

    fn command<A: AsRef<OsStr>>(
        &self,
        program: &str,
        args: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .current_dir(self.directory.path())
            .env("XDG_STATE_HOME", self.directory.path())
            .stdin(Stdio::null());
        if let Some(store) = &self.store {
            command.env("LEASEHOLD_STORE", store);
        }
        command
    }

    /// `leasehold run` with these arguments, then `-- sh -c SCRIPT`.
    pub(crate) fn run_script(&self, args: &[&str], script: &str) -> Command {
        let mut command = self.leasehold(["run"]);
        command.args(args).args(["--", "sh", "-c", script]);
        command
    }

    /// A run with a command that ends only by a signal.
    pub(crate) fn hold(&self, args: &[&str]) -> Running {
        Running::start(self.run_script(args, "echo in; exec sleep 1000"))
    }

    /// A lock that a program holds in the chosen file: the command line acquires no name with such characters.
    pub(crate) fn hold_in_program(&self, name: &str, label: &str) -> (Guard, Client, Runtime) {
        let runtime = Runtime::new().unwrap();
        let (guard, client) = runtime.block_on(async {
            let builder = Client::builder().label(label);
            let client = builder.connect(self.store.as_ref().unwrap()).await.unwrap();
            let guard = client.mutex(name).unwrap().lock().await.unwrap();
            (guard, client)
        });
        (guard, client, runtime)
    }

    /// A run with a command that ends when the file `go-on` exists. `guardian` has the process id of its guardian.
    pub(crate) fn hold_until_go_on(&self, args: &[&str]) -> Running {
        let script = "echo $PPID > guardian; echo in; until test -e go-on; do sleep 0.02; done";
        Running::start(self.run_script(args, script))
    }

    /// Runs a command that does nothing under a lock. Returns the exit code.
    pub(crate) fn try_run(&self, args: &[&str]) -> i32 {
        let output = self.run_script(args, "true").run_to_end();
        output.status.code().unwrap()
    }

    /// The same with an exit code that is known. Returns what was printed on stderr.
    #[track_caller]
    pub(crate) fn messages(&self, args: &[&str], code: i32) -> String {
        stderr(&self.run_script(args, "true").ends_with(code))
    }

    /// Revokes a lock.
    pub(crate) fn revoke(&self, name: &str) {
        self.leasehold(["release", "--force", name]).ends_with(0);
    }

    /// Creates an empty file.
    pub(crate) fn write(&self, name: &str) {
        std::fs::write(self.path(name), "").unwrap();
    }

    pub(crate) fn is_held(&self, name: &str) -> bool {
        let output = self.leasehold(["show", name]).run_to_end();
        match output.status.code() {
            Some(0) => true,
            Some(1) => false,
            other => panic!("show: {other:?}, {}", stderr(&output)),
        }
    }

    /// A lock as it is held; null if it is free.
    pub(crate) fn lock(&self, name: &str) -> Value {
        let show = self.leasehold(["show", "--json", name]).run_to_end();
        checked("show", &stdout(&show))["lock"].take()
    }

    /// The number of clients in its queue.
    pub(crate) fn waiters(&self, name: &str) -> usize {
        self.lock(name)["waiters"].as_array().map_or(0, Vec::len)
    }

    /// Waits until a file has a line, and returns it.
    pub(crate) fn line_of(&self, name: &str) -> String {
        eventually(SOON, || self.read(name).ends_with('\n'));
        self.read(name).trim().to_owned()
    }
}

/// A run whose command has written its first line, so that it holds the lock.
pub(crate) struct Running {
    pub(crate) process: Child,
    pub(crate) lines: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a command and waits for its first line.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = spawn_piped(&mut command);
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let first = within_deadline(process.id(), move || {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            (lines, line)
        });
        let (lines, line) = first;
        assert!(!line.is_empty(), "{:?}", finish(process));
        Self { process, lines }
    }

    pub(crate) fn signal(&self, signal: &str) {
        kill(signal, self.process.id());
    }

    /// Waits for its end, and checks the exit code.
    #[track_caller]
    pub(crate) fn ends_with(self, code: i32) -> Output {
        self.finish().ends_with(code)
    }

    /// Ends it and its command by TERM.
    #[track_caller]
    pub(crate) fn terminate(self) {
        self.signal("TERM");
        self.ends_with(143);
    }

    pub(crate) fn finish(self) -> Output {
        // A writer that outlives it must not hang the test.
        drop(self.lines);
        finish(self.process)
    }
}

/// The time of the clock on the wall, since the Unix epoch.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Starts a command with its output in pipes.
pub(crate) fn spawn_piped(command: &mut Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Starts a command. Returns it with the lines that it prints.
pub(crate) fn spawn_with_lines(command: &mut Command) -> (Child, OutputLines) {
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = OutputLines::read(process.stdout.take().unwrap());
    (process, lines)
}

/// The same with the lines of its stderr.
pub(crate) fn spawn_with_messages(command: &mut Command) -> (Child, OutputLines) {
    let mut process = spawn_piped(command);
    let messages = OutputLines::read(process.stderr.take().unwrap());
    (process, messages)
}

/// The same command, started by another program: its arguments end with the command.
pub(crate) fn through(wrapper: &[&str], command: &Command) -> Command {
    let mut wrapped = beside(command, wrapper[0]);
    wrapped
        .args(&wrapper[1..])
        .arg(command.get_program())
        .args(command.get_args());
    wrapped
}

/// The same command at a terminal of its own, made by script(1). What is written to its stdin is typed there.
pub(crate) fn at_terminal(command: &Command) -> Command {
    // No signal is ignored, whatever the tests ignore.
    let command = through(&["env", "--default-signal"], command);
    let quoted = |word: &OsStr| format!("'{}'", word.to_str().unwrap().replace('\'', r"'\''"));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(quoted).collect();
    let mut terminal = beside(&command, "script");
    terminal
        .args(["-q", "-e", "-c", &format!("exec {}", words.join(" "))])
        .arg("/dev/null")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped());
    terminal
}

/// What a command shows at a terminal, where it ends with 0.
#[track_caller]
pub(crate) fn shown_at_terminal(command: &Command) -> String {
    stdout(&at_terminal(command).ends_with(0))
}

/// Another program in the directory and with the environment of a command.
fn beside(command: &Command, program: &str) -> Command {
    let mut other = Command::new(program);
    other
        .current_dir(command.get_current_dir().unwrap())
        .stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => other.env(name, value),
            None => other.env_remove(name),
        };
    }
    other
}

/// The fields that /proc has of a process, from its state on. `None`: there is no such process.
pub(crate) fn stat(pid: &str) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// Whether a process lives; a zombie does not.
pub(crate) fn lives(pid: &str) -> bool {
    stat(pid).is_some_and(|fields| !matches!(&*fields[0], "Z" | "X"))
}

/// Whether a signal has stopped a process.
pub(crate) fn is_stopped(pid: u32) -> bool {
    stat(&pid.to_string()).is_some_and(|fields| fields[0] == "T")
}

/// The parent of a process.
pub(crate) fn parent_of(pid: &str) -> String {
    stat(pid).unwrap().swap_remove(1)
}

/// The children of these processes that were not reaped.
pub(crate) fn children_of(parents: &[String]) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap();
    // Some may have ended meanwhile.
    let names = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let is_child = |pid: &String| stat(pid).is_some_and(|fields| parents.contains(&fields[1]));
    names.filter(is_child).collect()
}

/// The children of these processes that have ended and were not reaped.
pub(crate) fn zombies_of(parents: &[String]) -> Vec<String> {
    let mut children = children_of(parents);
    children.retain(|pid| stat(pid).is_some_and(|fields| fields[0] == "Z"));
    children
}

/// What ends with an exit code: a command that is run, a process, or its output.
pub(crate) trait EndsWith {
    /// Waits for its end, and checks the exit code.
    fn ends_with(self, code: i32) -> Output;
}

impl EndsWith for Output {
    #[track_caller]
    fn ends_with(self, code: i32) -> Output {
        assert_eq!(self.status.code(), Some(code), "{}", stderr(&self));
        self
    }
}

impl EndsWith for Child {
    #[track_caller]
    fn ends_with(self, code: i32) -> Output {
        finish(self).ends_with(code)
    }
}

impl EndsWith for &mut Command {
    #[track_caller]
    fn ends_with(self, code: i32) -> Output {
        let output = self.run_to_end();
        assert_eq!(output.status.code(), Some(code), "{self:?}: {output:?}");
        output
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks that a text is like a pattern, in which `[..]` stands for any text.
#[track_caller]
pub(crate) fn assert_like(text: &str, pattern: &str) {
    assert!(is_like(text, pattern), "{text:?} is not like {pattern:?}");
}

/// Whether a text is like a pattern, in which `[..]` stands for any text.
pub(crate) fn is_like(text: &str, pattern: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once("[..]") else {
        return text == pattern;
    };
    let Some(text) = text.strip_prefix(begin) else {
        return false;
    };
    let mut ends = text.char_indices().map(|(at, _)| &text[at..]).chain([""]);
    ends.any(|end| is_like(end, rest))
}

/// Fills a pipe.
pub(crate) fn fill(writer: &mut PipeWriter) {
    ioctl_fionbio(&*writer, true).unwrap();
    for length in [4096, 1] {
        while writer.write(&vec![b'x'; length]).is_ok() {}
    }
    ioctl_fionbio(&*writer, false).unwrap();
}

/// Waits until a number rises: the time left of a lease does when it is renewed.
#[track_caller]
pub(crate) fn rises<T: PartialOrd + Copy>(mut number: impl FnMut() -> T) {
    let mut last = number();
    eventually(SOON, || {
        let before = std::mem::replace(&mut last, number());
        last > before
    });
}
