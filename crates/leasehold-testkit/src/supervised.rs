//! A process that cannot outlive the test process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::helper::process_state;

/// Starts the program, prints its pid, and waits on a pipe that only the test process holds. When
/// the test process ends, in whatever way, the pipe closes and the program is killed.
const SUPERVISOR: &str =
    r#"log=$1; shift; "$@" >>"$log" 2>&1 </dev/null & echo $!; read _; kill -9 $! 2>&-; wait"#;

pub(crate) struct Supervised {
    shell: Child,
    pid: Pid,
}

impl Supervised {
    /// Starts a program with its output in a file.
    pub(crate) fn start(log: &Path, argv: &[&str], env: &[(&str, &Path)]) -> Self {
        let mut shell = Command::new("sh")
            .args(["-c", SUPERVISOR, "sh"])
            .arg(log)
            .args(argv)
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh cannot be started");
        let stdout = shell.stdout.take().expect("a piped stdout");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("the supervisor's reply");
        let pid = line.trim().parse().ok().and_then(Pid::from_raw);
        Self {
            shell,
            pid: pid.expect("a pid"),
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends a signal to the program. Its pid cannot have been given to another: the supervisor
    /// does not reap it before it ends itself.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).expect("the process takes signals");
    }

    /// Whether any thread of it lives: the first may have gone before the others, which keep the
    /// program's sockets open until they go too.
    pub(crate) fn alive(&self) -> bool {
        let state = self.state();
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid()));
        !matches!(state, None | Some('Z' | 'X')) || threads.is_ok_and(|all| all.count() > 1)
    }

    /// Whether it is stopped by a signal.
    pub(crate) fn stopped(&self) -> bool {
        self.state() == Some('T')
    }

    fn state(&self) -> Option<char> {
        process_state(self.pid)
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
    }
}
