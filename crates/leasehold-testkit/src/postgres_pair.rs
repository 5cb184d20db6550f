//! A primary and a standby of PostgreSQL, which change places.

use std::thread;
use std::time::Duration;

use crate::postgres::{PostgresServer, Setup};
use crate::process::kill;
use crate::wait::eventually;

/// How long the standby may take to receive what the primary has.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The connection of the standby by its name: a synchronous primary must not take that of a backup for it.
const STREAM: &str = "FROM pg_stat_replication WHERE application_name = 'standby'";

/// Two servers. They end when the pair is dropped.
pub struct PostgresPair {
    servers: [PostgresServer; 2],
    primary: usize,
    /// The process of the primary that is stopped.
    stopped: Option<u32>,
}

impl PostgresPair {
    /// Starts both. A synchronous pair acknowledges what the standby has written, and nothing without a standby.
    ///
    /// # Panics
    ///
    /// If PostgreSQL is missing or does not come up.
    #[must_use]
    pub fn start(synchronous: bool) -> Self {
        let settings = match synchronous {
            true => "-c max_wal_senders=8 -c synchronous_standby_names=standby",
            false => "-c max_wal_senders=8",
        };
        let setup = |follows: String| Setup {
            follows,
            settings,
            ..Setup::default()
        };
        let primary = PostgresServer::start_on(|_| setup(String::new()));
        let follows = primary.connection();
        let pair = Self {
            servers: [primary, PostgresServer::start_on(|_| setup(follows))],
            primary: 0,
            stopped: None,
        };
        pair.until_in_sync();
        pair
    }

    /// The URL of both, without a pooler.
    #[must_use]
    pub fn url(&self) -> String {
        let [first, second] = self.servers.each_ref().map(PostgresServer::port);
        format!("postgres://testkit@127.0.0.1:{first},127.0.0.1:{second}/postgres")
    }

    /// Waits until the standby has what the primary has now.
    ///
    /// # Panics
    ///
    /// If it takes too long.
    pub fn until_in_sync(&self) {
        let primary = &self.servers[self.primary];
        let end = primary.run(&["SELECT pg_current_wal_lsn()"]);
        let count = format!("SELECT count(*) {STREAM} AND flush_lsn >= '{end}'");
        eventually(TIMEOUT, || primary.run(&[&count]) == "1");
    }

    /// Ends all waits for the standby, as a person does who wants the primary to go on without it. Returns whether there
    /// was one.
    pub fn end_waits(&self) -> bool {
        let query = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        self.servers[self.primary].run(&[query]) != "0"
    }

    /// Stops the process that sends to the standby, until the primary ends.
    ///
    /// # Panics
    ///
    /// If nothing is sent.
    pub fn stop_stream(&mut self) {
        let query = format!("SELECT pid {STREAM}");
        let pid = self.servers[self.primary].run(&[&query]);
        let pid = pid.parse().expect("a process that sends");
        kill("STOP", pid);
        self.stopped = Some(pid);
    }

    /// Promotes the standby, and makes the primary the standby of it. The primary crashes before, or so long after the
    /// promotion. `meanwhile` runs before the promotion.
    ///
    /// # Panics
    ///
    /// If the standby is not promoted.
    pub fn fail_over(&mut self, overlap: Option<Duration>, meanwhile: impl FnOnce()) {
        let old = self.primary;
        self.primary = 1 - old;
        if overlap.is_none() {
            self.servers[old].crash();
        }
        meanwhile();
        let promoted = self.servers[self.primary].run(&["SELECT pg_promote()"]);
        assert_eq!(promoted, "t", "the standby is not promoted");
        if let Some(overlap) = overlap {
            thread::sleep(overlap);
            self.servers[old].crash();
        }
        // It does not notice the crash.
        if let Some(stopped) = self.stopped.take() {
            kill("KILL", stopped);
        }
        let follows = self.servers[self.primary].connection();
        self.servers[old].follow(follows);
        self.until_in_sync();
    }
}
