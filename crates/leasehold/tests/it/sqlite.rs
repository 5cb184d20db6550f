//! The SQLite store: what holds for its file, its clock and its processes, beyond the rules that
//! every store keeps.

// In a test a panic is the answer, in its helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bells;
mod damage;
mod descriptors;
mod event_log;
mod files;
mod grants;
mod load;
mod locks;
mod processes;
mod restart;
mod waiters;

use std::future::Future;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::{self, Key, Keyspace, OpenOptions, Reply, Request, SqliteStore, Store};
use leasehold_core::{
    ClientId, LeaseId, Loss, Name, Op, Outcome, ScopeName, StoreTime, TokenCount, Ttl,
};
use rusqlite::Connection;
use tempfile::TempDir;

/// How long a test waits for what must happen.
const SOON: Duration = Duration::from_secs(20);

/// A folder of its own for a file.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// The names of all files in the folder.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    async fn open(&self) -> std::sync::Arc<dyn Store> {
        store::open(&self.url(), &OpenOptions::default())
            .await
            .unwrap()
    }

    /// The file as SQLite sees it. It goes through the same library as the store, so that closing
    /// it does not take away the store's locks.
    fn database(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// Waits until no store of this process has the file open any more.
    fn wait_until_closed(&self) {
        leasehold_testkit::eventually(SOON, || {
            self.files().iter().all(|name| !name.ends_with("-wal")) && self.is_unlocked()
        });
    }

    /// Whether nobody has the file open, as the kernel lock shows. Only when SQLite has closed it:
    /// closing it here would take SQLite's locks away.
    fn is_unlocked(&self) -> bool {
        let file = std::fs::File::open(self.path()).unwrap();
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    fn count(&self, table: &str) -> i64 {
        let query = format!("SELECT count(*) FROM {table}");
        self.database()
            .query_row(&query, [], |row| row.get(0))
            .unwrap()
    }
}

fn space(tenant: &str) -> Keyspace {
    Keyspace::new(
        ScopeName::parse("test").unwrap(),
        ScopeName::parse(tenant).unwrap(),
    )
}

fn key(name: &str) -> Key {
    space("main").key(Name::parse(name).unwrap())
}

fn client(number: u8) -> ClientId {
    ClientId::from_random([number; 16])
}

fn lease(number: u64) -> LeaseId {
    LeaseId {
        client: client(1),
        number,
    }
}

fn acquire(name: &str, lease: LeaseId, ttl: Duration) -> Request {
    Request::new(
        key(name),
        Op::Acquire {
            lease,
            count: NonZeroU32::MIN,
            ttl: Ttl::checked(ttl).unwrap(),
            tokens: TokenCount::MIN,
            wait: false,
        },
    )
}

fn renew(name: &str, lease: LeaseId, ttl: Duration) -> Request {
    Request::new(
        key(name),
        Op::Renew {
            lease,
            ttl: Ttl::checked(ttl).unwrap(),
        },
    )
}

fn release(name: &str, lease: LeaseId) -> Request {
    Request::new(
        key(name),
        Op::Release {
            lease,
            count: 0,
            ttl: Ttl::USER_MIN,
        },
    )
}

/// A ttl that no test lives to see the end of.
const LONG: Duration = Duration::from_secs(3_600);

async fn one(store: &dyn Store, request: Request) -> Reply {
    let mut replies = store.apply(vec![request]).await;
    assert_eq!(replies.len(), 1);
    replies.remove(0)
}

async fn outcome(store: &dyn Store, request: Request) -> (Outcome, StoreTime) {
    match one(store, request).await {
        Reply::Applied { outcome, now } => (outcome, now),
        failed => panic!("{failed:?}"),
    }
}

async fn token(store: &dyn Store, request: Request) -> u64 {
    match outcome(store, request).await.0 {
        Outcome::Granted { first } => first.get(),
        other => panic!("{other:?}"),
    }
}

/// The error of a request that was certainly not applied.
async fn rejected(store: &dyn Store, request: Request) -> leasehold::Error {
    match one(store, request).await {
        Reply::Rejected(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Opens a file that cannot be a store, and checks kind and words of the refusal.
async fn refusal(path: &Path, kind: ErrorKind, words: &str) {
    let url = format!("sqlite:{}", path.display());
    let options = OpenOptions::default().connect_timeout(Duration::from_secs(2));
    let error = store::open(&url, &options).await.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    assert!(text.contains(words), "{text}");
    assert!(text.starts_with(&format!("store {url}: ")), "{text}");
    assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
}

/// Starts a future: its request is in the store's queue afterwards.
fn start<F: Future + ?Sized>(future: &mut Pin<Box<F>>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
}
