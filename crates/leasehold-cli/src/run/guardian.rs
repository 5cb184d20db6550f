//! A small process that ends the command when the runner cannot.
//!
//! The parent-death signal reaches the command's first process only; a shell's children would work
//! on without the lock. And a runner that is stopped stops nobody. So the guardian reads from a pipe
//! whose other end only the runner has: the lease, then over and over the instant until which the
//! command may live, then a last word. If the pipe ends without that word, the runner was killed; if
//! the instant comes, the runner was stopped. In both cases every process that carries the lease in
//! its environment is killed.
//!
//! Unless a watchdog keeps the lease of a runner that is stopped: it is asked until when, before the
//! instant comes.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::watchdog::{Observer, Watchdog};
use leasehold::{Instant, LeaseId};
use rustix::process::Signal;

use super::processes::Family;

/// The hidden command that starts it.
pub(crate) const COMMAND: &str = "__guard";

/// What the runner says when all is well.
const DISMISSED: &str = ".";

/// What the runner says before the socket of a watchdog.
const WATCHED: &str = "watchdog ";

/// The pause between two questions to a watchdog.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// How often it looks at the clock at least.
const LOOK: Duration = Duration::from_secs(1);

/// How long it keeps looking for processes to kill.
const PATIENCE: Duration = Duration::from_secs(10);

/// The runner's end of the pipe.
pub(crate) struct Guardian {
    process: Child,
    pipe: ChildStdin,
    told: Option<Instant>,
}

impl Guardian {
    /// Starts one. `None` if that is not possible: the parent-death signal remains.
    pub(crate) fn start(lease: LeaseId, watchdog: Option<&Watchdog>) -> Option<Self> {
        let started = std::env::current_exe().and_then(|program| {
            let mut process = Command::new(program)
                .arg(COMMAND)
                .env_clear()
                .current_dir("/")
                // Out of the reach of the terminal's signals.
                .process_group(0)
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            let mut pipe = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
            writeln!(pipe, "{lease}")?;
            let socket = watchdog.and_then(Watchdog::socket).and_then(Path::to_str);
            if let Some(socket) = socket.filter(|socket| !socket.contains('\n')) {
                writeln!(pipe, "{WATCHED}{socket}")?;
            }
            Ok(Self {
                process,
                pipe,
                told: None,
            })
        });
        started
            .inspect_err(|error| tracing::warn!(%error, "no guardian for the command"))
            .ok()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Tells it until when the command may live if nothing more is heard of us, and how long that is before
    /// the end of the lease.
    pub(crate) fn allow(&mut self, until: Instant, reserve: Duration) {
        if self.told != Some(until) {
            self.told = Some(until);
            // If it is gone, the parent-death signal remains.
            let _ = writeln!(self.pipe, "{} {}", until.as_nanos(), reserve.as_nanos());
        }
    }

    /// Sends it home.
    pub(crate) fn dismiss(mut self) {
        // If it is gone already, there is nobody to tell.
        let _ = writeln!(self.pipe, "{DISMISSED}");
        drop(self.pipe);
        let _ = self.process.wait();
    }
}

/// The guardian's own life.
pub(crate) fn guard() -> u8 {
    let (sender, words) = mpsc::channel();
    std::thread::spawn(move || {
        for word in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(word).is_err() {
                return;
            }
        }
    });
    let Ok(lease) = words.recv() else { return 0 };
    let mut watched = Watched {
        lease: lease.parse().ok(),
        ..Watched::default()
    };
    if lease.is_empty() || watched.listen(&words) == End::Dismissed {
        return 0;
    }
    let family = Family {
        child: None,
        own_group: false,
        lease,
    };
    // A process may start another while we look: until a look finds none.
    let begun = BootClock.now();
    while family.signal_all(Signal::KILL) > 0 && BootClock.now().since(begun) < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    0
}

#[derive(PartialEq, Eq)]
enum End {
    Dismissed,
    RunnerGone,
}

/// What is known of the runner's lease.
#[derive(Default)]
struct Watched {
    lease: Option<LeaseId>,
    socket: Option<PathBuf>,
    /// Until when the command may live.
    until: Option<Instant>,
    /// How long that is before the end of the lease.
    reserve: Duration,
}

impl Watched {
    /// Listens to the runner until it says its last word, dies, or is silent for too long.
    fn listen(&mut self, words: &mpsc::Receiver<String>) -> End {
        loop {
            let left = self.left();
            // The timer stands still while the machine sleeps: look at the clock now and then.
            match words.recv_timeout(self.pause(left)) {
                Ok(word) if word == DISMISSED => return End::Dismissed,
                Ok(word) => self.hear(&word),
                Err(RecvTimeoutError::Disconnected) => return End::RunnerGone,
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

    fn hear(&mut self, word: &str) {
        if let Some(socket) = word.strip_prefix(WATCHED) {
            self.socket = Some(PathBuf::from(socket));
            return;
        }
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

    /// Asks the watchdog until when it has kept the lease of a runner that is stopped.
    fn ask(&mut self) {
        if let (Some(socket), Some(lease)) = (&self.socket, self.lease)
            && let Ok(mut node) = Observer::connect(socket)
            && let Ok(Some(kept)) = node.kept_until(lease)
        {
            self.until = self.until.max(Some(kept.before(self.reserve)));
        }
    }
}
