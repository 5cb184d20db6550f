//! A process that, on Linux, cannot outlive the test process.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::helper::{process_state, spawn_in_lasting_thread, stop_process};
use crate::wait::INTERVAL;

/// Executes a program. On Linux, the system kills it when this one ends, in whatever way.
const LAUNCHER: &[&str] = if cfg!(target_os = "linux") {
    &["setpriv", "--pdeathsig", "KILL"]
} else {
    &["env"]
};

pub(crate) struct Supervised {
    child: Child,
    log: PathBuf,
}

impl Supervised {
    /// Starts a program with its output in a file. Options of `setpriv` may precede it.
    pub(crate) fn start(
        log: &Path,
        argv: impl IntoIterator<Item = impl AsRef<OsStr>>,
        env: &[(&str, &Path)],
    ) -> Self {
        let output = File::options().create(true).append(true).open(log);
        let output = output.expect("the log file");
        let mut command = Command::new(LAUNCHER[0]);
        command.args(&LAUNCHER[1..]).args(argv);
        command.envs(env.iter().copied()).stdin(Stdio::null());
        command
            .stdout(output.try_clone().expect("a file"))
            .stderr(output);
        Self {
            child: spawn_in_lasting_thread(command),
            log: log.to_owned(),
        }
    }

    /// Waits until it is ready. Returns its log if it ends instead.
    pub(crate) fn until_ready(
        &self,
        timeout: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<(), String> {
        let start = Instant::now();
        while !ready() {
            if !self.alive() {
                return Err(self.log());
            }
            assert!(start.elapsed() < timeout, "not ready:\n{}", self.log());
            thread::sleep(INTERVAL);
        }
        Ok(())
    }

    /// Its output.
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_nonzero().get()
    }

    /// Sends a signal to the program. Its pid cannot have been given to another, as it is reaped when this is dropped.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process takes signals");
    }

    /// Stops the program, and waits until none of its threads runs.
    pub(crate) fn stop(&self) {
        stop_process(Pid::from_child(&self.child));
    }

    /// Whether any thread of it lives: the first may have gone before the others, which keep the
    /// program's sockets open until they go.
    pub(crate) fn alive(&self) -> bool {
        let state = self.state();
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid()));
        !matches!(state, None | Some('Z' | 'X')) || threads.is_ok_and(|all| all.count() > 1)
    }

    /// Reaps the program, which has ended. It gets no signal afterwards.
    pub(crate) fn reap(&mut self) {
        let _ = self.child.wait();
    }

    /// Whether it is stopped by a signal.
    pub(crate) fn stopped(&self) -> bool {
        self.state() == Some('T')
    }

    fn state(&self) -> Option<char> {
        process_state(Pid::from_child(&self.child))
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
