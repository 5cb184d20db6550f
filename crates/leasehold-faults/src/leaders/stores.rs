//! The stores of elections, and the faults of their servers.

use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold_testkit::{Masters, PostgresPair, RedisServer, Restart, SentinelSet, eventually};
use tempfile::TempDir;

use crate::admission::{self, is_admitted};
use crate::clock::{self, Nanos};
use crate::history::{Fault, FaultEvent, Journal, Note};

/// The largest ttl over many masters.
const LONGEST_TTL_MS: u64 = 2_000;

/// How long a master may take to be admitted.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(60);

const MASTERS: usize = 3;

/// The kind of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    /// A server with `appendfsync always`.
    Single,
    /// A master, two replicas and three sentinels. All replicas acknowledge each grant if `replicated` is true.
    Sentinel { replicated: bool },
    /// Three masters with `appendfsync always`.
    Masters,
    /// A primary of PostgreSQL and a standby, which is promoted.
    Postgres { synchronous: bool },
    /// A file of SQLite.
    File,
}

impl StoreKind {
    /// The ttls of candidates. In worlds with failovers some leases outlast a failover; a longer one would have 3 s until its
    /// first renewal, if a waiter was granted it.
    pub(super) fn ttls_ms(self) -> &'static [u64] {
        match self {
            Self::Single | Self::File => &[400, 600, 1_000],
            Self::Masters => &[LONGEST_TTL_MS],
            Self::Sentinel { .. } | Self::Postgres { .. } => &[2_000, 3_000],
        }
    }

    /// The number of servers that decide together.
    pub(super) fn servers(self) -> usize {
        if self == Self::Masters { MASTERS } else { 1 }
    }

    pub(super) fn is_replicated(self) -> bool {
        self == Self::Sentinel { replicated: true }
    }

    /// Whether no failover forgets a grant.
    pub(super) fn keeps_grants(self) -> bool {
        self.is_replicated() || self == Self::Postgres { synchronous: true }
    }
}

/// A running store.
pub(super) enum Store {
    Single(RedisServer),
    Sentinel(SentinelSet),
    Masters(FaultyMasters),
    Postgres(Box<PostgresPair>),
    File(TempDir),
}

/// Many masters, of which at most one is down or not admitted.
pub(super) struct FaultyMasters {
    masters: Masters,
    /// The one that is down: its fault, its number, and when it began.
    down: Option<(Fault, usize, Nanos)>,
    /// The one that may not be admitted yet, and when it was restarted.
    restarted: Option<(usize, Instant)>,
}

impl Store {
    pub(super) fn start(kind: StoreKind) -> Self {
        match kind {
            StoreKind::Single => Self::Single(RedisServer::options().append_only().start()),
            StoreKind::Sentinel { .. } => Self::Sentinel(SentinelSet::start()),
            StoreKind::Masters => Self::Masters(FaultyMasters {
                masters: Masters::aged(MASTERS),
                down: None,
                restarted: None,
            }),
            StoreKind::Postgres { synchronous } => {
                Self::Postgres(Box::new(PostgresPair::start(synchronous)))
            }
            StoreKind::File => Self::File(tempfile::tempdir().unwrap()),
        }
    }

    pub(super) fn url(&self) -> String {
        match self {
            Self::Single(server) => server.url(),
            Self::Sentinel(set) => set.url(),
            Self::Masters(FaultyMasters { masters, .. }) => {
                format!("{}?longest-ttl={LONGEST_TTL_MS}ms", masters.url())
            }
            Self::Postgres(pair) => pair.url(),
            Self::File(directory) => format!("sqlite:{}/locks.db", directory.path().display()),
        }
    }

    /// Injects the next fault of a server. `meanwhile` runs while the server is away.
    pub(super) fn inject(&mut self, rng: &mut Rng, journal: &Journal, meanwhile: impl FnOnce()) {
        match self {
            Self::Single(server) => {
                let begin = clock::now();
                server.kill9();
                meanwhile();
                server.restart(Restart::Kept);
                record(journal, Fault::RestartKept, None, begin);
            }
            Self::Sentinel(set) => fail_over(set, rng, journal, meanwhile),
            Self::Masters(masters) => {
                masters.inject(rng, journal);
                meanwhile();
            }
            Self::Postgres(pair) => {
                let overlap = rng.bool().then(|| Duration::from_millis(rng.u64(..1_000)));
                let begin = clock::now();
                pair.fail_over(overlap, meanwhile);
                record(journal, Fault::PromoteStandby, None, begin);
            }
            Self::File(_) => meanwhile(),
        }
    }

    /// Ends the last fault.
    pub(super) fn settle(&mut self, journal: &Journal) {
        match self {
            Self::Masters(masters) => masters.settle(journal),
            Self::Sentinel(set) => set.until_in_sync(),
            Self::Postgres(pair) => pair.until_in_sync(),
            Self::Single(_) | Self::File(_) => {}
        }
    }
}

impl FaultyMasters {
    /// Kills a master, or restarts the one that is down.
    fn inject(&mut self, rng: &mut Rng, journal: &Journal) {
        if self.down.is_some() {
            return self.restart(journal);
        }
        self.settle(journal);
        let nth = rng.usize(..MASTERS);
        let fault = match rng.bool() {
            true => Fault::RestartKept,
            false => Fault::RestartEmpty,
        };
        let begin = clock::now();
        self.masters.server_mut(nth).kill9();
        self.down = Some((fault, nth, begin));
    }

    fn restart(&mut self, journal: &Journal) {
        let Some((fault, nth, begin)) = self.down.take() else {
            return;
        };
        self.masters.server_mut(nth).restart(match fault {
            Fault::RestartKept => Restart::Kept,
            _ => Restart::Empty,
        });
        record(journal, fault, Some(nth), begin);
        self.restarted = Some((nth, Instant::now()));
    }

    /// Waits until all masters are admitted, so that another may forget.
    fn settle(&mut self, journal: &Journal) {
        self.restart(journal);
        if let Some((nth, at)) = self.restarted.take() {
            let longest = Duration::from_millis(LONGEST_TTL_MS) + admission::DRIFT;
            let port = self.masters.server(nth).port();
            eventually(ADMISSION_TIMEOUT, || {
                at.elapsed() > longest && is_admitted(port)
            });
        }
    }
}

/// Lets a replica take the place of its master, in one of three ways.
fn fail_over(set: &mut SentinelSet, rng: &mut Rng, journal: &Journal, meanwhile: impl FnOnce()) {
    let ways = [Fault::OrderFailover, Fault::KillMaster, Fault::StopMaster];
    let fault = ways[rng.usize(..ways.len())];
    set.until_in_sync();
    let begin = clock::now();
    let old = match fault {
        Fault::OrderFailover => set.order_failover(),
        Fault::KillMaster => set.kill_master(),
        _ => set.stop_master(),
    };
    meanwhile();
    set.master_after(old);
    match fault {
        Fault::OrderFailover => {}
        Fault::KillMaster => set.revive(old),
        _ => set.servers()[old].cont(),
    }
    set.until_in_sync();
    record(journal, fault, None, begin);
}

/// Records a fault that began at an instant and ends now.
fn record(journal: &Journal, fault: Fault, master: Option<usize>, begin: Nanos) {
    let time = (begin, clock::now());
    let event = FaultEvent {
        master,
        ..FaultEvent::new(fault, None, time, time)
    };
    journal.record(&Note::Fault(event));
}
