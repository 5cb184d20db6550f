//! A helper: a process that a test stops, kills and replaces.
//!
//! A program starts itself anew as its helper, so that it needs no other. [`Helper`] is the side of the
//! test, [`commands`] that of the helper. They exchange lines:
//!
//! ```text
//! test   -> helper   a command and its arguments, separated by blanks
//! helper -> test     a reply, after "helper: "
//! ```
//!
//! Each program has commands of its own. Every helper also knows these:
//!
//! | command | effect | reply |
//! |---|---|---|
//! | `fork` | starts a copy of the process that keeps all descriptors and sleeps | its process id |
//! | `exec` | executes the program anew in the process, as a helper | `executed`, by the new program |
//! | `end-main` | ends the main thread, and no other, on Linux | `ok` |
//!
//! A test program has a test `helper` in its root, which does nothing unless [`is_helper`]. The end of the
//! standard input is the end of the commands. On Linux, a helper is killed when the program that started it ends.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::process::{LINE_TIMEOUT, OutputLines};
use crate::wait::eventually;

/// The variable that makes a program a helper.
const VARIABLE: &str = "LEASEHOLD_TEST_HELPER";

/// Its value after `exec`.
const EXECUTED: &str = "executed";

/// Precedes a reply: a test harness writes lines of its own.
const PREFIX: &str = "helper: ";

/// How long a signal may take to have its effect on a busy machine.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a forked copy lives if nobody ends it.
const FORK_SECONDS: u32 = 60;

/// A helper as its test sees it. It is killed when it is dropped.
#[derive(Debug)]
pub struct Helper {
    process: Child,
    output: OutputLines,
}

