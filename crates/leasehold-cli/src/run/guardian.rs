//! A small process that starts the command, and ends it when the runner cannot.
//!
//! The parent-death signal reaches only the command's first process; the children of a shell would go on without
//! the lock. A stopped runner cannot stop the command at all. So the guardian is a process between the runner and
//! the command. It is the subreaper of all processes of the command, finds them by descent, and reaps them. The
//! runner keeps sending it the deadline of the command, and in the end a dismissal. If the channel ends without a
//! dismissal, the runner was killed. If the deadline passes, the runner was stopped. In both cases the guardian kills
//! every process of the command.
//!
//! A watchdog may renew the lease of a stopped runner. So the guardian queries it before the deadline passes, and
//! extends the deadline accordingly.
//!
//! The guardian lives until the last process has ended, because a watchdog takes its end for the end of all.

use std::io::{self, BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::watchdog::Observer;
use leasehold::{Instant, LeaseId};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, wait};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

use super::environment;
use super::processes::{self, Tree};
use super::protocol::{self, Order, Report};
use super::signals;
use super::spawn::{die_with_parent, inherited_channel, spawn};

/// The name of its process, within the limit of 15 bytes.
const PROCESS_NAME: &str = "guardian";

/// The interval between two queries to the watchdog.
const QUERY_INTERVAL: Duration = Duration::from_millis(50);

/// The longest time between two readings of the clock.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// The first interval between two rounds of KILL: a process may fork during a round. It grows, as some processes
/// cannot be killed.
const KILL_INTERVAL: Duration = Duration::from_millis(5);
const KILL_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Runs this process as a guardian. `None` if it is not one.
pub(crate) fn guard() -> Option<u8> {
    let channel = inherited_channel()?;
    // The runner learns of a failure from the report, or from the end of the channel.
    let done = serve(&channel).inspect_err(|error| {
        Report::Failed(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error())).send(&channel);
    });
    Some(u8::from(done.is_err()))
}

fn serve(channel: &UnixStream) -> io::Result<()> {
    // Another name than the runner's: `killall -9 leasehold` must leave the guardian to end the command.
    let _ = std::fs::write("/proc/self/comm", PROCESS_NAME);
    let mut lines = BufReader::new(channel.try_clone()?);
    // Without an order the runner was killed.
    let Some(order) = Order::read(&mut lines) else {
        return Ok(());
    };
    outlive_signals()?;
    processes::adopt_orphans()?;
    let (sender, events) = mpsc::channel();
    let command = start(&order)?;
    Report::Running(command).send(channel);
    let line_sender = sender.clone();
    thread::Builder::new().spawn(move || forward_lines(lines, &line_sender))?;
    let reports = channel.try_clone()?;
    thread::Builder::new().spawn(move || reap(command, &reports, &sender))?;
    let mut guardian = Guardian {
        events,
        lease: order.lease,
        socket: (!order.socket.as_os_str().is_empty()).then_some(order.socket),
        until: None,
        reserve: Duration::ZERO,
    };
    if guardian.watch() == End::RunnerEnded {
        guardian.kill_all();
    }
    Ok(())
}

/// Has the signals that a runner passes on to all processes of its command change nothing here, where the
/// runner and its guardian are such processes. They are caught, not ignored: the command would inherit that.
fn outlive_signals() -> io::Result<()> {
    let ignored = signals::ignored();
    for number in [
        SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2, SIGTSTP,
    ] {
        if !signals::contains(ignored, number) {
            signal_hook::flag::register(number, Arc::new(AtomicBool::new(false)))?;
        }
    }
    Ok(())
}

fn start(order: &Order) -> io::Result<Pid> {
    let (program, arguments) = order.command.split_first().ok_or(Errno::INVAL)?;
    let mut command = Command::new(program);
    command.args(arguments).process_group(order.group);
    die_with_parent(&mut command);
    spawn(&mut command)
}

fn forward_lines(lines: impl BufRead, sender: &mpsc::Sender<Event>) {
    for line in lines.lines().map_while(Result::ok) {
        if sender.send(Event::Line(line)).is_err() {
            return;
        }
    }
    let _ = sender.send(Event::RunnerEnded);
}

