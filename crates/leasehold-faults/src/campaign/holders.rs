//! A holder process, those that take its place, and what is done to them.

use std::fs::{self, File};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::plan::{HolderPlan, NAMES, Timed};
use super::world::World;
use crate::clock;
use crate::history::{Fault, Happened, Note};

/// How long a holder may take to end when it is asked to. Its shutdown alone may take 5 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts a command in the thread that lives as long as the campaign: a holder dies with the thread
/// that started it.
pub(super) type Spawner = Sender<(Command, Sender<std::io::Result<Child>>)>;

/// One place among the holders of a world, always taken by a living process.
pub(super) struct Seat<'a> {
    world: &'a World,
    plan: &'a HolderPlan,
    number: usize,
    incarnation: u64,
    spawner: Spawner,
}

struct Running {
    name: String,
    child: Child,
    /// The process ends when this is closed.
    stdin: Option<ChildStdin>,
}

impl<'a> Seat<'a> {
    pub(super) fn new(world: &'a World, number: usize, spawner: Spawner) -> Self {
        Self {
            world,
            plan: &world.plan.holders[number],
            number,
            incarnation: 0,
            spawner,
        }
    }

    /// Runs the plan of this place to its end, and then ends the last process in peace.
    pub(super) fn run(mut self) -> Result<(), String> {
        let mut running = self.start()?;
        for timed in &self.plan.faults {
            self.world.sleep_until(timed.at_ms);
            self.still_runs(&mut running)?;
            match timed.fault {
                Fault::KillHolder => {
                    self.kill(&mut running)?;
                    running = self.start()?;
                }
                _ => self.pause(&running, timed)?,
            }
        }
        self.world.sleep_until(self.world.plan.duration_ms);
        self.still_runs(&mut running)?;
        self.end(running)
    }

    fn start(&mut self) -> Result<Running, String> {
        self.incarnation += 1;
        let (world, plan) = (self.world, self.plan);
        let name = format!("{}-{}", self.number, self.incarnation);
        let history = world.folder.join(format!("holder-{name}.jsonl"));
        let complaint = File::create(history.with_extension("err"));
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command
            .arg("holder")
            .args(["--url", &world.servers.url(self.number), "--process", &name])
            .arg("--history")
            .arg(&history)
            .args(["--fence", &world.fence.to_string()])
            .args(["--seed", &(plan.seed ^ self.incarnation).to_string()])
            .args(["--names", &NAMES.join(",")])
            .args(["--ttl-ms", &plan.ttl_ms.to_string()])
            .args(["--threads", &plan.threads.to_string()])
            .args(["--tasks", &plan.tasks.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(complaint.map_err(|error| error.to_string())?);
        for (flag, set) in [("--handoff", plan.handoff), ("--impatient", plan.impatient)] {
            command.args(set.then_some(flag));
        }
        let (answer, answered) = channel();
        let gone = |_| "nobody starts holders any more".to_owned();
        self.spawner.send((command, answer)).map_err(|_| gone(()))?;
        let child = answered.recv().map_err(|_| gone(()))?;
        let mut child = child.map_err(|error| error.to_string())?;
        let stdin = child.stdin.take();
        Ok(Running { name, child, stdin })
    }

    fn kill(&self, running: &mut Running) -> Result<(), String> {
        let begin = clock::now();
        running.child.kill().map_err(|error| error.to_string())?;
        running.child.wait().map_err(|error| error.to_string())?;
        let end = clock::now();
        self.happened(running, Fault::KillHolder, (begin, end), (end, end));
        Ok(())
    }

    fn pause(&self, running: &Running, timed: &Timed) -> Result<(), String> {
        let begin = clock::now();
        running.signal(Signal::STOP)?;
        while !running.all_stopped() {
            thread::sleep(Duration::from_micros(100));
        }
        let stopped = clock::now();
        thread::sleep(Duration::from_millis(timed.span_ms));
        let woken = clock::now();
        running.signal(Signal::CONT)?;
        let end = clock::now();
        self.happened(running, timed.fault, (begin, end), (stopped, woken));
        Ok(())
    }

    fn end(&self, mut running: Running) -> Result<(), String> {
        running.stdin = None;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let status = running.child.try_wait();
            match status.map_err(|error| error.to_string())? {
                None => thread::sleep(Duration::from_millis(5)),
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    self.failed(&running, &format!("it ended with {status}"));
                    return Ok(());
                }
            }
        }
        self.failed(&running, "it did not end when it was asked to");
        running.child.kill().map_err(|error| error.to_string())?;
        running.child.wait().map_err(|error| error.to_string())?;
        Ok(())
    }

    /// A holder that ended by itself leaves its place to the next, and the judge a reason.
    fn still_runs(&mut self, running: &mut Running) -> Result<(), String> {
        let status = running.child.try_wait();
        if let Some(status) = status.map_err(|error| error.to_string())? {
            self.failed(running, &format!("it ended by itself with {status}"));
            *running = self.start()?;
        }
        Ok(())
    }

    fn failed(&self, running: &Running, why: &str) {
        self.world.note(&Note::Failed {
            process: running.name.clone(),
            why: why.to_owned(),
        });
    }

    fn happened(&self, running: &Running, fault: Fault, outer: (u64, u64), inner: (u64, u64)) {
        self.world.happened(Happened {
            fault,
            process: Some(running.name.clone()),
            master: None,
            holder: None,
            name: None,
            outer,
            inner,
        });
    }
}

impl Running {
    fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or("a process without a number")?;
        // Not reaped yet, so the number is still its own.
        kill_process(pid, signal).map_err(|error| error.to_string())
    }

    /// Whether no thread of the process runs any more.
    fn all_stopped(&self) -> bool {
        let tasks = format!("/proc/{}/task", self.child.id());
        let Ok(threads) = fs::read_dir(tasks) else {
            return true;
        };
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            let state = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next());
            matches!(state, None | Some('T' | 'Z' | 'X'))
        })
    }
}