impl Helper {
    /// Starts this program anew as a helper.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn start() -> Self {
        Self::spawn(Self::command())
    }

    /// The command that starts a helper.
    ///
    /// # Panics
    ///
    /// If the path of this program is unknown.
    #[must_use]
    pub fn command() -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        // For a test program: run only the test of this name.
        command
            .args(["helper", "--exact", "--nocapture"])
            .env(VARIABLE, "1");
        command
    }

    /// Starts a helper through a shell, whose script executes its own arguments.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn spawn_through(mut shell: Command) -> Self {
        let helper = Self::command();
        shell.arg(helper.get_program()).args(helper.get_args());
        shell.env(VARIABLE, "1");
        Self::spawn(shell)
    }

    /// Starts a helper by a command that was changed.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = spawn_in_lasting_thread(command);
        let output = OutputLines::read(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// Sends a command.
    ///
    /// # Panics
    ///
    /// If the helper has ended.
    #[track_caller]
    pub fn send(&self, command: &str) {
        let mut stdin = self.process.stdin.as_ref().unwrap();
        writeln!(stdin, "{command}").unwrap();
    }

    /// The next reply.
    ///
    /// # Panics
    ///
    /// If there is none in two minutes, or the helper has ended.
    #[track_caller]
    pub fn reply(&self) -> String {
        let reply = self.reply_within(LINE_TIMEOUT);
        reply.unwrap_or_else(|| panic!("no reply after {LINE_TIMEOUT:?}"))
    }

    /// The next reply, unless it takes longer.
    ///
    /// # Panics
    ///
    /// If the helper has ended.
    #[track_caller]
    pub fn reply_within(&self, timeout: Duration) -> Option<String> {
        self.output.after_within(PREFIX, timeout)
    }

    /// Sends a command, and returns the next reply.
    ///
    /// # Panics
    ///
    /// As [`Helper::reply`].
    #[track_caller]
    pub fn request(&self, command: &str) -> String {
        self.send(command);
        self.reply()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Sends a signal. A helper that has ended is a zombie until [`Helper::kill`], so its id is its own.
    ///
    /// # Panics
    ///
    /// If it was killed before.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Stops it, and waits until none of its threads runs.
    ///
    /// # Panics
    ///
    /// If it was killed before.
    pub fn stop(&self) {
        stop_process(self.pid());
    }

    /// Resumes it.
    ///
    /// # Panics
    ///
    /// If it was killed before.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it, unless it has ended, and reaps it.
    ///
    /// # Panics
    ///
    /// If the system does not allow it.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Ends its standard input.
    pub fn close(&mut self) {
        self.process.stdin = None;
    }

    /// How it ended. `None`: not yet.
    ///
    /// # Panics
    ///
    /// If the system does not report it.
    pub fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.process.try_wait().unwrap()
    }

    /// The state of its main thread, as a letter.
    #[must_use]
    pub fn state(&self) -> Option<char> {
        process_state(self.pid())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The state of the main thread of a process, as a letter. `None`: there is no such process.
#[must_use]
pub fn process_state(pid: Pid) -> Option<char> {
    if cfg!(target_os = "linux") {
        return state_in(&format!("/proc/{pid}/stat"));
    }
    let mut ps = Command::new("ps");
    ps.args(["-o", "state=", "-p", &pid.to_string()]);
    let state = ps.output().unwrap().stdout;
    state.first().copied().map(char::from)
}

/// Stops a process, and waits until none of its threads runs.
pub(crate) fn stop_process(pid: Pid) {
    kill_process(pid, Signal::STOP).expect("the process takes signals");
    let tasks = format!("/proc/{pid}/task");
    eventually(SIGNAL_TIMEOUT, || {
        let threads = fs::read_dir(&tasks).into_iter().flatten().flatten();
        threads.into_iter().all(|thread| {
            let state = state_in(&thread.path().join("stat").to_string_lossy());
            matches!(state, None | Some('T' | 'Z' | 'X'))
        })
    });
}

fn state_in(stat: &str) -> Option<char> {
    let stat = fs::read_to_string(stat).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Spawns a process from a thread that lasts as long as the program: the process is killed with the thread
/// that spawned it.
pub(crate) fn spawn_in_lasting_thread(command: Command) -> Child {
    type Spawn = (Command, Sender<io::Result<Child>>);
    static SPAWNER: OnceLock<Mutex<Sender<Spawn>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, spawns): (_, Receiver<Spawn>) = channel();
        thread::spawn(move || {
            for (mut command, reply) in spawns {
                let _ = reply.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (reply, spawned) = channel();
    let spawner = spawner.lock().unwrap_or_else(PoisonError::into_inner);
    spawner.send((command, reply)).unwrap();
    drop(spawner);
    spawned.recv().unwrap().unwrap()
}

/// The commands that a helper receives.
#[derive(Debug)]
pub struct Commands(UnboundedReceiver<String>);

/// Whether this process is a helper.
#[must_use]
pub fn is_helper() -> bool {
    std::env::var_os(VARIABLE).is_some()
}

/// In a helper: receives its commands, and obeys those that every helper knows.
///
/// # Panics
///
/// If the system refuses to kill the helper with its parent.
#[must_use]
pub fn commands() -> Commands {
    // A stopped process reads no input, so the end of that alone would not end it.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    if std::env::var(VARIABLE).is_ok_and(|value| value == EXECUTED) {
        reply(EXECUTED);
    }
    let (sender, commands) = unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            match &*line {
                "fork" => reply(fork()),
                "exec" => panic!("{}", Helper::command().env(VARIABLE, EXECUTED).exec()),
                #[cfg(target_os = "linux")]
                "end-main" => {
                    end_main_thread();
                    reply("ok");
                }
                _ => drop(sender.send(line)),
            }
        }
    });
    Commands(commands)
}

impl Commands {
    /// The next command. `None`: there are no more.
    pub async fn next(&mut self) -> Option<String> {
        self.0.recv().await
    }

    /// The next command, outside of a runtime.
    pub fn blocking_next(&mut self) -> Option<String> {
        self.0.blocking_recv()
    }
}

/// In a helper: replies to a command.
pub fn reply(reply: impl std::fmt::Display) {
    // The test may have ended, and its harness may have begun a line.
    let _ = write!(io::stdout().lock(), "\n{PREFIX}{reply}\n");
}

/// Forks a copy of this process that only sleeps. Returns its id.
#[expect(
    unsafe_code,
    reason = "the copy keeps all descriptors, so it executes nothing"
)]
fn fork() -> i32 {
    // SAFETY: the copy calls only functions that are allowed between fork and exec. The alarm ends it.
    unsafe {
        match libc::fork() {
            0 => {
                libc::alarm(FORK_SECONDS);
                loop {
                    libc::pause();
                }
            }
            copy => copy,
        }
    }
}

/// Ends the main thread of this process, wherever it is.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no library ends one thread of a process alone")]
fn end_main_thread() {
    extern "C" fn end_thread(_: libc::c_int) {
        // SAFETY: the thread ends immediately. It has stopped inside a wait, and holds nothing that others need.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    let handler: extern "C" fn(libc::c_int) = end_thread;
    // SAFETY: the handler makes one system call, which is allowed in a handler. The id of the main thread is
    // that of the process.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as libc::sighandler_t);
        let process = libc::getpid();
        libc::syscall(libc::SYS_tgkill, process, process, libc::SIGUSR1);
    }
}
