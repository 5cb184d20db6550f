//! Random faults of a PostgreSQL server and of its holders, judged by the same checks as those of Redis.

use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use leasehold_testkit::PostgresServer;
use rustix::process::{Pid, Signal, kill_process};

use crate::checker::CheckReport;
use crate::clock;
use crate::history::{self, Fault, FaultEvent, Note};
use crate::holder::{CycleConfig, HolderConfig, Nodes, Workload};
use crate::holder_process::HolderProcess;
use crate::scenario::{RANDOM, Run, Scenario};
use crate::world::Recording;

/// The number of holder processes, and their locks.
const HOLDERS: u64 = 3;
const NAMES: [&str; 2] = ["orders", "ledger"];

/// Short, so that leases expire often.
const TTLS_MS: [u64; 3] = [400, 600, 1000];

/// The time without faults at the end.
const QUIESCE: Duration = Duration::from_millis(2500);

/// The longest time between two faults of a holder and of the server, and that of a fault.
const HOLDER_GAP_MS: u64 = 3500;
const SERVER_GAP_MS: u64 = 2500;
const LENGTH_MAX: Duration = Duration::from_millis(3 * TTLS_MS[2]);

const FAULTS: [Fault; 5] = [
    Fault::CrashDatabase,
    Fault::TerminateBackends,
    Fault::PauseListener,
    Fault::LockRow,
    Fault::HoldTransaction,
];

/// The connections of clients.
const CLIENTS: &str =
    "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

pub(crate) const SCENARIOS: &[Scenario] = &[Scenario::new(
    RANDOM,
    0,
    "postgres",
    (1, 1),
    |run| run.rounds(|round, length| run_round(run, round, length)),
    "",
    "worlds with a PostgreSQL server and three holder processes",
)];

/// A server, and what the threads of its world share.
struct Database {
    server: PostgresServer,
    recording: Recording,
    /// The port of the fenced resource.
    fence: u16,
    end: Instant,
}

/// Runs one world and checks its history.
fn run_round(run: &Run<'_>, round: u64, length: Duration) -> CheckReport {
    let recording = Recording::start();
    let database = Database {
        server: PostgresServer::start(),
        fence: recording.fence(),
        recording,
        end: Instant::now() + length,
    };
    let seed = run.seed.wrapping_add(round);
    thread::scope(|scope| {
        let database = &database;
        for number in 0..HOLDERS {
            scope.spawn(move || database.run_holder(number, seed));
        }
        scope.spawn(move || database.run_faults(&mut Rng::with_seed(seed)));
    });
    database.record_held();
    let world = history::World {
        servers: 1,
        ..history::World::default()
    };
    let label = format!("-{round}");
    database.recording.check(run, &label, true, world)
}

impl Database {
    /// Runs the holder with this number and its faults, and then ends its last process.
    fn run_holder(&self, number: u64, seed: u64) {
        let mut rng = Rng::with_seed(seed ^ ((number + 1) << 32));
        let ttl_ms = TTLS_MS[rng.usize(..TTLS_MS.len())];
        let mut incarnation = 0;
        let mut start = |seed| {
            incarnation += 1;
            let config = HolderConfig {
                process: format!("{number}-{incarnation}"),
                directory: self.recording.directory(),
                url: self.server.url(),
                ttl_ms,
                threads: 2,
                handoff: number > 0,
                nodes: Nodes::default(),
                workload: Workload::Cycle(CycleConfig {
                    names: NAMES.map(str::to_owned).to_vec(),
                    fence: self.fence,
                    seed,
                    impatient: false,
                    tasks: 3,
                    shares: false,
                }),
            };
            HolderProcess::start(&self.recording.journal, &config)
        };
        let mut process = start(rng.u64(..));
        while self.waits_for_next(rng.u64(..HOLDER_GAP_MS)) {
            if process.has_failed() {
                process = start(rng.u64(..));
            }
            if rng.bool() {
                process.kill();
                process = start(rng.u64(..));
            } else {
                process.pause(Duration::from_millis(rng.u64(ttl_ms / 5..ttl_ms * 3)));
            }
        }
        thread::sleep(self.end.saturating_duration_since(Instant::now()));
        process.end();
    }

    fn run_faults(&self, rng: &mut Rng) {
        while self.waits_for_next(rng.u64(..SERVER_GAP_MS)) {
            let fault = FAULTS[rng.usize(..FAULTS.len())];
            let name = NAMES[rng.usize(..NAMES.len())];
            let length = Duration::from_millis(rng.u64(20..TTLS_MS[2] * 3 / 2));
            let begin = clock::now();
            self.inject(fault, name, length);
            let time = (begin, clock::now());
            let event = FaultEvent::new(fault, None, time, time);
            self.recording.journal.record(&Note::Fault(event));
        }
    }

    /// Sleeps before the next fault. `false`: there is no time for it.
    fn waits_for_next(&self, gap_ms: u64) -> bool {
        let gap = Duration::from_millis(gap_ms);
        let has_time = Instant::now() + gap + LENGTH_MAX + QUIESCE < self.end;
        if has_time {
            thread::sleep(gap);
        }
        has_time
    }

    fn inject(&self, fault: Fault, name: &str, length: Duration) {
        let pids = |filter: &str| self.sql(&[&format!("SELECT pid {CLIENTS} {filter}")]);
        let seconds = length.as_secs_f64();
        let transaction = |statement: &str| {
            let sleep = format!("SELECT pg_sleep({seconds})");
            self.sql(&["BEGIN", statement, &sleep, "COMMIT"]);
        };
        match fault {
            // The server ends all connections, and recovers from its log.
            Fault::CrashDatabase => signal(&pids("ORDER BY random() LIMIT 1"), Signal::KILL),
            Fault::TerminateBackends => {
                let some = format!("SELECT pg_terminate_backend(pid) {CLIENTS} AND random() < 0.5");
                self.sql(&[&some]);
            }
            Fault::PauseListener => {
                let listeners = pids("AND query ILIKE 'LISTEN%' ORDER BY random() LIMIT 1");
                signal(&listeners, Signal::STOP);
                thread::sleep(length);
                signal(&listeners, Signal::CONT);
            }
            Fault::LockRow => {
                let row = format!("SELECT FROM leasehold.heads WHERE name = '{name}' FOR UPDATE");
                transaction(&row);
            }
            _ => transaction(&format!(
                "SELECT leasehold.held(name, split_part(value, ' ', 8)::bigint) FROM leasehold.heads \
                 WHERE name = '{name}' AND split_part(value, ' ', 5) = 'held'"
            )),
        }
    }

    /// Records what remains after all holders have ended.
    fn record_held(&self) {
        let held = "SELECT name, split_part(value, ' ', 4) FROM leasehold.heads WHERE value LIKE '% held %'";
        for line in self.server.run(&[held]).lines() {
            let (name, lease) = line.split_once('|').unwrap();
            let (name, lease) = (name.to_owned(), lease.to_owned());
            self.recording
                .journal
                .record(&Note::HeldAtEnd { name, lease });
        }
    }

    /// Runs statements, unless the server is recovering.
    fn sql(&self, statements: &[&str]) -> String {
        let mut psql = self.server.psql();
        for statement in statements {
            psql.args(["-c", statement]);
        }
        let output = psql.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Sends a signal to processes that may have ended.
fn signal(pids: &str, signal: Signal) {
    let pids = pids.lines().filter_map(|pid| pid.trim().parse().ok());
    for pid in pids.filter_map(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
