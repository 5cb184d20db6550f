//! `leasehold run`: the command under the lock.

mod child;
mod elect;
mod environment;
mod guardian;
mod processes;
mod protocol;
mod spawn;
mod start_error;
mod supervise;

use std::time::{Duration, Instant};

use leasehold::watchdog::Watchdog;
use leasehold::{Client, Completion, ErrorKind, Run};
use rustix::process::Pid;

use self::child::Child;
use self::supervise::Supervisor;
use crate::args::{OnLost, RunArgs, StoreArgs};
use crate::exit::{self, Failure};
use crate::lock::guard::{AnyGuard, first};
use crate::lock::plan::Plan;
use crate::lock::program::Program;
use crate::lock::watchdog::WatchdogReport;
use crate::lock::{Outcome, Request, jeopardy};
use crate::signals::Signals;
use crate::{duration, output};

pub(crate) use self::elect::elect;
pub(crate) use self::guardian::guard;

pub(crate) async fn run(args: &RunArgs, plan: &Plan<'_>, store: &StoreArgs) -> Result<u8, Failure> {
    run_until(args, plan, store, &mut Signals::listen()?).await
}

/// The same while signals are also received elsewhere.
async fn run_until(
    args: &RunArgs,
    plan: &Plan<'_>,
    store: &StoreArgs,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let watchdog = args.watchdog.settings()?;
    let program = Program::of(&args.command);
    let request = Request {
        name: &args.name,
        args: &args.lock,
        plan,
        store,
        watchdog: watchdog.as_ref(),
        program: &program,
        refusal: refusal(args, plan),
    };
    let interruption = async || signals.next().await;
    let acquired = request.acquire(interruption).await;
    let (client, guard) = match acquired.map_err(not_run)? {
        Outcome::Acquired(client, guard) => (client, guard),
        Outcome::Completed(run) => {
            return Ok(plan.print_completed(&args.lock, request.program, store, &run));
        }
        Outcome::Refused => return Ok(refusal_code(args)),
        Outcome::Interrupted(signal) => return Ok(exit::by_signal(signal)),
    };
    // There was no command yet that the terminal could have sent the signal to.
    if let Some(signal) = signals.pending() {
        guard.waive_min_hold();
        let _ = release(guard, args).await;
        return Ok(exit::by_signal(signal));
    }
    let last = guard.last_run().cloned();
    let begun = Instant::now();
    let mut report = WatchdogReport::new(&client, &args.watchdog);
    let nodes = watchdog.as_ref();
    let command = run_command(args, plan, store, &client, &guard, signals, nodes);
    let outcome = report.during(command).await;
    plan.ended();
    let held = begun.elapsed();
    // If the command was not started, or cut off: under a fixed lease that is before the lease reads lost.
    let waived = outcome.as_ref().map_or(true, |(_, cut_off)| *cut_off);
    if waived {
        guard.waive_min_hold();
    }
    let outcome = outcome.map(|(code, _)| code);
    let (completed, to_the_end) = end(guard, matches!(outcome, Ok(0)), args).await;
    if watchdog.is_some() {
        report.finish(&client).await;
    }
    // When it was lost is not known here.
    if args.lock.verbose && to_the_end {
        print_held(args, held, !waived);
    }
    if let Ok(run) = &completed {
        let code = outcome.as_ref().ok().copied();
        let (last, run) = (last.as_ref(), run.as_ref());
        plan.print_record(args, store, last, run, signals.requested_exit(), code);
    }
    plan.print_job_of_name(args, &client).await;
    let fails_if_lost = plan.job().is_some() || args.on_lost != OnLost::Ignore;
    match (outcome, completed) {
        (Ok(0), Err(code)) => Ok(code),
        // Only the release has revealed that the lock was lost while the command ran.
        (Ok(_), _) if !to_the_end && fails_if_lost => Ok(args.lost_exit_code),
        (outcome, _) => outcome,
    }
}

/// Ends the hold behind the command: records the run of a job if that has succeeded. Returns the record, and whether the lock
/// was held to the end.
async fn end(
    guard: AnyGuard,
    has_succeeded: bool,
    args: &RunArgs,
) -> (Result<Option<Completion>, u8>, bool) {
    match guard {
        AnyGuard::Job(run) if has_succeeded => {
            let completed = complete(*run, args).await.map(Some);
            let to_the_end = completed.is_ok();
            (completed, to_the_end)
        }
        guard => (Ok(None), release(guard, args).await),
    }
}

