//! `leasehold run`: the command under the lock.

mod child;
mod elect;
mod environment;
mod guardian;
mod health;
mod holder;
mod jeopardy;
mod job;
mod processes;
mod protocol;
mod signals;
mod spawn;
mod start_error;
mod supervise;
mod waiting;

use std::path::Path;
use std::time::{Duration, Instant};

use leasehold::watchdog::Watchdog;
use leasehold::{Client, Durability, ErrorKind, Guard, Mutex};

use self::child::Child;
pub(crate) use self::elect::elect;
pub(crate) use self::job::Plan;
use self::job::{Acquired, AnyGuard, Target};
use self::signals::Signals;
use self::supervise::Supervisor;
use self::waiting::Progress;
use crate::args::{OnLost, RunArgs, StoreArgs};
use crate::connect::connect;
use crate::duration;
use crate::exit::{self, Failure};
use crate::run_watchdog::WatchdogReport;

pub(crate) use self::guardian::guard;

/// How long an exit waits for the release of a cancelled acquisition.
const LATE_RELEASE_TIMEOUT: Duration = Duration::from_secs(3);

/// How long an exit waits until the nodes of the watchdog have forgotten this client.
const DISCONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// How long the store may take for its first reply, even if the limit of the wait is shorter.
const FIRST_REPLY_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) async fn run(args: &RunArgs, plan: &Plan<'_>, store: &StoreArgs) -> Result<u8, Failure> {
    run_until(args, plan, store, &mut Signals::listen()?).await
}

/// The same while signals are received elsewhere, too.
async fn run_until(
    args: &RunArgs,
    plan: &Plan<'_>,
    store: &StoreArgs,
    signals: &mut Signals,
) -> Result<u8, Failure> {
    let watchdog = args.watchdog.settings()?;
    let begun = Instant::now();
    let client = tokio::select! {
        biased;
        signal = signals.next() => return Ok(exit::by_signal(signal.number)),
        client = waiting::connected(args, store, || connect_for(args, store, watchdog.as_ref())) => client?,
    };
    let acquired = tokio::select! {
        biased;
        signal = signals.next() => Err(Ok(exit::by_signal(signal.number))),
        acquired = acquire(args, plan, &client, begun) => match acquired {
            Ok(Some(Acquired::Held(held))) => Ok(held),
            Ok(Some(Acquired::Completed(run))) => Err(Ok(plan.print_completed(args, &run))),
            Ok(None) => Err(Ok(print_refusal(args, plan, &client).await)),
            Err(failure) => Err(Err(failure)),
        },
    };
    let mut held = match acquired {
        Ok(held) => held,
        Err(end) => {
            match &end {
                // A store that has not replied for so long has granted nothing that would not end by itself. The drop
                // of the client would wait for its reply.
                Err(failure) if failure.is_unreachable() => std::mem::forget(client),
                _ => wait_for_late_release(&client, signals).await,
            }
            return end;
        }
    };
    let waited = begun.elapsed();
    if args.verbose {
        let token = held.token();
        note!(
            "leasehold: waited {}, token {token}",
            duration::format(waited)
        );
    }
    // There was no command yet that the terminal could have sent the signal to.
    if let Some(signal) = signals.pending() {
        let _ = release(held, args).await;
        return Ok(exit::by_signal(signal.number));
    }
    let begun = Instant::now();
    let mut report = WatchdogReport::new(&client, &args.watchdog, args.quiet);
    let command = run_command(args, store, &client, &held, signals, watchdog.as_ref());
    plan.begins(&held);
    let outcome = report.during(command).await;
    plan.ended();
    let held_for = begun.elapsed();
    let completed = held.complete(args, &outcome).await;
    let to_the_end = release(held, args).await;
    if watchdog.is_some() {
        report.finish().await;
        // Otherwise the nodes would take the end of this process for a death.
        let _ = client.shutdown(DISCONNECT_TIMEOUT).await;
    }
    if args.verbose {
        note!("leasehold: held for {}", duration::format(held_for));
    }
    match outcome {
        // The lock was held when the run was complete.
        Ok(0) if completed == Ok(true) => Ok(0),
        Ok(0) if let Err(code) = completed => Ok(code),
        // Only the release has revealed that the lock was lost while the command ran.
        Ok(_) if !to_the_end && args.on_lost != OnLost::Ignore => Ok(args.lost_exit_code),
        outcome => outcome,
    }
}

