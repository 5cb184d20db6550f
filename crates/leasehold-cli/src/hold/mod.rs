//! `leasehold hold`: a lock for a program in any language.

mod caller;
mod record;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use leasehold::{Client, ErrorKind, Guard, State, StateKind, States};
use rustix::process::{Pid, getppid};
use signal_hook::consts::SIGPIPE;

use self::caller::{Caller, End};
use self::record::record;
use crate::args::{HoldArgs, StoreArgs};
use crate::exit::{self, Failure};
use crate::lock::guard::{AnyGuard, first};
use crate::lock::jeopardy::{self, describe_loss};
use crate::lock::plan::Plan;
use crate::lock::program::Program;
use crate::lock::watchdog::WatchdogReport;
use crate::lock::{Outcome, Request};
use crate::signals::{self, Signals};
use crate::{duration, json};

/// How long after a deferred signal it is explained, if the program has not closed stdin until then.
const EXPLANATION_DELAY: Duration = Duration::from_secs(1);

pub(crate) async fn hold(args: &HoldArgs, store: &StoreArgs) -> Result<u8, Failure> {
    let mut requests = EndRequests {
        args,
        signals: Signals::listen_for_hold()?,
        caller: Caller::listen(&args.name)?,
        deferred: Vec::new(),
        explained_at: None,
    };
    let watchdog = args.watchdog.settings()?;
    let request = Request {
        name: &args.name,
        args: &args.lock,
        plan: &Plan::Always(&args.share),
        store,
        watchdog: watchdog.as_ref(),
        program: &program_of_caller(),
        refusal: (!args.lock.quiet).then_some("the lock was not acquired"),
    };
    let interruption = async || requests.any().await;
    let (client, guard) = match request.acquire(interruption).await? {
        Outcome::Acquired(client, guard) => (client, guard),
        // A hold is not a job, so it is never complete.
        Outcome::Refused | Outcome::Completed(_) => return Ok(args.lock.refusal_code()),
        Outcome::Interrupted(End::Closed) => {
            let message = format!("{}: stdin has ended before the lock was granted", args.name);
            return Err(Failure::usage(message));
        }
        Outcome::Interrupted(end) => return end.into_code(args),
    };
    let begun = Instant::now();
    let mut report = WatchdogReport::new(&client, &args.watchdog);
    let kept = keep(args, &client, &guard, &mut requests);
    let kept = report.during(kept).await;
    let end = kept.unwrap_or_else(End::Failed);
    let held = begun.elapsed();
    let released = guard.release().await;
    requests.caller.flush().await;
    if watchdog.is_some() {
        report.finish(&client).await;
    }
    if args.lock.verbose {
        note!("leasehold: held for {}", duration::format(held));
    }
    match (released, &end) {
        // It was reported when it happened.
        (_, End::Lost) => Ok(exit::LOST),
        (Err(error), _) if error.kind() == ErrorKind::Lost => {
            note!("leasehold: {error}");
            Ok(exit::LOST)
        }
        (Err(error), _) => {
            let detail = "the release of the lock failed, so it is free when its lease ends";
            Err(Failure::from(error).with_detail(detail))
        }
        (Ok(()), _) => end.into_code(args),
    }
}

/// Keeps the lock and prints each change of its state, until it is lost or no longer wanted.
async fn keep(
    args: &HoldArgs,
    client: &Client,
    guard: &AnyGuard,
    requests: &mut EndRequests<'_>,
) -> Result<End, Failure> {
    let store = client.store().to_string();
    let slot = guard.slot();
    let guards = guard.all();
    for guard in guards {
        let line = json::to_line(&record(&store, guard, slot, None))?;
        requests.caller.print(line);
    }
    if io::stdin().is_terminal() && !args.lock.quiet {
        note!("leasehold: {} is held; Ctrl-D releases it", args.name);
    }
    let changes = async {
        let mut states: Vec<_> = guards.iter().map(Guard::states).collect();
        let mut last = vec![StateKind::Held; guards.len()];
        loop {
            let (nth, state) = tokio::select! {
                biased;
                changed = first(states.iter_mut().map(States::next)) => changed,
                end = requests.next() => return Ok(end),
            };
            let Some(state) = state else {
                return Ok(End::Lost);
            };
            let guard = &guards[nth];
            if state.kind() != last[nth] {
                let line = json::to_line(&record(&store, guard, slot, Some(state)))?;
                requests.caller.print(line);
                last[nth] = state.kind();
            }
            if let State::Lost(cause) = state {
                let cause = describe_loss(cause);
                note!("leasehold: {}: the lock is lost: {cause}", guard.name());
            }
        }
    };
    let (lock, consequence) = (&args.lock, "the lock is lost");
    let guards = guards.iter();
    let problems =
        first(guards.map(|guard| jeopardy::print(guard, client, lock, consequence, || None)));
    tokio::select! {
        biased;
        end = changes => end,
        (_, never) = problems => never,
    }
}

