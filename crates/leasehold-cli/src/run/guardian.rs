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

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use leasehold::__private::observer::Observer;
use leasehold::clock::{BootClock, Clock};
use leasehold::{Instant, LeaseId};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, wait};
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};

use super::processes::{self, Tree};
use super::protocol::{Allowance, GuardianReport, Order, ToGuardian, decode, encode};
use super::spawn::{die_with_parent, inherited_channel, spawn};
use crate::{signals, stderr, variables};

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
        let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
        send(&channel, &GuardianReport::Failed(errno));
    });
    Some(u8::from(done.is_err()))
}

fn serve(channel: &UnixStream) -> io::Result<()> {
    // Another name than the runner's: `killall -9 leasehold` must leave the guardian to end the command.
    let _ = std::fs::write("/proc/self/comm", PROCESS_NAME);
    let lines = BufReader::new(channel.try_clone()?).lines();
    let mut messages = lines.map_while(Result::ok).filter_map(|it| decode(&it));
    // Without an order the runner was killed.
    let Some(ToGuardian::Start(order)) = messages.next() else {
        return Ok(());
    };
    let leases = order.leases.iter().map(|lease| lease.parse::<LeaseId>());
    let leases: Vec<_> = leases.collect::<Result<_, _>>().map_err(io::Error::other)?;
    outlive_signals()?;
    processes::adopt_orphans()?;
    let (sender, events) = mpsc::channel();
    let message_sender = sender.clone();
    // Before the start of the command, which may take longer than its deadline.
    thread::Builder::new().spawn(move || forward(messages, &message_sender))?;
    let mut guardian = Guardian {
        events,
        leases,
        socket: order.socket.as_ref().map(PathBuf::from),
        until: None,
        reserve: Duration::ZERO,
    };
    if let Some(allowance) = order.allowance {
        guardian.allow(allowance);
    }
    if !guardian.await_start() {
        return Ok(());
    }
    let command = start(&order)?;
    send(channel, &GuardianReport::Running(command.as_raw_pid()));
    let reports = channel.try_clone()?;
    thread::Builder::new().spawn(move || reap(command, &reports, &sender))?;
    if guardian.watch() {
        // A stalled reader of stderr must not keep it from the next round.
        stderr::start_thread();
        guardian.kill_all();
        stderr::flush();
    }
    Ok(())
}

