//! The wait for a lock, and what is printed of it: its holder, its queue, and the failures of the store.

use std::fmt;
use std::io::IsTerminal as _;
use std::pin::pin;
use std::time::{Duration, Instant};

use leasehold::clock::{BootClock, Clock as _};
use leasehold::{Client, ErrorKind, LeaseId, Mutex, WaitStatus};

use super::{Request, holder};
use crate::args::{LockArgs, StoreArgs};
use crate::exit::Failure;
use crate::{connect, duration};

/// The interval between two checks for something to report.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The retry interval for a store that refuses for a while.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How long a wait at a terminal lasts before it is explained.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// How long the store may take to reply before its silence is printed, or a part of the ttl if that is shorter: a
/// request fails after a sixth of it.
const SILENCE: Duration = Duration::from_secs(1);
const SILENCE_DIVISOR: u32 = 10;

/// The shortest interval between two messages.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(3);

/// The same for messages of a kind into a file or a log.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// A wait that is not explained, because it is neither at a terminal nor `--verbose`, prints only that the store fails:
/// once, when it has failed for so long.
const LOG_SILENCE: Duration = Duration::from_secs(3);

/// The interval between two queries of such a wait, by which it notices that.
const LOG_QUERY_INTERVAL: Duration = Duration::from_secs(5);

/// Connects to the store. One that refuses for a while is retried for as long as the lock may be waited for, or for a
/// ttl.
pub(super) async fn connected(request: &Request<'_>) -> Result<Client, Failure> {
    let args = request.args;
    let begun = Instant::now();
    let pace = Pace::of(args);
    let (mut reported, mut silent) = (false, false);
    let limit = match args.no_wait {
        true => Duration::ZERO,
        false => args.wait.unwrap_or(args.ttl),
    };
    loop {
        let connecting = printing_silence(args, request.connect(), |silence| {
            if pace.is_some() && !silent {
                print_silence(request.name, &connect::redacted(request.store), silence);
                silent = true;
            }
        });
        let failure = match connecting.await {
            Err(failure) if failure.is_transient_refusal() => failure,
            connected => return connected,
        };
        let left = limit.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(failure);
        }
        let begins = pace.map(|pace| pace.begins);
        let begins = begins.or(prints_failures(args).then_some(LOG_SILENCE));
        if !reported && begins.is_some_and(|begins| begun.elapsed() >= begins) {
            print_failure(&failure, None, Some(left));
            reported = true;
        }
        tokio::time::sleep(RETRY_INTERVAL.min(left)).await;
    }
}

/// Waits for the reply of the store, and prints its silence once if that takes long.
async fn printing_silence<T>(
    args: &LockArgs,
    reply: impl Future<Output = T>,
    print: impl FnOnce(Duration),
) -> T {
    let silence = SILENCE.min(args.lease_length() / SILENCE_DIVISOR);
    let mut reply = pin!(reply);
    tokio::select! {
        biased;
        reply = &mut reply => return reply,
        () = tokio::time::sleep(silence) => print(silence),
    }
    reply.await
}

/// Prints that the store does not reply, and for how long.
fn print_silence(name: &str, store: &dyn fmt::Display, silence: Duration) {
    let silence = duration::format(silence);
    note!("leasehold: waiting: lock {name:?} at {store}: no reply for {silence}");
}

/// Prints why the store grants no lock, for how long it has failed, and when the wait is given up, if that is known.
fn print_failure(failure: &dyn fmt::Display, failed_for: Option<Duration>, left: Option<Duration>) {
    let failed_for = failed_for.map(|time| format!("for {}", duration::format(time)));
    let left = left.map(|left| format!("gives up in {}", duration::format(left)));
    let times: Vec<_> = failed_for.into_iter().chain(left).collect();
    match times.is_empty() {
        true => note!("leasehold: waiting: {failure}"),
        false => note!("leasehold: waiting: {failure} ({})", times.join(", ")),
    }
}

/// Whether a store that fails for a while is printed.
const fn prints_failures(args: &LockArgs) -> bool {
    !args.quiet && !args.no_wait
}

/// When and how often the progress of a wait is printed.
#[derive(Clone, Copy)]
struct Pace {
    /// How long after the begin of the request.
    begins: Duration,
    /// The shortest interval between two queries for the holder.
    queries: Duration,
    /// The shortest interval between two messages about holders.
    interval: Duration,
    /// Whether another position in the queue is worth a message.
    positions: bool,
}

impl Pace {
    /// `None`: it is not printed.
    fn of(args: &LockArgs) -> Option<Self> {
        let terminal = std::io::stderr().is_terminal();
        if !prints_failures(args) || !(terminal || args.verbose) {
            return None;
        }
        let (queries, interval) = match terminal {
            true => (SILENCE, MESSAGE_INTERVAL),
            false => (MESSAGE_INTERVAL, LOG_INTERVAL),
        };
        Some(Self {
            begins: match args.verbose {
                true => Duration::ZERO,
                false => SHORT_WAIT,
            },
            queries,
            interval,
            positions: terminal,
        })
    }
}

/// The progress of the wait for a lock, as printed on stderr.
pub(super) struct Progress<'a> {
    args: &'a LockArgs,
    store: &'a StoreArgs,
    mutex: &'a Mutex,
    client: &'a Client,
    begun: Instant,
    pace: Option<Pace>,
    /// When the store was queried for the holder.
    queried: Option<Instant>,
    /// When a message was printed.
    printed: Option<Instant>,
    /// The holder and the position in the queue of the last message, unless the store has failed since.
    holder: Option<(Option<LeaseId>, Option<String>)>,
    /// When the first query was sent since which the store does not reply to any.
    unanswered: Option<Instant>,
    /// Whether it was printed that the store does not reply to queries.
    silent: bool,
    /// Since when the store fails.
    failing: Option<Instant>,
    /// When a failure was printed.
    failure_printed: Option<Instant>,
}