/// Runs the command under the lock until it has ended or was stopped.
async fn run_command(
    args: &RunArgs,
    store: &StoreArgs,
    client: &Client,
    held: &AnyGuard,
    signals: &mut Signals,
    watchdog: Option<&Watchdog>,
) -> Result<u8, Failure> {
    let mutex = client.mutex(&args.name)?;
    let guard: &Guard = held;
    let environment = environment::of(guard, held.term(), client.store(), store);
    let mut child = Child::guardian(&environment)?;
    // A process that has ended needs no watching.
    let watch = |pid: Option<u32>| pid.map(|pid| client.watch_process(pid));
    // Before the command starts: the guardian outlives all its processes.
    let _ = watch(child.guardian_pid());
    let allowance = supervise::allowance(guard, args);
    let started = child
        .start(&args.command, guard.lease_id(), allowance, watchdog)
        .await;
    if let Err(failure) = started {
        child.dismiss_guardian().await;
        return Err(failure);
    }
    let _ = watch(child.command_pid());
    let mut supervisor = Supervisor {
        child: &mut child,
        guard,
        signals,
        args,
        warned: false,
    };
    let code = tokio::select! {
        biased;
        code = supervisor.supervise() => code,
        never = jeopardy::print(guard, &mutex, args) => never,
        never = held.print_proclaimed(args) => never,
    };
    child.dismiss_guardian().await;
    Ok(code)
}

/// Connects to the store, with the client info of this run.
async fn connect_for(
    args: &RunArgs,
    store: &StoreArgs,
    watchdog: Option<&Watchdog>,
) -> Result<Client, Failure> {
    refuse_memory(store)?;
    let program = args.command.first().map(Path::new);
    let program = program.and_then(Path::file_name).unwrap_or_default();
    let mut builder = Client::builder()
        .program(program.to_string_lossy())
        .label(&args.label)
        // A fixed lease may be shorter than the ttl of renewed ones; the timeouts must suit it.
        .ttl(args.lease.unwrap_or(args.ttl));
    if let Some(count) = args.replicas {
        let timeout = args.replicas_timeout;
        builder = builder.durability(Durability::Replicas { count, timeout });
    }
    if let Some(watchdog) = watchdog {
        builder = builder.watchdog(watchdog.clone());
    }
    connect(store, builder).await
}

/// The lock, or `None` if another holds it for longer than we want to wait.
async fn acquire(
    args: &RunArgs,
    plan: &Plan<'_>,
    client: &Client,
    begun: Instant,
) -> Result<Option<Acquired>, Failure> {
    let target = plan.target(args, client)?;
    let mutex = target.mutex();
    refuse_to_wait_for_itself(mutex).await?;
    let progress = Progress::new(args, mutex, client, begun);
    Ok(progress.run(confirmed(args, &target, begun)).await?)
}

/// Waits for a lease on which a command can rely. One that is lost before is acquired again: nothing has
/// run under it.
async fn confirmed(
    args: &RunArgs,
    target: &Target,
    begun: Instant,
) -> leasehold::Result<Option<Acquired>> {
    loop {
        let held = match wait(args, target, begun).await? {
            Some(Acquired::Held(held)) => held,
            ended => return Ok(ended),
        };
        match confirm(&held, args).await {
            Err(_) if held.state().is_lost() => {}
            confirmed => return confirmed.map(|()| Some(Acquired::Held(held))),
        }
    }
}

/// Waits for the release of a cancelled acquisition, as no background task survives the exit, or for a second signal.
/// The lock was never held, so nothing is printed.
async fn wait_for_late_release(client: &Client, signals: &mut Signals) {
    tokio::select! {
        biased;
        _ = signals.next() => {}
        _ = client.shutdown(LATE_RELEASE_TIMEOUT) => {}
    }
}

/// Refuses a store inside this process, which would exclude no other process.
fn refuse_memory(store: &StoreArgs) -> Result<(), Failure> {
    match &store.store {
        Some(url) if url.starts_with("memory:") => Err(Failure::usage(
            "a memory: store belongs to one process and excludes no other; use sqlite:PATH",
        )),
        _ => Ok(()),
    }
}

