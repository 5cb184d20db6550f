//! What is printed about a lease in jeopardy, and the cause of its loss in words.

use std::borrow::Cow;
use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, Client, ErrorKind, Guard, Instant, State};
use tokio::time::{sleep, timeout};

use crate::args::LockArgs;
use crate::duration;

/// How long a jeopardy lasts before it is printed, or a part of the ttl if that is shorter. A renewal may succeed when
/// it is repeated.
const SHORT_JEOPARDY: Duration = Duration::from_millis(250);
const SHORT_JEOPARDY_DIVISOR: u32 = 15;

/// The interval between two renewals of a lease in jeopardy: this part of the ttl, within bounds.
///
/// About a sixth of the ttl is left between the first failed renewal and the loss.
const RETRY_DIVISOR: u32 = 30;
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Prints each jeopardy once with its consequence, and its end. A loss is printed by the caller.
///
/// `stop` is the instant of the consequence, if that is before the loss.
pub(crate) async fn print<T>(
    guard: &Guard,
    client: &Client,
    args: &LockArgs,
    consequence: &str,
    stop: impl Fn() -> Option<Instant>,
) -> T {
    let mut states = guard.states();
    let mut printed = false;
    let mut state = match args.quiet {
        true => None,
        false => states.next().await,
    };
    while let Some(current) = state {
        state = match current {
            State::Jeopardy { cause, .. } if !printed => {
                let short = SHORT_JEOPARDY.min(args.ttl / SHORT_JEOPARDY_DIVISOR);
                let retry = (args.ttl / RETRY_DIVISOR).clamp(RETRY_MIN, RETRY_MAX);
                let problem = find_problem(cause, guard.name(), client, retry);
                let problem = async { tokio::join!(problem, sleep(short)) };
                tokio::select! {
                    biased;
                    next = states.next() => next,
                    (problem, ()) = problem => {
                        printed = print_jeopardy(guard, problem, consequence, stop());
                        states.next().await
                    }
                }
            }
            State::Held { .. } if printed => {
                printed = false;
                note!("leasehold: {}: held again", guard.name());
                states.next().await
            }
            _ => states.next().await,
        };
    }
    std::future::pending().await
}

/// What keeps a lease from being renewed, and the condition under which that ends.
type Problem = (Cow<'static, str>, &'static str);

/// The problem behind a jeopardy. A query shows whether the store replies within a retry interval.
async fn find_problem(cause: Cause, name: &str, client: &Client, retry: Duration) -> Problem {
    let holder = async { client.mutex(name)?.holder().await };
    let (problem, unless) = match cause {
        Cause::Unreachable => match timeout(retry, holder).await {
            Ok(Ok(_)) => {
                // A store that replies again may be about to confirm the next renewal.
                sleep(retry).await;
                ("the store replies, but does not renew the lock", "it does")
            }
            Ok(Err(error)) if error.kind() == ErrorKind::NoQuorum => {
                ("too few masters reply", "they do")
            }
            Ok(Err(error)) if error.kind() != ErrorKind::Unreachable => {
                let problem = format!("the store cannot renew the lock: {error}");
                return (problem.into(), "it can");
            }
            _ => ("the store does not reply", "it does"),
        },
        Cause::NotReplicated => ("too few replicas acknowledge a renewal", "they do"),
        Cause::Paused => {
            let problem = "the renewal is late, because this process was paused or too busy";
            (problem, "it succeeds")
        }
        other => return (other.to_string().into(), "the lock is renewed"),
    };
    (problem.into(), unless)
}

/// Prints a jeopardy, and what happens unless it ends. `false` if it has ended already.
fn print_jeopardy(
    guard: &Guard,
    (problem, unless): Problem,
    consequence: &str,
    stop: Option<Instant>,
) -> bool {
    let State::Jeopardy { until, .. } = guard.state() else {
        return false;
    };
    let until = stop.map_or(until, |stop| stop.min(until));
    let left = BootClock.now().until(until);
    let when = match left.is_zero() {
        // Only the store knows, after a pause under a watchdog.
        true => String::new(),
        false => format!(" in {}", duration::format(left)),
    };
    note!(
        "leasehold: {}: {problem}; {consequence}{when} unless {unless}",
        guard.name()
    );
    true
}

/// The cause of a loss for an operator, who does not know leases.
pub(crate) fn describe_loss(cause: Cause) -> Cow<'static, str> {
    Cow::Borrowed(match cause {
        Cause::Expired => "its fixed lease (--lease) has expired",
        Cause::TakenOver => "another client holds it",
        Cause::Deleted => {
            "the store has no record of it: it was restarted, failed over or emptied, or the record was \
             deleted or evicted"
        }
        Cause::Revoked => "an operator revoked it",
        Cause::Unreachable => "the store did not renew it in time",
        Cause::NotReplicated => "too few replicas acknowledged its renewal in time",
        Cause::Paused => "it was not renewed in time, because this process was paused or too busy",
        other => return Cow::Owned(other.to_string()),
    })
}
