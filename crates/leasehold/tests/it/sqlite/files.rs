//! The file: its place, its content, and errors.

use std::fs;

use super::*;
use crate::store_ext::StoreExt as _;
use crate::waiters::poll_once;

#[tokio::test]
async fn the_files_are_created_for_this_user_only() {
    let fixture = FileFixture::new();
    let path = fixture.directory.path().join("100%20 #?.db");
    let url = format!("sqlite://{}", path.display());
    let store = open(&url).await;
    granted(&*store, acquire("a", 1)).await;
    assert_eq!(store.to_string(), format!("sqlite:{}", path.display()));
    let directory = path.parent().unwrap();
    for entry in fs::read_dir(directory).unwrap() {
        let file = entry.unwrap().path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_a_file_is_refused() {
    let fixture = FileFixture::new();
    let file = fixture.directory.path().join("file");
    fs::write(&file, "text").unwrap();
    let kind = ErrorKind::InvalidConfig;
    let advice = "it is a directory; name a file in it";
    refusal(fixture.directory.path(), kind, advice).await;
    refusal(Path::new("/dev/null"), kind, "not a regular file").await;
    let below = file.join("below/locks.db");
    refusal(&below, kind, "its directory does not exist").await;
    let misspelt = fixture.directory.path().join("misspelt/locks.db");
    refusal(&misspelt, kind, "its directory does not exist").await;
    let missing = Path::new("/proc/locks.db");
    refusal(missing, kind, "the file cannot be created").await;
    // The permission bits do not stop root, so a file of the kernel stands in for one without them.
    let kernel = Path::new("/proc/sys/kernel/random/boot_id");
    refusal(kernel, ErrorKind::Store, "the file is read-only").await;
    assert_eq!(fixture.files(), ["file"]);
    for url in "sqlite: sqlite:// sqlite://locks.db sqlite:~/locks.db".split(' ') {
        let error = store::open_with(url, &OpenOptions::default())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{url}");
    }
}

/// SQLite keeps the log beside the name, so two names are two stores.
#[tokio::test]
async fn a_file_with_two_names_is_refused_under_both() {
    let (fixture, store) = FileFixture::opened().await;
    granted(&*store, acquire("a", 1)).await;
    let link = fixture.directory.path().join("link.db");
    fs::hard_link(fixture.path(), &link).unwrap();
    let words = "the file has 2 names (hard links)";
    for path in [&link, &fixture.path()] {
        refusal(path, ErrorKind::InvalidConfig, words).await;
    }
    // A store that had it open before continues: no other can open it by the other name.
    assert_eq!(applied(&*store, renew("a", 1)).await, Outcome::Kept);
    fs::remove_file(&link).unwrap();
    let refused = applied(&*fixture.open().await, acquire("a", 2)).await;
    assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_file_of_another_program_is_not_changed() {
    let kind = ErrorKind::InvalidConfig;
    let fixture = FileFixture::new();
    for content in ["not a database".into(), "x".repeat(10_000)] {
        fs::write(fixture.path(), &content).unwrap();
        refusal(&fixture.path(), kind, "not a SQLite database; it was left").await;
        assert_eq!(fs::read(fixture.path()).unwrap(), content.as_bytes());
    }
    fs::remove_file(fixture.path()).unwrap();

    for mode in ["delete", "wal"] {
        let fixture = FileFixture::new();
        let foreign = fixture.database();
        let setup =
            format!("PRAGMA journal_mode = {mode}; CREATE TABLE t (x); PRAGMA user_version = 7");
        foreign.execute_batch(&setup).unwrap();
        if mode == "delete" {
            foreign.close().unwrap();
        }
        // In WAL mode it is in use by the other program, and the tables are in the log only.
        let (files, before) = (fixture.files(), contents(&fixture));
        refusal(&fixture.path(), kind, "another program").await;
        assert_eq!(fixture.files(), files);
        assert_eq!(contents(&fixture), before);
    }
}

/// The other program was killed, and its last changes are in its log. Opening the database would apply them.
#[tokio::test]
async fn the_log_of_another_program_is_not_changed() {
    let source = FileFixture::new();
    let foreign = source.database();
    foreign
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        .unwrap();
    let fixture = FileFixture::new();
    for name in ["locks.db", "locks.db-wal"] {
        let to = fixture.directory.path().join(name);
        fs::copy(source.directory.path().join(name), to).unwrap();
    }
    let before = contents(&fixture);
    let kind = ErrorKind::InvalidConfig;
    refusal(&fixture.path(), kind, "another program").await;
    assert_eq!(fixture.files(), ["locks.db", "locks.db-wal"]);
    assert_eq!(contents(&fixture), before);
}

/// Reads the files. Only when no store of this process has them open: closing them would take its
/// locks away.
fn contents(fixture: &FileFixture) -> Vec<Vec<u8>> {
    let files = fixture.files();
    let files = files.iter().filter(|name| !name.ends_with("-shm"));
    let read = |name| fs::read(fixture.directory.path().join(name)).unwrap();
    files.map(read).collect()
}

#[tokio::test]
async fn a_file_of_another_version_is_refused_and_left_unchanged() {
    let fixture = FileFixture::new();
    drop(fixture.open().await);
    fixture.wait_until_closed();
    for (version, kind, words) in [
        (
            8,
            ErrorKind::InvalidConfig,
            "made by a newer leasehold (format 8, this one knows 7)",
        ),
        (
            6,
            ErrorKind::InvalidConfig,
            "made by an older leasehold (format 6, this one knows 7); stop the programs that use it and delete it",
        ),
        (0, ErrorKind::Store, "the file is damaged"),
    ] {
        let database = fixture.database();
        database
            .pragma_update(None, "user_version", version)
            .unwrap();
        database.close().unwrap();
        let before = contents(&fixture);
        refusal(&fixture.path(), kind, words).await;
        assert_eq!(contents(&fixture), before);
    }
}

#[tokio::test]
async fn a_locked_file_is_a_store_that_cannot_be_reached() {
    let fixture = FileFixture::new();
    // Another process is creating the file, and does not finish.
    let other = fixture.database();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let words = "another process keeps the file locked";
    refusal(&fixture.path(), ErrorKind::Unreachable, words).await;
    other.execute_batch("COMMIT").unwrap();

    let store = open(&fixture.url()).await;
    let other = fixture.database();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = rejected(&*store, acquire("a", 1)).await;
    assert_error(&error, ErrorKind::Unreachable, &[words]);
    // An inspection is not delayed.
    assert_eq!(store.inspect(&key("a")).await.unwrap(), None);
    other.execute_batch("COMMIT").unwrap();
    granted(&*store, acquire("a", 1)).await;
}

#[tokio::test]
async fn each_request_has_its_own_timeout_for_a_locked_file() {
    let fixture = FileFixture::new();
    let options = OpenOptions::default().response_timeout(Duration::from_secs(8));
    let store = open_with(&fixture.url(), options.clone()).await;
    let other = fixture.database();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let [mut first, mut second] =
        ["first", "second"].map(|name| store.apply(vec![acquire(name, 1)]));
    assert!(poll_once(&mut first).is_pending());
    tokio::time::sleep(options.response_timeout * 3 / 4).await;
    assert!(poll_once(&mut second).is_pending());
    let replies = first.await;
    assert!(matches!(replies[0], Reply::Rejected(_)), "{replies:?}");
    // Long before the second one times out.
    other.execute_batch("COMMIT").unwrap();
    assert!(is_granted(&second.await[0]));
}
