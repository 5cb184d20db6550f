//! The SQLite store: its file, its clock and its processes, beyond the rules for every store.

mod damage;
mod descriptors;
mod files;
mod grants;
mod load;
mod notify_sockets;
mod observers;
mod processes;
mod restart;

use std::fs;
use std::future::Future;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::__private::store::{self, OpenOptions, Reply, Request, SqliteStore, Store};
use leasehold::ErrorKind;
use leasehold::clock::{Clock, ManualClock};
use leasehold_core::Outcome;
use leasehold_testkit::helper::Commands;
use leasehold_testkit::temp_dir;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::store_client::*;
use crate::waiters::SOON;

/// A directory for a store file.
struct FileFixture {
    directory: TempDir,
}

impl FileFixture {
    fn new() -> Self {
        Self {
            directory: temp_dir(),
        }
    }

    /// A fixture, and a store on its file.
    async fn opened() -> (Self, Arc<dyn Store>) {
        let fixture = Self::new();
        let store = fixture.open().await;
        (fixture, store)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("locks.db")
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// The names of all files in the directory.
    fn files(&self) -> Vec<String> {
        names_in(self.directory.path())
    }

    async fn open(&self) -> Arc<dyn Store> {
        open(&self.url()).await
    }

    /// A store that counts its transactions.
    async fn open_with_clock(&self, clock: impl Clock) -> SqliteStore {
        let store = SqliteStore::open_with_clock(self.path(), Arc::new(clock));
        store.await.unwrap()
    }

    /// A client of each of two stores on the file.
    async fn two_clients(&self) -> [StoreClient; 2] {
        StoreClient::two_listening([&self.url(), &self.url()]).await
    }

    /// The file as SQLite sees it. It is opened through the same library as the store, so that closing
    /// it does not remove the locks of the store.
    fn database(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    fn is_sound(&self) -> bool {
        let check = "PRAGMA integrity_check";
        let checked = self.database().query_row(check, [], |row| row.get(0));
        checked == Ok("ok".to_owned())
    }

    /// Waits until no store of this process has the file open.
    fn wait_until_closed(&self) {
        leasehold_testkit::eventually(SOON, || !self.is_log_open() && self.is_unlocked());
    }

    /// Whether SQLite has the file open in this process: then it also has its log open. The existence of the log shows
    /// nothing, because two connections that are closed at the same instant leave it behind.
    fn is_log_open(&self) -> bool {
        let open = fs::read_dir("/proc/self/fd").unwrap();
        let mut targets = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok());
        let log = format!("{}-wal", self.path().display());
        targets.any(|target| target.to_string_lossy().starts_with(&log))
    }

    /// Whether the kernel lock shows that no process has the file open. Only after SQLite has closed it:
    /// closing it here would remove the locks of SQLite.
    fn is_unlocked(&self) -> bool {
        let file = fs::File::open(self.path()).unwrap();
        file.try_lock().is_ok()
    }

    fn count(&self, table: &str) -> i64 {
        let query = format!("SELECT count(*) FROM {table}");
        let count = self.database().query_row(&query, [], |row| row.get(0));
        count.unwrap()
    }
}

/// The sorted names in a directory. Empty if it does not exist.
pub(crate) fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// Creates an empty file with these permissions.
fn create(path: &Path, mode: u32) {
    fs::write(path, "").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The permissions of a file or directory.
fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Sends requests until the store has deleted some unused rows: those of a table, or those that a condition names.
async fn until_deleted(fixture: &FileFixture, store: &dyn Store, rows: &str) {
    let mut requests = 0..2_000;
    while fixture.count(rows) > 0 {
        assert!(requests.next().is_some(), "{rows} are never deleted");
        applied(store, renew("other", 1)).await;
    }
}

/// In a helper: executes a command with a file, or with its directory.
pub(crate) fn execute(command: &str, path: &str, commands: Commands) {
    match command {
        "fill" => block_on(damage::fill(path)),
        "few-files" => block_on(descriptors::open_with_few_files(path)),
        "lock-for-ever" => block_on(processes::lock_for_ever(Path::new(path))),
        "renew" => processes::renew_once(path, commands),
        _ => panic!("{command}"),
    }
}

/// A runtime in a helper.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(work)
}

/// Checks that a file cannot be opened as a store, and the kind and a part of the error.
async fn refusal(path: &Path, kind: ErrorKind, advice: &str) {
    let url = format!("sqlite:{}", path.display());
    let options = OpenOptions::default().connect_timeout(Duration::from_secs(8));
    let error = store::open_with(&url, &options).await.unwrap_err();
    assert_error(&error, kind, &[advice]);
    let text = error.to_string();
    assert!(text.starts_with(&format!("store {url}: ")), "{text}");
    assert!(!text.ends_with('.') && !text.contains('\n'), "{text}");
}