/// Prints for how long the lock was held, and for how long it stays taken if that is so.
fn print_held(args: &RunArgs, held: Duration, stays_taken: bool) {
    let rest = args.lock.at_least.filter(|_| stays_taken);
    let rest = rest.map(|at_least| at_least.saturating_sub(held));
    let rest = rest.filter(|rest| !rest.is_zero()).map(duration::format);
    let rest = output::optional(", stays taken for ", rest);
    note!("leasehold: held for {}{rest}", duration::format(held));
}

/// What a refusal of the lock means. `None`: it is not printed.
fn refusal(args: &RunArgs, plan: &Plan<'_>) -> Option<&'static str> {
    match args.skip_ok {
        _ if args.lock.quiet => None,
        // Its exit code is that of a complete run, for which a program may wait.
        true if matches!(plan, Plan::Once(_)) => Some("skipped, and not complete"),
        true => args.lock.verbose.then_some("skipped"),
        false => Some("the command was not run"),
    }
}

/// A failure of the store before the command was started.
fn not_run(failure: Failure) -> Failure {
    match failure.is_unreachable() {
        true => failure.with_detail("the command was not run"),
        false => failure,
    }
}

/// The exit code if the lock was refused.
fn refusal_code(args: &RunArgs) -> u8 {
    let code = args.conflict_exit_code.unwrap_or(args.lock.refusal_code());
    if args.skip_ok { 0 } else { code }
}

/// Runs the command under the lock until it has ended or was stopped. Returns the exit code, and whether the command was
/// stopped because of its lock.
async fn run_command(
    args: &RunArgs,
    plan: &Plan<'_>,
    store: &StoreArgs,
    client: &Client,
    held: &AnyGuard,
    signals: &mut Signals,
    watchdog: Option<&Watchdog>,
) -> Result<(u8, bool), Failure> {
    let environment = environment::of(held, client.store(), store);
    let mut child = Child::guardian(&environment)?;
    // A process that has ended needs no watching.
    let watch = |process: Option<Pid>| {
        let pid = process.map(|process| process.as_raw_pid().unsigned_abs());
        pid.map(|pid| client.watch_process(pid))
    };
    // Before the command starts: the guardian outlives all its processes.
    let _ = watch(child.guardian);
    let allowance = || supervise::allowance(held, args);
    let started = tokio::select! {
        biased;
        started = child.start(args, held.all(), allowance, watchdog) => started,
        // The command, perhaps begun meanwhile, is stopped below.
        _ = held.lost(), if allowance().is_some() => {
            child.kill_guardian();
            Ok(())
        }
    };
    if let Err(failure) = started {
        child.dismiss_guardian().await;
        return Err(failure);
    }
    let _ = watch(child.command);
    let mut supervisor = Supervisor {
        child: &mut child,
        guard: held,
        signals,
        args,
        warned: false,
        cut_off: false,
    };
    let stop = || supervise::fixed_stop(held, args);
    let consequence = supervise::consequence(args);
    let guards = held.all().iter();
    let problems =
        first(guards.map(|guard| jeopardy::print(guard, client, &args.lock, consequence, stop)));
    let code = tokio::select! {
        biased;
        code = supervisor.supervise() => code,
        (_, never) = problems => never,
        never = held.print_proclaimed(&args.lock) => never,
        never = plan.report_health(held) => never,
    };
    let cut_off = supervisor.cut_off;
    child.dismiss_guardian().await;
    Ok((code, cut_off))
}

/// Releases the lock of a job with the record that its run is complete. The exit code, if that fails: another client may
/// run the job again.
async fn complete(run: Run, args: &RunArgs) -> Result<Completion, u8> {
    run.complete().await.map_err(|error| {
        note!("leasehold: {error}; the run is not recorded as complete, so it may be repeated");
        match error.kind() {
            ErrorKind::Lost => args.lost_exit_code,
            _ => exit::FAILED,
        }
    })
}

/// Releases the lock. `false` if it was not held to the end.
async fn release(guard: AnyGuard, args: &RunArgs) -> bool {
    let reported = guard.state().is_lost();
    match guard.release().await {
        Ok(()) => true,
        Err(error) => {
            let lost = error.kind() == ErrorKind::Lost;
            let at_least = args.lock.at_least.map(duration::format);
            let is_quiet = args.lock.quiet && at_least.is_none();
            let before = output::optional(", perhaps before the minimum hold of ", at_least);
            match lost {
                // An earlier loss was reported when it happened.
                _ if reported => {}
                true => note!("leasehold: {error}"),
                false if is_quiet => {}
                false => note!(
                    "leasehold: {}: the release of the lock failed, so it is free when its lease ends{before}: {error}",
                    args.name
                ),
            }
            !lost
        }
    }
}
