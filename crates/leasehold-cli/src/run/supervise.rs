//! Watches over the command while it runs: its end, the lease, the signals.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, Guard, Instant, State, StateKind};
use rustix::process::Signal;
use signal_hook::consts::{SIGCONT, SIGTSTP};

use super::child::Child;
use super::processes::Family;
use super::signals::{self, Signals};
use crate::args::{OnLost, RunArgs};
use crate::exit::{self, Failure};

/// How often to look whether the processes that were told to end have done so. The end of the
/// command itself is seen at once.
const LOOK: Duration = Duration::from_millis(10);

/// The part of the lease that is kept free for KILL to take effect: a tenth.
const RESERVE_DIVISOR: u32 = 10;

/// How often the guardian is told that we are there: ten times in a ttl, at least every second.
const PULSE_DIVISOR: u32 = 10;
const PULSE_MAX: Duration = Duration::from_secs(1);

pub(crate) async fn supervise(
    child: &mut Child,
    guard: &Guard,
    signals: &mut Signals,
    args: &RunArgs,
) -> Result<u8, Failure> {
    let ignore = args.on_lost == OnLost::Ignore;
    let mut warned = false;
    let pulse = (args.lease.unwrap_or(args.ttl) / PULSE_DIVISOR).clamp(LOOK, PULSE_MAX);
    let status = loop {
        if !ignore {
            child.allow(last_moment(guard, args), reserve(args));
        }
        tokio::select! {
            biased;
            cause = over(guard, args), if !ignore => {
                return Ok(stop(child, guard, cause, args).await);
            }
            cause = guard.lost(), if ignore && !warned => {
                warned = true;
                say(guard, &format!("the lock is lost: {cause}; the command runs on without it"));
            }
            status = child.wait() => {
                break status.map_err(|error| Failure::own("the command cannot be waited for", error))?;
            }
            signal = signals.any() => pass_on(child, guard, signal).await,
            () = tokio::time::sleep(pulse) => {}
        }
    };
    if !ignore {
        // We may have been stopped ourselves, and learn of both at the same time.
        if let State::Lost(cause) = guard.state() {
            return Ok(stop(child, guard, cause, args).await);
        }
    }
    let stopped = leftovers(child, guard, args).await;
    child.dismiss_guardian();
    Ok(stopped.unwrap_or_else(|| code(status)))
}

fn say(guard: &Guard, text: &str) {
    note!("leasehold: {}: {text}", guard.name());
}

/// The moment before the end of the lease at which the last process must be killed.
fn last_moment(guard: &Guard, args: &RunArgs) -> Instant {
    guard.deadline().before(reserve(args))
}

/// How long before the end of the lease that is.
fn reserve(args: &RunArgs) -> Duration {
    args.lease.unwrap_or(args.ttl) / RESERVE_DIVISOR
}

/// Waits until the command must be stopped: the lease is lost, or, if it is fixed, about to end.
async fn over(guard: &Guard, args: &RunArgs) -> Cause {
    let Some(lease) = args.lease else {
        return guard.lost().await;
    };
    let lead = args.kill_after.clamp(lease / RESERVE_DIVISOR, lease / 3);
    tokio::select! {
        cause = guard.lost() => cause,
        () = BootClock.sleep_until(guard.deadline().before(lead)) => Cause::Expired,
    }
}

/// Stops every process of the command before the lock can pass on.
async fn stop(child: &mut Child, guard: &Guard, cause: Cause, args: &RunArgs) -> u8 {
    say(
        guard,
        &format!("the lock is lost: {cause}; stopping the command"),
    );
    let now = BootClock.now();
    let kill_at = match args.on_lost {
        OnLost::Kill => now,
        _ => now.after(args.kill_after).min(last_moment(guard, args)),
    };
    end_all(child, kill_at).await;
    child.dismiss_guardian();
    args.lost_exit_code
}

/// TERM, and from `kill_at` on KILL, until no process is left.
async fn end_all(child: &mut Child, kill_at: Instant) {
    let family = child.family().clone();
    if BootClock.now() < kill_at {
        family.signal_all(Signal::TERM);
        // One that was stopped must run to see it.
        family.signal_all(Signal::CONT);
    }
    let mut ended = false;
    loop {
        if ended {
            tokio::time::sleep(LOOK).await;
        } else {
            ended = tokio::time::timeout(LOOK, child.wait()).await.is_ok();
        }
        if ended && family.members().is_empty() {
            return;
        }
        if BootClock.now() >= kill_at {
            family.signal_all(Signal::KILL);
        }
    }
}

/// Passes a signal on to the command.
async fn pass_on(child: &Child, guard: &Guard, signal: signals::Signal) {
    let family = child.family();
    if signal.from_terminal && !family.own_group {
        return;
    }
    match signal.number {
        SIGTSTP => {
            family.forward(Signal::STOP);
            // A lock whose runner is stopped is not renewed, so the command stops with it.
            let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
            resume(family, guard).await;
        }
        SIGCONT => resume(family, guard).await,
        number => {
            if let Some(signal) = Signal::from_named_raw(number) {
                family.forward(signal);
            }
        }
    }
}

/// Lets the command go on, unless its lock is gone: then it is about to be stopped for good. Where a
/// watchdog may have kept it, only the store knows, and is asked first.
async fn resume(family: &Family, guard: &Guard) {
    let mut states = guard.states();
    while let Some(state) = states.next().await {
        match state.kind() {
            StateKind::Jeopardy(Cause::Paused) => {}
            StateKind::Lost(_) => return,
            StateKind::Held | StateKind::Jeopardy(_) => return family.forward(Signal::CONT),
        }
    }
}

/// Background processes that the command has left behind. The exit code if they were stopped.
async fn leftovers(child: &mut Child, guard: &Guard, args: &RunArgs) -> Option<u8> {
    let family = child.family().clone();
    let left = family.members().len();
    if left == 0 {
        return None;
    }
    if !args.wait_all {
        say(
            guard,
            &format!("{left} background processes of the command run on without the lock"),
        );
        return None;
    }
    if args.verbose {
        say(guard, &format!("waiting for {left} background processes"));
    }
    while !family.members().is_empty() {
        if args.on_lost != OnLost::Ignore {
            child.allow(last_moment(guard, args), reserve(args));
        }
        tokio::time::sleep(LOOK).await;
        if let (State::Lost(cause), true) = (guard.state(), args.on_lost != OnLost::Ignore) {
            return Some(stop(child, guard, cause, args).await);
        }
    }
    None
}

fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(exit::FAILED),
        (None, Some(signal)) => exit::by_signal(signal),
        (None, None) => exit::FAILED,
    }
}
