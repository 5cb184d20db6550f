//! The wait for a lock, and what is printed of it: its holder, its queue, and the failures of the store.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use leasehold::{Client, ClientId, Error, ErrorKind, LeaseId, Mutex};

use super::holder;
use crate::args::RunArgs;
use crate::duration;
use crate::exit::Failure;

/// The interval between two checks for something to report.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The retry interval for a store that refuses for a while.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How long a wait at a terminal lasts before it is explained.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// The shortest interval between two messages, and between two queries for the holder.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(3);

/// The same for messages of a kind into a file or a log.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// Whether a run waits for its lock at all.
pub(super) fn waits(args: &RunArgs) -> bool {
    !args.no_wait && (args.wait.is_some() || !args.skip_ok)
}

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
    let pace = Pace::of(args);
    let mut reported = false;
    let limit = match waits(args) {
        true => args.wait.unwrap_or(args.ttl),
        false => Duration::ZERO,
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
        if !reported && pace.is_some_and(|pace| begun.elapsed() >= pace.begins) {
            print_failure(&failure, Some(left));
            reported = true;
        }
        tokio::time::sleep(RETRY_INTERVAL.min(left)).await;
    }
}

/// Prints why the store grants no lock, and when the wait is given up if that is known.
fn print_failure(failure: &dyn std::fmt::Display, left: Option<Duration>) {
    match left {
        Some(left) => note!(
            "leasehold: waiting: {failure} (gives up in {})",
            duration::format(left)
        ),
        None => note!("leasehold: waiting: {failure}"),
    }
}

/// When and how often the progress of a wait is printed.
#[derive(Clone, Copy)]
struct Pace {
    /// How long after the begin of the run.
    begins: Duration,
    interval: Duration,
    /// Whether another position in the queue is worth a message.
    positions: bool,
}

impl Pace {
    /// `None`: nothing is printed.
    fn of(args: &RunArgs) -> Option<Self> {
        let terminal = std::io::stderr().is_terminal();
        if args.quiet || !waits(args) || !(terminal || args.verbose) {
            return None;
        }
        Some(Self {
            begins: match args.verbose {
                true => Duration::ZERO,
                false => SHORT_WAIT,
            },
            interval: match terminal {
                true => MESSAGE_INTERVAL,
                false => LOG_INTERVAL,
            },
            positions: terminal,
        })
    }
}

/// The progress of the wait for a lock, as printed on stderr.
pub(super) struct Progress<'a> {
    args: &'a RunArgs,
    mutex: &'a Mutex,
    client: ClientId,
    begun: Instant,
    pace: Option<Pace>,
    /// When the store was queried for the holder.
    queried: Option<Instant>,
    /// When a message was printed.
    printed: Option<Instant>,
    /// The holder and the position in the queue of the last message, unless the store has failed since.
    holder: Option<(Option<LeaseId>, Option<String>)>,
    /// Since when the store fails.
    failing: Option<Instant>,
    /// When a failure was printed.
    failure_printed: Option<Instant>,
}

impl<'a> Progress<'a> {
    /// Of a wait that began at `begun`.
    pub(super) fn new(
        args: &'a RunArgs,
        mutex: &'a Mutex,
        client: ClientId,
        begun: Instant,
    ) -> Self {
        Self {
            args,
            mutex,
            client,
            begun,
            pace: Pace::of(args),
            queried: None,
            printed: None,
            holder: None,
            failing: None,
            failure_printed: None,
        }
    }

    /// Waits for a lock, and prints the progress meanwhile.
    pub(super) async fn run<T>(mut self, waiting: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            waited = waiting => waited,
            never = self.print() => never,
        }
    }

    async fn print<T>(&mut self) -> T {
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            match self.mutex.last_error() {
                Some(error) => self.print_failure(&error),
                None => {
                    self.failing = None;
                    self.print_holder().await;
                }
            }
        }
    }

    /// Prints why the store grants no lock. One that announces when it will is printed also in a log: that may be in
    /// hours.
    fn print_failure(&mut self, error: &Error) {
        let since = *self.failing.get_or_insert_with(Instant::now);
        let announced = error.retry_after().is_some();
        let due = match self.pace {
            Some(pace) => announced || self.begun.elapsed() >= pace.begins,
            None => announced && !self.args.quiet,
        };
        let interval = self.pace.map_or(LOG_INTERVAL, |pace| pace.interval);
        let printed = self.failure_printed;
        let printed = printed.is_some_and(|at| at >= since || at.elapsed() < interval);
        if printed || !due || self.has_just_printed() {
            return;
        }
        self.printed = Some(Instant::now());
        (self.failure_printed, self.holder) = (self.printed, None);
        // Without an announcement, the wait is given up after a ttl of failures.
        let ttl = self.args.lease.unwrap_or(self.args.ttl);
        let silence = (!announced).then(|| ttl.saturating_sub(since.elapsed()));
        let limit = self.args.wait;
        let limit = limit.map(|limit| limit.saturating_sub(self.begun.elapsed()));
        print_failure(error, silence.into_iter().chain(limit).min());
    }

    /// Prints the holder and the position in the queue, if they are not those of the last message.
    async fn print_holder(&mut self) {
        let Some(pace) = self.pace else {
            return;
        };
        let interval = match self.holder {
            Some(_) => pace.interval,
            None => MESSAGE_INTERVAL,
        };
        let queried = self.queried.is_some_and(|at| at.elapsed() < interval);
        if queried || self.begun.elapsed() < pace.begins || self.has_just_printed() {
            return;
        }
        self.queried = Some(Instant::now());
        let query = holder::query(self.mutex.inspect(), holder::QUERY_TIMEOUT);
        let info = match query.await {
            // It may have been granted meanwhile.
            Some(Ok(Some(info))) if info.lease.client != self.client => Some(info),
            // The store refuses the lock, although this client may not read the holder, or its masters disagree.
            Some(Err(error)) if error.kind() != ErrorKind::Unreachable => None,
            _ => return,
        };
        let holder = info.as_ref().map(|info| info.lease);
        let position = info.as_ref();
        let position = position.and_then(|info| holder::position(info, self.client));
        if position.is_none() && self.begun.elapsed() < SHORT_WAIT {
            // Its request may be on the way.
            self.queried = None;
            self.pace = Some(Pace {
                begins: SHORT_WAIT,
                ..pace
            });
            return;
        }
        let printed = (holder, position.clone().filter(|_| pace.positions));
        if self.holder.as_ref() == Some(&printed) {
            return;
        }
        (self.holder, self.printed) = (Some(printed), Some(Instant::now()));
        let is_held = info.as_ref().map(holder::describe);
        self.print_wait(is_held.as_deref(), position.as_deref());
    }

    fn print_wait(&self, is_held: Option<&str>, position: Option<&str>) {
        let name = self.mutex.name();
        let is_held = is_held.unwrap_or("is held elsewhere");
        let position = position.map(|position| format!("{position} in the queue, "));
        let position = position.unwrap_or_default();
        match self.args.wait {
            Some(limit) => note!(
                "leasehold: {name} {is_held}; {position}waiting (at most {})",
                duration::format(limit)
            ),
            None => note!("leasehold: {name} {is_held}; {position}waiting"),
        }
    }

    fn has_just_printed(&self) -> bool {
        self.printed
            .is_some_and(|at| at.elapsed() < MESSAGE_INTERVAL)
    }
}
