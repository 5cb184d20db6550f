//! The wait for a store that grants no lock yet.

use std::time::{Duration, Instant};

use leasehold::{Client, Error, Mutex};

use crate::args::RunArgs;
use crate::exit::Failure;

/// The interval between two checks for something to report.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The retry interval for a store that refuses for a while.
pub(super) const RETRY_EVERY: Duration = Duration::from_millis(500);

/// Connects to the store. One that refuses for a while is retried for as long as the lock may be waited for, or for a
/// ttl.
pub(super) async fn connected<F>(
    args: &RunArgs,
    mut connect: impl FnMut() -> F,
) -> Result<Client, Failure>
where
    F: Future<Output = Result<Client, Failure>>,
{
    let begun = Instant::now();
    let mut reported = !args.verbose;
    let limit = match args.wait {
        _ if args.no_wait => Duration::ZERO,
        None if args.skip_ok => Duration::ZERO,
        None => args.ttl,
        Some(limit) => limit,
    };
    loop {
        let failure = match connect().await {
            Err(failure) if failure.is_transient_refusal() => failure,
            connected => return connected,
        };
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(failure);
        }
        if !reported {
            note!("leasehold: waiting: {failure}");
            reported = true;
        }
        tokio::time::sleep(RETRY_EVERY.min(left)).await;
    }
}

/// Waits for a lock. Reports once on stderr for how long the store grants none, if it has announced that.
pub(super) async fn reported<T>(mutex: &Mutex, waiting: impl Future<Output = T>) -> T {
    let report = async {
        while !mutex.last_error().is_some_and(|error| report(&error)) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        waited = waiting => waited,
        never = report => never,
    }
}

fn report(error: &Error) -> bool {
    let known = error.retry_after().is_some();
    if known {
        note!("leasehold: waiting: {error}");
    }
    known
}
