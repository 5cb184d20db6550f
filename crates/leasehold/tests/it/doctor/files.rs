//! Files of the SQLite store, and memory.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use leasehold::Client;
use leasehold::doctor::Severity;

use super::{examine, found, only};

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_missing_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/a/b/locks.db", folder.path().display());
    let report = examine(&url).await;
    assert!(report.severity() <= Severity::Note, "{report:#?}");
    assert_eq!(found(&report, "file").severity, Severity::Note);
    assert_eq!(report.store, url);
    assert_eq!(report.acl, None);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_looked_at_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let url = format!("sqlite:{}", path.display());
    let client = Client::connect(&url).await.unwrap();
    let guard = client.mutex("held").unwrap().lock().await.unwrap();
    let report = examine(&url).await;
    assert_eq!(found(&report, "file").severity, Severity::Ok);
    assert_eq!(found(&report, "rights").severity, Severity::Ok);
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let report = examine(&url).await;
    let finding = found(&report, "rights");
    assert_eq!(finding.severity, Severity::Warning);
    assert!(finding.mend.as_deref().unwrap().starts_with("chmod o-w "));
    guard.release().await.unwrap();

    let other = folder.path().join("other.db");
    fs::write(&other, "what somebody else has written").unwrap();
    let report = examine(&format!("sqlite:{}", other.display())).await;
    assert_eq!(found(&report, "file").severity, Severity::Danger);
    assert_eq!(fs::read(&other).unwrap(), b"what somebody else has written");
}

/// A file system that ends with the machine, where there is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_memory_is_noted() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let report = examine(&format!("sqlite:{}/locks.db", folder.path().display())).await;
    let finding = found(&report, "place");
    assert_eq!(finding.severity, Severity::Note);
    assert!(finding.seen.contains("tmpfs"), "{}", finding.seen);
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_for_one_client() {
    let report = examine("memory:").await;
    only(&report, "store", Severity::Warning);
}
