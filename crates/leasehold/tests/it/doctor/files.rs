//! Files of the SQLite store, and memory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use leasehold::Client;
use leasehold::doctor::Severity::{self, Danger, Note, Warning};
use leasehold_testkit::temp_dir;
use rusqlite::Connection;
use tempfile::TempDir;

use super::{assert_found, diagnose, found, only};

/// A directory, a path in it, and the URL of the store there.
fn file() -> (TempDir, PathBuf, String) {
    let directory = temp_dir();
    let path = directory.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    (directory, path, url)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_missing_is_not_made() {
    let (directory, _path, url) = file();
    let report = diagnose(&url).await;
    assert!(report.severity() <= Note, "{report:#?}");
    assert_eq!(found(&report, "file").severity, Severity::Ok);
    assert_eq!(report.store, url);
    assert_eq!(report.acl, None);
    let misspelt = format!("sqlite:{}/a/b/locks.db", directory.path().display());
    let report = diagnose(&misspelt).await;
    assert_eq!(found(&report, "directory").severity, Danger);
    assert_eq!(found(&report, "file").observed, "it does not exist yet");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_diagnosed_without_changes() {
    let (directory, path, url) = file();
    let client = Client::connect(&url).await.unwrap();
    let guard = client.mutex("held").unwrap().lock().await.unwrap();
    let report = diagnose(&url).await;
    assert_eq!(found(&report, "file").severity, Severity::Ok);
    assert_eq!(found(&report, "rights").severity, Severity::Ok);
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let report = diagnose(&url).await;
    assert_found(&report, "rights", Warning, "", "chmod o-w ");
    guard.release().await.unwrap();

    let other = directory.path().join("other.db");
    fs::write(&other, "what somebody else has written").unwrap();
    let report = diagnose(&format!("sqlite:{}", other.display())).await;
    assert_eq!(found(&report, "file").severity, Danger);
    assert_eq!(fs::read(&other).unwrap(), b"what somebody else has written");
}

/// A file system that ends with the machine, where there is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_memory_is_noted() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let report = diagnose(&format!("sqlite:{}/locks.db", directory.path().display())).await;
    assert_found(&report, "file-system", Note, "tmpfs", "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_two_names_is_a_danger() {
    let (directory, path, url) = file();
    drop(Client::connect(&url).await.unwrap());
    fs::hard_link(&path, directory.path().join("link.db")).unwrap();
    let report = diagnose(&url).await;
    assert_found(&report, "file", Danger, "hard links", "");
}

/// The reader is another program in the middle of a transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_a_reader_lets_grow_is_warned_of() {
    // Larger than the memory that a container has for files.
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    let _client = Client::connect(&url).await.unwrap();
    let [writer, reader] = [(); 2].map(|()| Connection::open(&path).unwrap());
    let read = "BEGIN; SELECT count(*) FROM heads";
    reader.execute_batch(read).unwrap();
    writer
        .execute_batch("PRAGMA synchronous = OFF; CREATE TABLE filler (x)")
        .unwrap();
    for _ in 0..17 {
        let fill = "INSERT INTO filler VALUES (zeroblob(4194304)); DELETE FROM filler";
        writer.execute_batch(fill).unwrap();
    }
    let report = diagnose(&url).await;
    assert_found(&report, "log", Warning, "", "fuser");
}

/// A path that leads nowhere is not a file that is still to be created.
#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_cannot_be_followed_is_a_danger() {
    let (directory, path, _url) = file();
    fs::write(&path, "").unwrap();
    for path in [
        path.join("locks.db"),
        directory.path().join("a".repeat(300)),
    ] {
        let report = diagnose(&format!("sqlite:{}", path.display())).await;
        assert_found(&report, "file", Danger, "leads nowhere", "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_for_one_client() {
    let report = diagnose("memory:").await;
    only(&report, "store", Warning, "", "");
}
