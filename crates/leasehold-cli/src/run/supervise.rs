//! Supervises the command while it runs: its end, the lease, the signals.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, Instant, State, StateKind};
use rustix::process::Signal;
use signal_hook::consts::{SIGCONT, SIGTSTP};

use super::child::Child;
use super::processes::Sent;
use super::protocol::Allowance;
use crate::args::{OnLost, RunArgs};
use crate::lock::guard::AnyGuard;
use crate::lock::jeopardy::describe_loss;
use crate::signals::{self, Signals};
use crate::{duration, exit, output};

/// The time between TERM and KILL, unless the user has set it.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// The same where another client may hold the lock already: enough for a process that ends immediately on TERM.
const KILL_AFTER_OVERLAP: Duration = Duration::from_millis(500);

/// How long the end of the command waits for that of its other processes.
const BACKGROUND_END_TIMEOUT: Duration = Duration::from_millis(100);

/// The first interval between two rounds of KILL. It grows, as some processes cannot be killed.
const KILL_INTERVAL: Duration = Duration::from_millis(10);
const KILL_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The part of the lease that is kept free for KILL to take effect: a tenth.
const RESERVE_DIVISOR: u32 = 10;

/// How often the guardian gets a new deadline: ten times in a ttl, at least every second.
const PULSE_DIVISOR: u32 = 10;
const PULSE_MIN: Duration = Duration::from_millis(10);
const PULSE_MAX: Duration = Duration::from_secs(1);

/// A command that runs under a lock.
pub(crate) struct Supervisor<'a> {
    pub(crate) child: &'a mut Child,
    pub(crate) guard: &'a AnyGuard,
    pub(crate) signals: &'a mut Signals,
    pub(crate) args: &'a RunArgs,
    /// Whether the user was warned that the command runs on without the lock.
    pub(crate) warned: bool,
    /// Whether the command was stopped because of its lock.
    pub(crate) cut_off: bool,
}

impl Supervisor<'_> {
    /// Waits for the end of the command, or stops it. The exit code.
    pub(crate) async fn supervise(&mut self) -> u8 {
        if let Err(code) = self.wait_for(Child::ended).await {
            return code;
        }
        // This process may have been stopped, and learn of both at the same time.
        if let (false, State::Lost(cause)) = (self.ignores_loss(), self.guard.state()) {
            return self.stop(cause).await;
        }
        let Some(status) = self.child.ended().await else {
            return self.without_guardian().await;
        };
        if !self.child.empty {
            if !self.args.wait_all {
                if self.signals.requested_exit().is_some() {
                    // The signal has ended the command, and is about to end the others.
                    let ended = self.child.all_ended();
                    let _ = tokio::time::timeout(BACKGROUND_END_TIMEOUT, ended).await;
                }
                self.report_remaining();
            } else {
                let remaining = self.child.tree.members().len();
                if self.args.lock.verbose {
                    let processes = output::count(remaining, "background process");
                    self.print_message(format_args!("waiting for {processes}"));
                }
                if let Err(code) = self.wait_for(Child::all_ended).await {
                    return code;
                }
            }
        }
        code(status)
    }

    /// Reports the background processes that go on without the lock.
    fn report_remaining(&self) {
        let members = self.child.tree.members();
        // The last ones may have ended meanwhile.
        let Some(first) = members.first() else {
            return;
        };
        let remaining = members.len();
        let processes = output::count(remaining, "background process");
        let do_what = match (self.signals.requested_exit().is_some(), remaining) {
            (true, _) => "had not ended yet when the lock was released",
            (false, 1) => "runs on without the lock",
            (false, _) => "run on without the lock",
        };
        let first = match remaining {
            1 => first.to_string(),
            _ => format!("{first} and others"),
        };
        self.print_message(format_args!(
            "{processes} of the command {do_what}: {first}; add --wait-all if it needs the lock"
        ));
    }

    /// Waits for an end, while signals are passed on. The exit code if the command was stopped before.
    async fn wait_for<T>(&mut self, end: impl AsyncFn(&mut Child) -> T) -> Result<T, u8> {
        let ignore = self.ignores_loss();
        let lease = self.args.lock.lease_length();
        let pulse = (lease / PULSE_DIVISOR).clamp(PULSE_MIN, PULSE_MAX);
        loop {
            self.child.allow(allowance(self.guard, self.args));
            tokio::select! {
                biased;
                cause = stop_cause(self.guard, self.args), if !ignore => return Err(self.stop(cause).await),
                cause = self.guard.lost(), if ignore && !self.warned => {
                    self.warned = true;
                    let cause = describe_loss(cause);
                    self.print_message(format_args!("the lock is lost: {cause}; the command runs on without it"));
                }
                ended = end(self.child) => return Ok(ended),
                signal = self.signals.any() => self.pass_on(signal).await,
                () = tokio::time::sleep(pulse) => self.child.continue_guardian(),
            }
        }
    }

    fn ignores_loss(&self) -> bool {
        self.args.on_lost == OnLost::Ignore
    }

    fn print_message(&self, text: std::fmt::Arguments<'_>) {
        note!("leasehold: {}: {text}", self.guard.concerned());
    }

    /// Reports the processes that did not get a signal.
    fn report(&self, sent: &Sent) {
        for denied in &sent.report {
            self.print_message(format_args!("{denied}"));
        }
    }

    /// Stops every process of the command before the lock can pass on.
    async fn stop(&mut self, cause: Cause) -> u8 {
        self.cut_off = true;
        let now = BootClock.now();
        let left = duration::format(now.until(self.guard.deadline()));
        let reason = match self.guard.state().is_lost() {
            true => format!("the lock is lost: {}", describe_loss(cause)),
            false => format!("its fixed lease (--lease) ends in {left}"),
        };
        self.print_message(format_args!("{reason}; stopping the command"));
        let kill_at = match self.args.on_lost {
            OnLost::Kill => now,
            _ => now
                .after(kill_after(self.args, cause))
                .min(last_moment(self.guard, self.args)),
        };
        self.end_all(kill_at).await;
        self.args.lost_exit_code
    }

    /// Stops the command after the death of its guardian: only the runner is left to find its processes.
    async fn without_guardian(&mut self) -> u8 {
        self.print_message(format_args!(
            "the guardian of the command was killed; stopping the command"
        ));
        self.end_all(BootClock.now()).await;
        exit::FAILED
    }

    /// TERM, and from `kill_at` on KILL, until no process is left that can be stopped.
    async fn end_all(&mut self, kill_at: Instant) {
        if BootClock.now() < kill_at {
            let sent = self.child.tree.signal_once(Signal::TERM);
            self.report(&sent);
            tokio::select! {
                () = self.child.all_ended() => return,
                () = BootClock.sleep_until(kill_at) => {}
            }
        }
        let mut interval = KILL_INTERVAL;
        loop {
            let sent = self.child.tree.signal(Signal::KILL);
            self.report(&sent);
            let ended = tokio::time::timeout(interval, self.child.all_ended()).await;
            if ended.is_ok() {
                return;
            }
            match sent.denied {
                _ if sent.reached > 0 => {}
                // Those of other users may be hidden in /proc. Those that are seen may have just ended.
                0 if interval < KILL_INTERVAL_MAX => {}
                0 => return self.print_message(format_args!(
                    "the command may run on without the lock: some of its processes are not visible"
                )),
                denied => return self.print_message(format_args!(
                    "the command runs on without the lock: {denied} of its processes could not be stopped"
                )),
            }
            interval = (interval * 2).min(KILL_INTERVAL_MAX);
        }
    }

    /// Passes a signal on to the command.
    async fn pass_on(&mut self, signal: signals::Signal) {
        if signal.from_terminal && !self.child.own_group {
            return;
        }
        match signal.number {
            SIGTSTP => {
                self.forward(Signal::STOP);
                // A stopped runner does not renew the lock, so the command is stopped with it.
                let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
                self.resume().await;
            }
            SIGCONT => self.resume().await,
            number => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.forward(signal);
                }
            }
        }
    }

    fn forward(&mut self, signal: Signal) {
        let sent = self.child.forward(signal);
        if !self.args.lock.quiet {
            self.report(&sent);
        }
    }

    /// Continues the command, unless the lock is lost: then the command is about to be ended. A watchdog may have
    /// renewed the lock, so the store is queried first.
    async fn resume(&mut self) {
        for guard in self.guard.all() {
            let mut states = guard.states();
            loop {
                match states.next().await.map(|state| state.kind()) {
                    Some(StateKind::Jeopardy(Cause::Paused)) => {}
                    Some(StateKind::Lost(_)) | None => return,
                    Some(StateKind::Held | StateKind::Jeopardy(_)) => break,
                }
            }
        }
        self.forward(Signal::CONT);
    }
}

