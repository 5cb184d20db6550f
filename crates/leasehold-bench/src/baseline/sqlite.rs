//! Two transactions in a file of the same directory, by hand.

use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rusqlite::{Connection, params};
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::TTL;
use crate::{Result, failed};

/// How long a transaction waits for others.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings are those of the store: what was acknowledged survives a power failure.
const SETUP: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = FULL;
    PRAGMA fullfsync = ON;
    CREATE TABLE locks (
        name TEXT NOT NULL PRIMARY KEY,
        expires_at REAL,
        token INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;";

const ACQUIRE: &str = "
    INSERT INTO locks VALUES (?1, unixepoch() + ?2, 1)
    ON CONFLICT DO UPDATE SET expires_at = excluded.expires_at, token = token + 1
    WHERE expires_at IS NULL OR expires_at < unixepoch()";

const RELEASE: &str = "UPDATE locks SET expires_at = NULL WHERE name = ?1";

/// A thread with a connection, as every program has one that does not block its runtime.
#[derive(Debug)]
pub(super) struct SqliteBaseline {
    pairs: Option<mpsc::Sender<Pair>>,
    thread: Option<JoinHandle<()>>,
    /// Removed with all that is in it, after the thread has ended.
    _directory: TempDir,
}

type Pair = (String, oneshot::Sender<rusqlite::Result<()>>);

impl SqliteBaseline {
    /// A file in a new directory beside the store of a URL.
    pub(super) fn beside(url: &str) -> Result<Self> {
        let store = Path::new(url.strip_prefix("sqlite:").unwrap_or(url));
        let parent = store.parent().unwrap_or(Path::new("/"));
        let directory = tempfile::Builder::new().prefix("bench-").tempdir_in(parent);
        let directory = directory.map_err(failed("no directory beside the store"))?;
        let db = Connection::open(directory.path().join("baseline.db"))?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        db.execute_batch(SETUP)?;
        let (pairs, queue) = mpsc::channel::<Pair>();
        let thread = thread::spawn(move || {
            for (name, reply) in queue {
                let _ = reply.send(pair(&db, &name));
            }
        });
        Ok(Self {
            pairs: Some(pairs),
            thread: Some(thread),
            _directory: directory,
        })
    }

    /// Acquires and releases, each in a transaction of its own.
    pub(super) async fn pair(&self, name: &str) -> Result<()> {
        let (reply, received) = oneshot::channel();
        let sent = self.pairs.as_ref();
        let sent = sent.is_some_and(|pairs| pairs.send((name.into(), reply)).is_ok());
        if !sent {
            return Err("the thread of the baseline has ended".into());
        }
        Ok(received.await??)
    }
}

impl Drop for SqliteBaseline {
    fn drop(&mut self) {
        self.pairs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn pair(db: &Connection, name: &str) -> rusqlite::Result<()> {
    let ttl = TTL.as_secs_f64();
    let acquired = db.prepare_cached(ACQUIRE)?.execute(params![name, ttl])?;
    let released = db.prepare_cached(RELEASE)?.execute([name])?;
    match (acquired, released) {
        (1, 1) => Ok(()),
        _ => Err(rusqlite::Error::StatementChangedRows(acquired)),
    }
}