impl<'a> Progress<'a> {
    /// Of a wait that began at `begun`.
    pub(super) fn new(
        request: &Request<'a>,
        mutex: &'a Mutex,
        client: &'a Client,
        begun: Instant,
    ) -> Self {
        let args = request.args;
        Self {
            args,
            store: request.store,
            mutex,
            client,
            begun,
            pace: Pace::of(args),
            queried: None,
            printed: None,
            holder: None,
            unanswered: None,
            silent: false,
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
            match self.mutex.wait_status() {
                Some(status) => self.print_failure(&status),
                None => {
                    self.failing = None;
                    match self.pace {
                        Some(pace) => self.print_holder(pace).await,
                        None if prints_failures(self.args) => self.print_long_silence().await,
                        None => {}
                    }
                }
            }
        }
    }

    /// Prints why the store grants no lock. One that announces when it will is printed also in a log: that may be in
    /// hours.
    fn print_failure(&mut self, status: &WaitStatus) {
        let error = &status.error;
        let since = *self.failing.get_or_insert_with(Instant::now);
        let announced = error.retry_after().is_some();
        let due = match self.pace {
            Some(pace) => announced || self.begun.elapsed() >= pace.begins,
            None if announced => !self.args.quiet,
            None => prints_failures(self.args) && !self.silent && since.elapsed() >= LOG_SILENCE,
        };
        let interval = self.pace.map_or(LOG_INTERVAL, |pace| pace.interval);
        let printed = self.failure_printed;
        let printed = printed.is_some_and(|at| at >= since || at.elapsed() < interval);
        if printed || !due {
            return;
        }
        self.printed = Some(Instant::now());
        (self.failure_printed, self.holder) = (self.printed, None);
        let now = BootClock.now();
        let gives_up = status.gives_up_at;
        // A failing store is waited for as long as a lease lasts.
        let failed_for = gives_up.map(|at| now.since(at.before(self.args.lease_length())));
        let left = gives_up.map(|at| now.until(at));
        let limit = self.args.wait;
        let limit = limit.map(|limit| limit.saturating_sub(self.begun.elapsed()));
        print_failure(error, failed_for, left.into_iter().chain(limit).min());
    }

    /// Prints once that the store does not reply for a while.
    async fn print_long_silence(&mut self) {
        let since = self.unanswered;
        let queried = self.queried.unwrap_or(self.begun).elapsed();
        if since.is_none() && queried < LOG_QUERY_INTERVAL {
            return;
        }
        let now = Instant::now();
        self.queried = Some(now);
        let since = since.unwrap_or(now);
        match self.mutex.holder().await {
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                self.unanswered = Some(since);
                if !self.silent && since.elapsed() >= LOG_SILENCE {
                    print_silence(self.mutex.name(), self.client.store(), since.elapsed());
                    self.silent = true;
                }
            }
            // The acquisition also fails if the store refuses it.
            _ => (self.unanswered, self.silent) = (None, false),
        }
    }

    /// Prints the holder and the position in the queue, if they are not those of the last message.
    async fn print_holder(&mut self, pace: Pace) {
        let queried = self.queried.is_some_and(|at| at.elapsed() < pace.queries);
        if queried || self.begun.elapsed() < pace.begins {
            return;
        }
        self.queried = Some(Instant::now());
        let (args, mutex, client) = (self.args, self.mutex, self.client);
        let reply = printing_silence(args, mutex.inspect(), |silence| {
            if !self.silent {
                print_silence(mutex.name(), client.store(), silence);
                (self.silent, self.holder) = (true, None);
            }
        });
        let reply = match reply.await {
            // The acquisition also fails, as soon as it sends a request.
            Err(error) if error.kind() == ErrorKind::Unreachable => return,
            reply => reply,
        };
        self.silent = false;
        let info = match reply {
            Ok(Some(info)) if info.lease.client != self.client.id() => Some(info),
            // It is free, or was granted meanwhile.
            Ok(_) => return,
            // The store refuses the lock, although this client may not read the holder, or its masters disagree.
            Err(_) => None,
        };
        let interval = match self.holder {
            Some(_) => pace.interval,
            None => MESSAGE_INTERVAL,
        };
        if self.printed.is_some_and(|at| at.elapsed() < interval) {
            return;
        }
        let holder = info.as_ref().map(|info| info.lease);
        let position = info.as_ref();
        let position = position.and_then(|info| holder::position(info, self.client.id()));
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
        let is_held = info.as_ref();
        let is_held = is_held.map(|info| holder::describe(info, self.store));
        self.print_wait(is_held.as_deref(), position.as_deref());
    }

    fn print_wait(&self, is_held: Option<&str>, position: Option<&str>) {
        let name = self.mutex.name();
        let is_held = is_held.unwrap_or("is held elsewhere");
        let position = position.map(|position| format!("{position} in the queue, "));
        let position = position.unwrap_or_default();
        let limit = self.args.wait.map(duration::format);
        let limit = limit.map(|limit| format!(" (at most {limit})"));
        let limit = limit.unwrap_or_default();
        note!("leasehold: {name} {is_held}; {position}waiting{limit}");
    }
}
