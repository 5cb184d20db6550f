//! The signals that reach this process.

use std::fs::File;
use std::ops::RangeInclusive;

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{
    SIGABRT, SIGALRM, SIGCONT, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1,
    SIGUSR2, SIGVTALRM, SIGWINCH, SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use tokio::sync::mpsc;

use crate::exit::Failure;

/// The signals that request an exit, which ends the wait for a lock.
const EXIT_SIGNALS: [i32; 5] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGALRM];

/// The signals that a terminal sends to its whole foreground. The kernel sends others to one process: HUP to the leader of
/// a session, ALRM to the process whose timer has run out.
const OF_TERMINAL: [i32; 4] = [SIGINT, SIGQUIT, SIGTSTP, SIGWINCH];

/// The other signals that end a process by default, except those of faults.
const OTHER_FATAL: [i32; 10] = [
    SIGUSR1, SIGUSR2, SIGABRT, SIGVTALRM, SIGPROF, SIGIO, SIGXCPU, SIGXFSZ, SIGPWR, SIGSTKFLT,
];
const SIGPWR: i32 = rustix::process::Signal::POWER.as_raw();
const SIGSTKFLT: i32 = rustix::process::Signal::STKFLT.as_raw();

/// The real-time signals that no C library keeps for itself. They also end a process by default.
const REAL_TIME: RangeInclusive<i32> = 35..=64;

/// A signal, and whether the terminal sent it.
///
/// What the terminal sends also reaches the command if it is in our process group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signal {
    pub(crate) number: i32,
    pub(crate) from_terminal: bool,
}

pub(crate) struct Signals {
    received: mpsc::UnboundedReceiver<Signal>,
    /// The last signal that has requested an exit, not only of the command.
    requested_exit: Option<i32>,
}

impl Signals {
    /// Receives the signals that request an exit, and those that are passed on to a command.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let mut numbers = EXIT_SIGNALS.to_vec();
        numbers.extend([SIGUSR1, SIGUSR2, SIGWINCH]);
        if !at_terminal() {
            // At a terminal the shell's job control stops and continues us and the command alike.
            numbers.extend([SIGTSTP, SIGCONT]);
        }
        Self::receive(unless_ignored(numbers))
    }

    /// Receives the signals that request an exit, and all others that would end this process, which have no effect.
    pub(crate) fn listen_for_hold() -> Result<Self, Failure> {
        let others = OTHER_FATAL.into_iter().chain(REAL_TIME);
        let numbers = EXIT_SIGNALS.into_iter().chain(others).collect();
        Self::receive(unless_ignored(numbers))
    }

    /// Receives these signals.
    pub(crate) fn receive(numbers: Vec<i32>) -> Result<Self, Failure> {
        let failed = |error| Failure::own("signals cannot be received", error);
        let mut signals = SignalsInfo::<WithOrigin>::new(numbers).map_err(failed)?;
        let (sender, received) = mpsc::unbounded_channel();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for origin in signals.forever() {
                    let signal = Signal {
                        number: origin.signal,
                        from_terminal: origin.process.is_none()
                            && OF_TERMINAL.contains(&origin.signal),
                    };
                    if sender.send(signal).is_err() {
                        return;
                    }
                }
            })
            .map_err(failed)?;
        Ok(Self {
            received,
            requested_exit: None,
        })
    }

    /// Waits for a signal that requests an exit, and returns its number.
    ///
    /// Dropped, it has lost no such signal.
    pub(crate) async fn next(&mut self) -> i32 {
        loop {
            let number = self.any().await.number;
            if EXIT_SIGNALS.contains(&number) {
                self.requested_exit = Some(number);
                return number;
            }
        }
    }

    /// The signal that has requested an exit, not only of the command.
    pub(crate) const fn requested_exit(&self) -> Option<i32> {
        self.requested_exit
    }

    /// A signal that requests an exit and has arrived already.
    pub(crate) fn pending(&mut self) -> Option<i32> {
        while let Ok(Signal { number, .. }) = self.received.try_recv() {
            if EXIT_SIGNALS.contains(&number) {
                self.requested_exit = Some(number);
                return Some(number);
            }
        }
        None
    }

    /// Waits for any signal.
    pub(crate) async fn any(&mut self) -> Signal {
        match self.received.recv().await {
            Some(signal) => {
                // A command may reload its settings on the others.
                if [SIGINT, SIGQUIT, SIGTERM].contains(&signal.number) {
                    self.requested_exit = Some(signal.number);
                }
                signal
            }
            // The thread never ends before we do.
            None => std::future::pending().await,
        }
    }
}

/// The signals without those that this process was started to ignore, by nohup for example: the command also ignores them.
pub(crate) fn unless_ignored(mut numbers: Vec<i32>) -> Vec<i32> {
    // A bit for each signal. Where /proc is not available, none counts as ignored.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let ignored = mask.unwrap_or_default();
    numbers.retain(|number| ignored & (1 << (number - 1)) == 0);
    numbers
}

/// The name of a signal that requests an exit, such as `TERM`.
pub(crate) fn name(number: i32) -> &'static str {
    let name = signal_hook::low_level::signal_name(number).unwrap_or("the signal");
    name.trim_start_matches("SIG")
}

/// Whether this process group is the foreground of a terminal, whose signals then also reach the command.
pub(crate) fn at_terminal() -> bool {
    File::open("/dev/tty")
        .and_then(|terminal| Ok(tcgetpgrp(terminal)?))
        .is_ok_and(|foreground| foreground == getpgrp())
}
