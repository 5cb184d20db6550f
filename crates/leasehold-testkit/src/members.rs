//! Members of a cluster that decide together, each a real process of a test's own.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::certs::Certs;
use crate::supervised::Supervised;
use crate::wait::free_port;

/// How long members may take to have a leader.
pub(crate) const READY_WITHIN: Duration = Duration::from_secs(60);

/// How many sets of ports to try: another test may take a free port before a member does.
const STARTS_MAX: u32 = 10;

/// The program of the members, and its options.
pub trait Program: Clone {
    /// The text in the log of a member that ended because its port was taken. Empty: any end counts as that.
    const PORT_TAKEN: &'static str;

    /// The command line of a member.
    fn command(members: &Members<Self>, nth: usize) -> Vec<String>;

    /// Whether a member replies.
    fn is_ready(members: &Members<Self>, nth: usize) -> bool;
}

/// Running members on ports of 127.0.0.1. They end when this is dropped.
pub struct Members<P> {
    // Declared first, so that the processes are gone before the directory is.
    processes: Vec<Option<Supervised>>,
    /// The first is for clients, the others are for what the program needs.
    pub(crate) ports: Vec<[u16; 4]>,
    directory: TempDir,
    pub(crate) certs: Option<Arc<Certs>>,
    pub(crate) program: P,
}

impl<P: Program> Members<P> {
    /// Starts so many members, and waits until they have a leader.
    pub(crate) fn begin(count: usize, program: &P, certs: Option<&Arc<Certs>>) -> Self {
        for _ in 0..STARTS_MAX {
            let ports = |_| [(); 4].map(|()| free_port());
            let mut members = Self {
                processes: Vec::new(),
                ports: (0..count).map(ports).collect(),
                directory: tempfile::tempdir().expect("a temporary directory"),
                certs: certs.cloned(),
                program: program.clone(),
            };
            for nth in 0..count {
                let process = members.launch(nth);
                members.processes.push(Some(process));
            }
            if members.until_ready() {
                return members;
            }
        }
        panic!("every one of {STARTS_MAX} sets of free ports was taken by others");
    }

    /// The port of a member for clients, without TLS if it has both.
    #[must_use]
    pub fn port(&self, nth: usize) -> u16 {
        self.ports[nth][0]
    }

    /// Kills a member, as a crash would.
    pub fn kill9(&mut self, nth: usize) {
        self.processes[nth] = None;
    }

    /// Starts a member that was killed, with its data.
    ///
    /// # Panics
    ///
    /// If it does not come up.
    pub fn restart(&mut self, nth: usize) {
        self.processes[nth] = Some(self.launch(nth));
        assert!(self.until_ready(), "a member does not start again");
    }

    /// Kills all members, and starts them after some time, with their data.
    ///
    /// # Panics
    ///
    /// If they do not come up.
    pub fn restart_all(&mut self, after: Duration) {
        self.processes.fill_with(|| None);
        thread::sleep(after);
        for nth in 0..self.processes.len() {
            self.processes[nth] = Some(self.launch(nth));
        }
        assert!(self.until_ready(), "the members do not start again");
    }

    /// Stops a member: it keeps its connections and replies to nothing.
    pub fn pause(&self, nth: usize) {
        self.member(nth).stop();
    }

    /// Lets a stopped member go on.
    pub fn resume(&self, nth: usize) {
        self.member(nth).signal(Signal::CONT);
    }

    /// The process ids of the members that were not killed.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let running = self.processes.iter().flatten();
        running.map(Supervised::pid).collect()
    }

    /// The numbers of the members that were not killed.
    pub(crate) fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.processes.len()).filter(|nth| self.processes[*nth].is_some())
    }

    /// The directory of the data of a member.
    #[must_use]
    pub fn data(&self, nth: usize) -> PathBuf {
        self.directory.path().join(format!("data{nth}"))
    }

    fn member(&self, nth: usize) -> &Supervised {
        self.processes[nth].as_ref().expect("a running member")
    }

    fn launch(&self, nth: usize) -> Supervised {
        let log = self.directory.path().join(format!("log{nth}"));
        Supervised::start(&log, P::command(self, nth), &[])
    }

    /// Waits until each running member replies. `false`: one of them found its port taken.
    fn until_ready(&self) -> bool {
        self.running().all(|nth| {
            let is_ready = || P::is_ready(self, nth);
            let ready = self.member(nth).until_ready(READY_WITHIN, is_ready);
            let ready = ready.inspect_err(|log| {
                assert!(
                    log.contains(P::PORT_TAKEN),
                    "a member ended; cargo xtask test installs its program:\n{log}"
                );
            });
            ready.is_ok()
        })
    }
}