/// `None` if the command may go on without the lock.
pub(super) fn allowance(guard: &AnyGuard, args: &RunArgs) -> Option<Allowance> {
    let ignores_loss = args.on_lost == OnLost::Ignore;
    (!ignores_loss).then(|| Allowance {
        until_ns: last_moment(guard, args).as_nanos(),
        reserve: reserve(args),
    })
}

/// The moment before the end of the lease at which the last process must be killed.
fn last_moment(guard: &AnyGuard, args: &RunArgs) -> Instant {
    guard.deadline().before(reserve(args))
}

/// How long before the end of the lease that is.
fn reserve(args: &RunArgs) -> Duration {
    args.lock.lease_length() / RESERVE_DIVISOR
}

/// The time between TERM and KILL.
fn kill_after(args: &RunArgs, cause: Cause) -> Duration {
    args.kill_after.unwrap_or(match cause {
        Cause::TakenOver | Cause::Deleted | Cause::Revoked => KILL_AFTER_OVERLAP,
        _ => KILL_AFTER,
    })
}

/// When the command under a fixed lease is stopped. `None`: the lease is renewed.
pub(super) fn fixed_stop(guard: &AnyGuard, args: &RunArgs) -> Option<Instant> {
    let lease = args.lock.lease?;
    let lead = kill_after(args, Cause::Expired).clamp(lease / RESERVE_DIVISOR, lease / 3);
    Some(guard.deadline().before(lead))
}

/// What a loss of the lock leads to.
pub(super) fn consequence(args: &RunArgs) -> &'static str {
    match args.on_lost {
        OnLost::Term => "the command is stopped",
        OnLost::Kill => "the command is killed",
        OnLost::Ignore => "the lock is lost",
    }
}

/// Waits until the command must be stopped: the lease is lost, or, if it is fixed, about to end.
async fn stop_cause(guard: &AnyGuard, args: &RunArgs) -> Cause {
    let Some(stop) = fixed_stop(guard, args) else {
        return guard.lost().await;
    };
    tokio::select! {
        cause = guard.lost() => cause,
        () = BootClock.sleep_until(stop) => Cause::Expired,
    }
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(exit::FAILED),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => exit::FAILED,
    }
}