/// A run inside a run of the same name would wait for its own end.
async fn refuse_to_wait_for_itself(mutex: &Mutex) -> Result<(), Failure> {
    let Ok(outer) = std::env::var(environment::LEASE) else {
        return Ok(());
    };
    let holder = match mutex.holder().await {
        // The holder is unknown, so the lock is acquired as usual.
        Err(error) if error.kind() == ErrorKind::NoQuorum => None,
        found => found?,
    };
    match holder {
        Some(holder) if holder.lease.to_string() == outer => Err(Failure::usage(format!(
            "{} is held by the run around this one, so this run would wait for itself; use another name",
            mutex.name()
        ))),
        _ => Ok(()),
    }
}

async fn wait(
    args: &RunArgs,
    target: &Target,
    begun: Instant,
) -> leasehold::Result<Option<Acquired>> {
    if !waiting::waits(args) {
        return target.try_lock().await;
    }
    match args.wait {
        Some(limit) => {
            let left = limit.saturating_sub(begun.elapsed());
            match target.lock_timeout(left).await {
                // Perhaps without a reply so far. One attempt shows whether the lock is held.
                Err(error)
                    if error.kind() == ErrorKind::Unreachable && left < FIRST_REPLY_TIMEOUT =>
                {
                    let attempt =
                        tokio::time::timeout(FIRST_REPLY_TIMEOUT, target.try_lock()).await;
                    attempt.unwrap_or(Err(error))
                }
                waited => waited,
            }
        }
        None => target.lock().await.map(Some),
    }
}

/// Prints why the command was not run. Returns the exit code.
async fn print_refusal(args: &RunArgs, plan: &Plan<'_>, client: &Client) -> u8 {
    let waited = args.wait.filter(|limit| !limit.is_zero());
    let code = match (args.skip_ok, args.wait) {
        (true, _) => 0,
        (false, Some(_)) => args.conflict_exit_code.unwrap_or(exit::TIMED_OUT),
        (false, None) => args.conflict_exit_code.unwrap_or(exit::REFUSED),
    };
    if args.quiet || (args.skip_ok && !args.verbose) {
        return code;
    }
    let holder = match client.mutex(&args.name) {
        Ok(mutex) => holder::query(mutex.holder(), holder::QUERY_TIMEOUT).await,
        Err(_) => None,
    };
    let is_held = match holder {
        Some(Ok(Some(info))) => holder::describe(&info),
        // Or it is free meanwhile.
        _ => "was held elsewhere".to_owned(),
    };
    let waited = waited.map(|limit| format!("waited {}, ", duration::format(limit)));
    let outcome = match args.skip_ok {
        true => "skipped",
        false => "the command was not run",
    };
    note!(
        "leasehold: {} {is_held}; {}{outcome}{}",
        args.name,
        waited.unwrap_or_default(),
        plan.cost_of_refusal()
    );
    code
}

/// Waits until a lease that was granted from the queue is renewed to the full ttl: it is short until then, and would
/// leave too little time to stop the command. Returns also when the lease ends before that.
async fn confirm(guard: &Guard, args: &RunArgs) -> leasehold::Result<()> {
    if args.lease.is_some() {
        return Ok(());
    }
    loop {
        match guard.ensure(args.ttl / 2).await {
            Err(error) if error.is_transient() => tokio::time::sleep(waiting::RETRY_INTERVAL).await,
            confirmed => return confirmed,
        }
    }
}

/// Releases the lock. `false` if it was not held to the end.
async fn release(held: AnyGuard, args: &RunArgs) -> bool {
    let reported = held.state().is_lost();
    match held.release().await {
        Ok(()) => true,
        Err(error) => {
            let lost = error.kind() == ErrorKind::Lost;
            let has_code = lost && args.on_lost != OnLost::Ignore;
            match lost {
                // An earlier loss was reported when it happened.
                _ if reported || (args.quiet && !has_code) => {}
                true => note!("leasehold: {error}"),
                false => note!(
                    "leasehold: {}: the release of the lock failed, so it is free when its lease ends: {error}",
                    args.name
                ),
            }
            !lost
        }
    }
}
