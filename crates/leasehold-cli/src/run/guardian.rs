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

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
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

use super::child::{die_with_parent, inherited_channel};
use super::environment;
use super::processes::{self, Tree};
use super::signals;

/// The hidden subcommand that starts a guardian.
pub(crate) const COMMAND: &str = "__guard";

/// The name of its process, within the limit of 15 bytes.
const PROCESS_NAME: &str = "guardian";

/// Its first argument, as `pidof` and `ps` show it.
pub(crate) const FIRST_ARGUMENT: &str = "leasehold-guardian";

/// The line that dismisses the guardian.
pub(crate) const DISMISSED: &str = ".\n";

/// The interval between two queries to the watchdog.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// The longest time between two readings of the clock.
const LOOK: Duration = Duration::from_secs(1);

/// The first interval between two rounds of KILL: a process may fork during a round. It grows, as some processes
/// cannot be killed.
const KILL_PAUSE: Duration = Duration::from_millis(5);
const KILL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The order to a guardian.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) lease: LeaseId,
    /// The socket of the watchdog on this machine. Empty without one.
    pub(crate) socket: PathBuf,
    /// The process group of the command. 0: one of its own.
    pub(crate) group: i32,
    pub(crate) command: Vec<OsString>,
}

impl Order {
    /// Texts that end with a NUL, as in /proc: no argument of a process contains one.
    ///
    /// The command is not in the guardian's arguments, where `pkill -f` would match it instead of the command.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let group = self.group.to_string();
        let lease = self.lease.to_string();
        let count = self.command.len().to_string();
        let socket = self.socket.as_os_str();
        let texts = [
            lease.as_bytes(),
            socket.as_bytes(),
            group.as_bytes(),
            count.as_bytes(),
        ];
        for text in texts
            .into_iter()
            .chain(self.command.iter().map(|text| text.as_bytes()))
        {
            bytes.extend_from_slice(text);
            bytes.push(0);
        }
        bytes
    }

    fn read(from: &mut impl BufRead) -> Option<Self> {
        let mut text = || {
            let mut bytes = Vec::new();
            from.read_until(0, &mut bytes).ok()?;
            // Without the NUL it was cut off.
            (bytes.pop()? == 0).then(|| OsString::from_vec(bytes))
        };
        let lease = text()?.to_str()?.parse().ok()?;
        let socket = text()?.into();
        let group = text()?.to_str()?.parse().ok()?;
        let count: usize = text()?.to_str()?.parse().ok()?;
        let command = (0..count).map(|_| text()).collect::<Option<_>>()?;
        Some(Self {
            lease,
            socket,
            group,
            command,
        })
    }
}

/// The line that allows the command to live until an instant.
pub(crate) fn allowance(until: Instant, reserve: Duration) -> String {
    format!("{} {}\n", until.as_nanos(), reserve.as_nanos())
}

/// A line from the guardian to the runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command runs.
    Running(Pid),
    /// It could not be started, by the number of the error.
    Failed(i32),
    /// No process of the command is left. Comes before `Ended` if the command was the last.
    Empty,
    /// The command itself has ended.
    Ended(ExitStatus),
}