/// Has the signals that a runner passes on to all processes of its command change nothing here, where the
/// runner and its guardian are such processes. They are caught, not ignored: the command would inherit that.
fn outlive_signals() -> io::Result<()> {
    let passed_on = vec![
        SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM, SIGUSR1, SIGUSR2, SIGTSTP,
    ];
    for number in signals::unless_ignored(passed_on) {
        signal_hook::flag::register(number, Arc::new(AtomicBool::new(false)))?;
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

/// Sends a report. The death of the runner is noticed by the end of the channel.
fn send(mut channel: &UnixStream, report: &GuardianReport) {
    let _ = encode(report).and_then(|line| channel.write_all(&line));
}

fn forward(messages: impl Iterator<Item = ToGuardian>, sender: &mpsc::Sender<GuardianEvent>) {
    for message in messages {
        if sender.send(GuardianEvent::Message(message)).is_err() {
            return;
        }
    }
    let _ = sender.send(GuardianEvent::RunnerEnded);
}

/// Reaps every process of the command. All orphans become children of this process, so without a child there
/// is no process of the command left.
fn reap(command: Pid, reports: &UnixStream, sender: &mpsc::Sender<GuardianEvent>) {
    let mut ended = None;
    loop {
        // What has ended together with the command is reaped before that is reported.
        let options = match ended {
            Some(_) => WaitOptions::NOHANG,
            None => WaitOptions::empty(),
        };
        match wait(options) {
            Ok(Some((pid, status))) if pid == command => {
                ended = Some(GuardianReport::Ended(status.as_raw()));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => {
                if let Some(report) = ended.take() {
                    send(reports, &report);
                }
            }
            Err(_) => {
                send(reports, &GuardianReport::Empty);
                if let Some(report) = ended {
                    send(reports, &report);
                }
                let _ = sender.send(GuardianEvent::Empty);
                return;
            }
        }
    }
}

enum GuardianEvent {
    /// A message from the runner.
    Message(ToGuardian),
    /// The channel has ended.
    RunnerEnded,
    /// No process of the command is left.
    Empty,
}

struct Guardian {
    events: mpsc::Receiver<GuardianEvent>,
    leases: Vec<LeaseId>,
    socket: Option<PathBuf>,
    /// Until when the command may live.
    until: Option<Instant>,
    /// How long that is before the end of the lease.
    reserve: Duration,
}

impl Guardian {
    fn allow(&mut self, allowance: Allowance) {
        self.until = Some(Instant::from_nanos(allowance.until_ns));
        self.reserve = allowance.reserve;
    }

    /// Waits while the deadline of the command is over: this process or the runner was stopped, and the lock has perhaps
    /// passed on. `false`: the command is not to be started.
    fn await_start(&mut self) -> bool {
        while self.time_left().is_zero() {
            match self.events.recv() {
                Ok(GuardianEvent::Message(ToGuardian::Allow(new))) => self.allow(new),
                _ => return false,
            }
        }
        true
    }

    /// Waits until there is nothing to guard, or the runner dies or is silent for too long: `true`.
    fn watch(&mut self) -> bool {
        loop {
            let time_left = self.time_left();
            // The timer stands still while the machine sleeps: look at the clock now and then.
            match self.events.recv_timeout(self.interval(time_left)) {
                Ok(GuardianEvent::Message(ToGuardian::Dismiss) | GuardianEvent::Empty) => {
                    return false;
                }
                Ok(GuardianEvent::Message(ToGuardian::Allow(new))) => self.allow(new),
                Ok(GuardianEvent::Message(ToGuardian::Start(_))) => {}
                Ok(GuardianEvent::RunnerEnded) | Err(RecvTimeoutError::Disconnected) => {
                    return true;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.time_left() <= self.reserve {
                        self.query_watchdog();
                    }
                    if self.time_left().is_zero() {
                        return true;
                    }
                }
            }
        }
    }

    fn time_left(&self) -> Duration {
        self.until
            .map_or(Duration::MAX, |until| BootClock.now().until(until))
    }

    fn interval(&self, time_left: Duration) -> Duration {
        match &self.socket {
            Some(_) if time_left <= self.reserve => time_left.min(QUERY_INTERVAL),
            Some(_) => (time_left - self.reserve).min(CLOCK_INTERVAL),
            None => time_left.min(CLOCK_INTERVAL),
        }
    }

    /// Queries the watchdog until when it has renewed all leases of a stopped runner. A node that is stopped as well sends no
    /// reply, to this client or about a lease: waiting for them must leave time to kill the command.
    fn query_watchdog(&mut self) {
        let replies = u32::try_from(self.leases.len() + 1).unwrap_or(u32::MAX);
        let timeout = self.time_left().max(self.reserve / 2) / replies;
        if let Some(socket) = &self.socket
            && let Ok(mut node) = Observer::with_timeout(socket, timeout)
        {
            let kept = self.leases.iter();
            let kept: Option<Vec<_>> = kept.map(|lease| node.kept_until(*lease).ok()?).collect();
            // A lease that it has not renewed ends the command.
            let Some(kept) = kept.and_then(|kept| kept.into_iter().min()) else {
                return;
            };
            self.until = self.until.max(Some(kept.before(self.reserve)));
        }
    }

    /// Kills every process of the command, until none is left.
    fn kill_all(&self) {
        let mut tree = Tree::of(getpid());
        let mut interval = KILL_INTERVAL;
        loop {
            for denied in tree.signal(Signal::KILL).report {
                let name = std::env::var(variables::NAME).unwrap_or_default();
                note!("leasehold: {name}: the runner was killed or stopped, and {denied}");
            }
            let round = BootClock.now().after(interval);
            while let Ok(event) = self.events.recv_timeout(BootClock.now().until(round)) {
                match event {
                    // The runner was only stopped, and has dismissed this guardian despite the remaining processes.
                    GuardianEvent::Empty | GuardianEvent::Message(ToGuardian::Dismiss) => return,
                    GuardianEvent::Message(_) | GuardianEvent::RunnerEnded => {}
                }
            }
            interval = (interval * 2).min(KILL_INTERVAL_MAX);
        }
    }
}
