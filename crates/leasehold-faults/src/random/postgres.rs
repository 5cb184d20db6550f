//! A PostgreSQL server, and its faults.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use leasehold_testkit::PostgresServer;
use rustix::process::{Pid, Signal, kill_process};

use super::plan::{NAMES, Plan, TTLS_MS};
use super::{Sequence, Store, Timed, Usage};
use crate::history::Fault;

/// The connections of clients.
const CLIENTS: &str =
    "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

const ROWS: &str =
    "SELECT (SELECT count(*) FROM leasehold.heads) + (SELECT count(*) FROM leasehold.members)";

pub(super) struct Postgres {
    server: Mutex<PostgresServer>,
    url: String,
}

impl Store for Postgres {
    const HAS_TIMES: bool = true;
    const TTLS_MS: [u64; 4] = TTLS_MS;
    const LINK_FAULTS: u8 = 0;
    const FAULTS: &'static [Fault] = &[
        Fault::CrashDatabase,
        Fault::TerminateBackends,
        Fault::PauseListener,
        Fault::LockRow,
        Fault::HoldTransaction,
    ];

    fn start(_: &Plan) -> Self {
        let server = PostgresServer::start();
        Self {
            url: server.url(),
            server: Mutex::new(server),
        }
    }

    fn url(&self, _: usize) -> String {
        self.url.clone()
    }

    fn inject(&self, _: &Sequence, timed: &Timed) {
        let length = Duration::from_millis(timed.length_ms);
        let name = NAMES[timed.name];
        let pids = |filter: &str| self.sql(&[&format!("SELECT pid {CLIENTS} {filter}")]);
        let transaction = |statement: &str| {
            let sleep = format!("SELECT pg_sleep({})", length.as_secs_f64());
            self.sql(&["BEGIN", statement, &sleep, "COMMIT"]);
        };
        match timed.fault {
            Fault::CrashDatabase if timed.name == 0 => self.server.lock().unwrap().restart(),
            // Not the postmaster, which ends all connections, and recovers from its log.
            Fault::CrashDatabase => signal(&pids("ORDER BY random() LIMIT 1"), Signal::KILL),
            Fault::TerminateBackends => {
                let some = format!("SELECT pg_terminate_backend(pid) {CLIENTS} AND random() < 0.5");
                self.sql(&[&some]);
            }
            Fault::PauseListener => {
                // The last statement of a listener is not LISTEN, but it keeps the locks of its clients.
                let of_listener = "AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' \
                                   AND mode = 'ShareLock') ORDER BY random() LIMIT 1";
                let listeners = pids(of_listener);
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

    fn usage(&self) -> Usage {
        // The server of a test does not do so by itself.
        self.sql(&["VACUUM"]);
        let pids = self.sql(&["SELECT pid FROM pg_stat_activity"]);
        let directory = self.server.lock().unwrap().directory().join("data");
        Usage {
            pids: pids.lines().filter_map(|pid| pid.parse().ok()).collect(),
            data: vec![directory],
            entries: self.sql(&[ROWS]).trim().parse().ok(),
        }
    }
}

impl Postgres {
    /// Runs statements, unless the server is recovering.
    fn sql(&self, statements: &[&str]) -> String {
        let mut psql = self.server.lock().unwrap().psql();
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