impl Report {
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (word, number) = line.split_once(' ').unwrap_or((line, "0"));
        let number: i32 = number.parse().ok()?;
        match word {
            "running" => Pid::from_raw(number).map(Self::Running),
            "failed" => Some(Self::Failed(number)),
            "empty" => Some(Self::Empty),
            "ended" => Some(Self::Ended(ExitStatus::from_raw(number))),
            _ => None,
        }
    }

    fn send(self, mut channel: &UnixStream) {
        let line = match self {
            Self::Running(pid) => format!("running {pid}\n"),
            Self::Failed(errno) => format!("failed {errno}\n"),
            Self::Empty => "empty\n".to_owned(),
            Self::Ended(status) => format!("ended {}\n", status.into_raw()),
        };
        // The death of the runner is noticed by the end of the channel.
        let _ = channel.write_all(line.as_bytes());
    }
}

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
    let mut words = BufReader::new(channel.try_clone()?);
    // Without an order the runner was killed.
    let Some(order) = Order::read(&mut words) else {
        return Ok(());
    };
    outlive_signals()?;
    processes::adopt_orphans()?;
    let (sender, events) = mpsc::channel();
    let command = start(&order)?;
    Report::Running(command).send(channel);
    let word_sender = sender.clone();
    thread::Builder::new().spawn(move || forward_words(words, &word_sender))?;
    let reports = channel.try_clone()?;
    thread::Builder::new().spawn(move || reap(command, &reports, &sender))?;
    let mut guardian = Guardian {
        events,
        lease: order.lease,
        socket: (!order.socket.as_os_str().is_empty()).then_some(order.socket),
        until: None,
        reserve: Duration::ZERO,
    };
    if guardian.watch() == End::RunnerGone {
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
    // Dropped, a `std::process::Child` is neither killed nor reaped.
    let pid = command.spawn()?.id();
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn forward_words(words: impl BufRead, sender: &mpsc::Sender<Event>) {
    for word in words.lines().map_while(Result::ok) {
        if sender.send(Event::Word(word)).is_err() {
            return;
        }
    }
    let _ = sender.send(Event::RunnerGone);
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
    Word(String),
    /// The channel has ended.
    RunnerGone,
    /// No process of the command is left.
    Empty,
}

#[derive(PartialEq, Eq)]
enum End {
    /// The runner has dismissed the guardian, or no process is left.
    Done,
    RunnerGone,
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
            match self.events.recv_timeout(self.pause(left)) {
                Ok(Event::Word(word)) if is_dismissal(&word) => return End::Done,
                Ok(Event::Word(word)) => self.take_in(&word),
                Ok(Event::Empty) => return End::Done,
                Ok(Event::RunnerGone) | Err(RecvTimeoutError::Disconnected) => {
                    return End::RunnerGone;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if self.left() <= self.reserve {
                        self.ask();
                    }
                    if self.left().is_zero() {
                        return End::RunnerGone;
                    }
                }
            }
        }
    }

    fn take_in(&mut self, word: &str) {
        let mut numbers = word.split(' ').map(str::parse::<u64>);
        if let (Some(Ok(until)), Some(Ok(reserve))) = (numbers.next(), numbers.next()) {
            self.until = Some(Instant::from_nanos(until));
            self.reserve = Duration::from_nanos(reserve);
        }
    }

    fn left(&self) -> Duration {
        self.until
            .map_or(Duration::MAX, |until| BootClock.now().until(until))
    }

    fn pause(&self, left: Duration) -> Duration {
        match &self.socket {
            Some(_) if left <= self.reserve => left.min(ASK_AGAIN),
            Some(_) => (left - self.reserve).min(LOOK),
            None => left.min(LOOK),
        }
    }

    /// Queries the watchdog until when it has renewed the lease of a stopped runner.
    fn ask(&mut self) {
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
        let mut pause = KILL_PAUSE;
        loop {
            for denied in tree.signal(Signal::KILL).report {
                let name = std::env::var(environment::NAME).unwrap_or_default();
                note!("leasehold: {name}: the runner was killed or stopped, and {denied}");
            }
            let round = BootClock.now().after(pause);
            while let Ok(event) = self.events.recv_timeout(BootClock.now().until(round)) {
                match event {
                    Event::Empty => return,
                    // The runner was only stopped, and has dismissed this guardian despite the remaining processes.
                    Event::Word(word) if is_dismissal(&word) => return,
                    Event::Word(_) | Event::RunnerGone => {}
                }
            }
            pause = (pause * 2).min(KILL_PAUSE_MAX);
        }
    }
}

fn is_dismissal(word: &str) -> bool {
    word == DISMISSED.trim_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let order = Order {
            lease: "0123456789abcdef0123456789abcdef:7".parse().unwrap(),
            socket: PathBuf::from("/a\nb"),
            group: 12,
            command: vec![
                "".into(),
                OsString::from_vec(vec![0xff, b'\n']),
                "c d".into(),
            ],
        };
        let bytes = order.encode();
        let read = Order::read(&mut bytes.as_slice()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{order:?}"));
        for length in 0..bytes.len() {
            assert!(Order::read(&mut &bytes[..length]).is_none(), "{length}");
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        for report in [
            Report::Running(getpid()),
            Report::Failed(2),
            Report::Empty,
            Report::Ended(ExitStatus::from_raw(0x0900)),
        ] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            report.send(&ours);
            let mut line = String::new();
            BufReader::new(theirs).read_line(&mut line).unwrap();
            assert_eq!(Report::parse(line.trim_end()), Some(report));
        }
        assert_eq!(Report::parse("nonsense 1"), None);
    }
}
