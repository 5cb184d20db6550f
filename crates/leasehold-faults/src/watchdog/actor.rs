//! A process of the campaign, from outside: what it said, and what is done to it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a process has for what takes it a moment, on a machine that is busy with others.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A command, and who wants the process.
type Order = (Command, Sender<std::io::Result<Child>>);

/// A process of ours. It ends when this is dropped.
pub(super) struct Actor {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Actor {
    /// Starts this program with other arguments.
    pub(super) fn start(args: &[String]) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.args(args);
        Self::of(command)
    }

    /// A process that does nothing.
    pub(super) fn idle() -> Result<Self, String> {
        Self::of(Command::new("cat"))
    }

    fn of(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn(command)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("a process without output")?;
        let (tell, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            stdin,
            lines,
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says a line to it.
    pub(super) fn order(&mut self, line: &str) -> Result<(), String> {
        let stdin = self.stdin.as_mut().ok_or("a process without input")?;
        writeln!(stdin, "{line}").map_err(|error| format!("{line}: {error}"))
    }

    /// The next line that it said. `None`: none came in time.
    pub(super) fn line(&self, patience: Duration) -> Result<Option<String>, String> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("a process has ended by itself".into()),
        }
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or("a process without a number")?;
        // Not reaped yet, so the number is still its own.
        kill_process(pid, signal).map_err(|error| error.to_string())
    }

    /// Stops it, and waits until no thread of it runs.
    pub(super) fn stop(&self) -> Result<(), String> {
        self.signal(Signal::STOP)?;
        wait_for("a process does not stop", || self.is_stopped())
    }

    /// Lets it go on.
    pub(super) fn go_on(&self) -> Result<(), String> {
        self.signal(Signal::CONT)
    }

    /// Waits until it has ended by itself.
    pub(super) fn ends(&mut self) -> Result<(), String> {
        let child = &mut self.child;
        wait_for("a process does not end", || {
            !matches!(child.try_wait(), Ok(None))
        })
    }

    /// Takes it out of the table of processes, once it has ended.
    pub(super) fn reap(&mut self) -> Result<(), String> {
        self.child
            .wait()
            .map(drop)
            .map_err(|error| error.to_string())
    }

    /// Kills it and takes it out of the table of processes.
    pub(super) fn kill(&mut self) -> Result<(), String> {
        self.child.kill().map_err(|error| error.to_string())?;
        self.reap()
    }

    /// The state of its main thread, as a letter.
    pub(super) fn state(&self) -> Option<char> {
        state(&format!("/proc/{}/stat", self.pid()))
    }

    fn is_stopped(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.pid());
        let Ok(threads) = fs::read_dir(tasks) else {
            return true;
        };
        threads.flatten().all(|thread| {
            let state = state(&thread.path().join("stat").to_string_lossy());
            matches!(state, None | Some('T' | 'Z' | 'X'))
        })
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn state(path: &str) -> Option<char> {
    let stat = fs::read_to_string(path).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Looks until something is so.
pub(super) fn wait_for(what: &str, so: impl FnMut() -> bool) -> Result<(), String> {
    match is_so_within(PATIENCE, so) {
        true => Ok(()),
        false => Err(what.to_owned()),
    }
}

/// Looks until something is so, or the time is over.
pub(super) fn is_so_within(patience: Duration, mut so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !so() {
        if start.elapsed() >= patience {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

/// Starts a process from a thread that lives as long as the campaign: it dies with the thread that started
/// it.
fn spawn(command: Command) -> Result<Child, String> {
    static SPAWNER: OnceLock<std::sync::Mutex<Sender<Order>>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (spawner, orders) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in orders {
                let _ = answer.send(command.spawn());
            }
        });
        std::sync::Mutex::new(spawner)
    });
    let gone = "nobody starts processes any more";
    let (answer, answered) = channel();
    let spawner = spawner.lock().unwrap_or_else(PoisonError::into_inner);
    spawner.send((command, answer)).map_err(|_| gone)?;
    drop(spawner);
    let child = answered.recv().map_err(|_| gone)?;
    child.map_err(|error| error.to_string())
}