/// Reaps every process of the command. All orphans become children of this process, so without a child there
/// is no process of the command left.
fn reap(command: Pid, reports: &UnixStream, sender: &mpsc::Sender<Event>) {
    let mut ended = None;
    loop {
        // What has ended together with the command is reaped before that is reported.
        let options = match ended {
            Some(_) => WaitOptions::NOHANG,
            None => WaitOptions::empty(),
        };
        match wait(options) {
            Ok(Some((pid, status))) if pid == command => {
                ended = Some(Report::Ended(ExitStatus::from_raw(status.as_raw())));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                if let Some(report) = ended.take() {
                    report.send(reports);
                }
            }
            Err(_) => {
                Report::Empty.send(reports);
                if let Some(report) = ended {
                    report.send(reports);
                }
                let _ = sender.send(Event::Empty);
                return;
            }
        }
    }
}

enum Event {
    /// A line from the runner.
    Line(String),
    /// The channel has ended.
    RunnerEnded,
    /// No process of the command is left.
    Empty,
}

#[derive(PartialEq, Eq)]
enum End {
    /// The runner has dismissed the guardian, or no process is left.
    Done,
    RunnerEnded,
}

struct Guardian {
    events: mpsc::Receiver<Event>,
    lease: LeaseId,
    socket: Option<PathBuf>,
    /// Until when the command may live.
    until: Option<Instant>,
    /// How long that is before the end of the lease.
    reserve: Duration,
}

impl Guardian {
    /// Waits until there is nothing to guard, or the runner dies or is silent for too long.
    fn watch(&mut self) -> End {
        loop {
            let left = self.left();
            // The timer stands still while the machine sleeps: look at the clock now and then.
            match self.events.recv_timeout(self.interval(left)) {
                Ok(Event::Line(line)) if protocol::is_dismissal(&line) => return End::Done,
                Ok(Event::Line(line)) => self.extend(&line),
                Ok(Event::Empty) => return End::Done,
                Ok(Event::RunnerEnded) | Err(RecvTimeoutError::Disconnected) => {
                    return End::RunnerEnded;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.left() <= self.reserve {
                        self.query_watchdog();
                    }
                    if self.left().is_zero() {
                        return End::RunnerEnded;
                    }
                }
            }
        }
    }

    fn extend(&mut self, line: &str) {
        if let Some((until, reserve)) = protocol::parse_allowance(line) {
            self.until = Some(until);
            self.reserve = reserve;
        }
    }

    fn left(&self) -> Duration {
        self.until
            .map_or(Duration::MAX, |until| BootClock.now().until(until))
    }

    fn interval(&self, left: Duration) -> Duration {
        match &self.socket {
            Some(_) if left <= self.reserve => left.min(QUERY_INTERVAL),
            Some(_) => (left - self.reserve).min(CLOCK_INTERVAL),
            None => left.min(CLOCK_INTERVAL),
        }
    }

    /// Queries the watchdog until when it has renewed the lease of a stopped runner.
    fn query_watchdog(&mut self) {
        if let Some(socket) = &self.socket
            && let Ok(mut node) = Observer::connect(socket)
            && let Ok(Some(kept)) = node.kept_until(self.lease)
        {
            self.until = self.until.max(Some(kept.before(self.reserve)));
        }
    }

    /// Kills every process of the command, until none is left.
    fn kill_all(&self) {
        let mut tree = Tree::of(getpid());
        let mut interval = KILL_INTERVAL;
        loop {
            for denied in tree.signal(Signal::KILL).report {
                let name = std::env::var(environment::NAME).unwrap_or_default();
                note!("leasehold: {name}: the runner was killed or stopped, and {denied}");
            }
            let round = BootClock.now().after(interval);
            while let Ok(event) = self.events.recv_timeout(BootClock.now().until(round)) {
                match event {
                    Event::Empty => return,
                    // The runner was only stopped, and has dismissed this guardian despite the remaining processes.
                    Event::Line(line) if protocol::is_dismissal(&line) => return,
                    Event::Line(_) | Event::RunnerEnded => {}
                }
            }
            interval = (interval * 2).min(KILL_INTERVAL_MAX);
        }
    }
}