impl End {
    /// The exit code.
    fn into_code(self, args: &HoldArgs) -> Result<u8, Failure> {
        match self {
            Self::Closed => Ok(0),
            Self::NoReader => {
                if !args.lock.quiet {
                    note!("leasehold: {}: stdout was closed by its reader", args.name);
                }
                Ok(exit::by_signal(SIGPIPE))
            }
            Self::Failed(failure) => Err(failure),
            Self::Signal(number) => Ok(exit::by_signal(number)),
            Self::Lost => Ok(exit::LOST),
        }
    }
}

/// The requests to end a hold.
///
/// A terminal or a supervisor that stops the program signals its whole group. The program finishes its work before it
/// closes stdin, so a signal alone does not release the lock.
struct EndRequests<'a> {
    args: &'a HoldArgs,
    signals: Signals,
    caller: Caller,
    /// The last signal that did not release the lock.
    deferred: Vec<i32>,
    explained_at: Option<tokio::time::Instant>,
}

impl EndRequests<'_> {
    /// Waits for the end of a stream, or a signal that requests an exit.
    async fn any(&mut self) -> End {
        tokio::select! {
            biased;
            number = self.signals.next() => End::Signal(number),
            end = self.caller.ended() => end,
        }
    }

    /// Waits for the end of the hold.
    ///
    /// Dropped, it can be called again.
    async fn next(&mut self) -> End {
        loop {
            let explained_at = self.explained_at;
            let explanation = async {
                tokio::time::sleep_until(explained_at?).await;
                Some(())
            };
            tokio::select! {
                biased;
                end = self.any() => match end {
                    End::Signal(number) if self.defers(number) => {}
                    end => return end,
                },
                Some(()) = explanation => self.explain(),
            }
        }
    }

    /// Whether the lock stays held despite a signal. At a terminal the user has only signals and Ctrl-D. After the end
    /// of the program another process may keep stdin open for ever: a second signal releases the lock then. The first
    /// one may have ended the program just before.
    fn defers(&mut self, number: i32) -> bool {
        let is_repeated = self.deferred.contains(&number);
        if io::stdin().is_terminal() || is_repeated && !self.caller.lives() {
            return false;
        }
        if !is_repeated {
            self.deferred.push(number);
            let delay = (!self.args.lock.quiet).then_some(EXPLANATION_DELAY);
            self.explained_at = delay.map(|delay| tokio::time::Instant::now() + delay);
        }
        true
    }

    fn explain(&mut self) {
        self.explained_at = None;
        let (name, last) = (&self.args.name, self.deferred.last());
        let signal = last.map_or("", |number| signals::name(*number));
        match self.caller.lives() {
            true => note!(
                "leasehold: {name}: {signal} does not release the lock; the end of stdin does"
            ),
            false => note!(
                "leasehold: {name}: {signal} does not release the lock: the process that started hold has ended, but \
                 stdin is still open; a second {signal} releases the lock"
            ),
        }
    }
}

/// The name of the process that started this one, for listings.
fn program_of_caller() -> Program {
    let parent = getppid().map(Pid::as_raw_pid);
    let name = parent.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).ok());
    let name = name.map(|name| name.trim_end().to_owned());
    Program {
        name: name.unwrap_or_else(|| "leasehold".to_owned()),
        path: None,
        task: None,
    }
}
