//! The file: where it may be, what it may be, and what is said if it may not.

use std::fs;

use super::*;

#[tokio::test]
async fn the_folder_and_the_file_are_made_for_this_user_only() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::new();
    let path = place.folder.path().join("state/leasehold/100%20 #?.db");
    let url = format!("sqlite://{}", path.display());
    let store = store::open(&url, &OpenOptions::default()).await.unwrap();
    token(&*store, acquire("a", lease(1), LONG)).await;
    assert_eq!(store.to_string(), format!("sqlite:{}", path.display()));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = path.parent().unwrap();
    assert_eq!(mode(folder.parent().unwrap()), 0o700);
    assert_eq!(mode(folder), 0o700);
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

#[tokio::test]
async fn a_path_that_cannot_be_a_file_is_refused() {
    let place = Place::new();
    let file = place.folder.path().join("file");
    fs::write(&file, "text").unwrap();
    let kind = ErrorKind::InvalidConfig;
    refusal(
        place.folder.path(),
        kind,
        "it is a directory; name a file in it",
    )
    .await;
    refusal(Path::new("/dev/null"), kind, "not a regular file").await;
    let below = file.join("below/locks.db");
    refusal(&below, kind, "its directory cannot be created").await;
    refusal(
        Path::new("/proc/locks.db"),
        kind,
        "the file cannot be created",
    )
    .await;
    assert_eq!(place.files(), ["file"]);
}

#[tokio::test]
async fn a_url_that_names_no_file_is_refused() {
    for url in [
        "sqlite:",
        "sqlite://",
        "sqlite://locks.db",
        "sqlite:~/locks.db",
    ] {
        let error = store::open(url, &OpenOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{url}");
    }
}

/// SQLite keeps the log beside the name, so two names are two stores.
#[tokio::test]
async fn a_file_with_two_names_is_refused_under_both() {
    let place = Place::new();
    let store = place.open().await;
    token(&*store, acquire("a", lease(1), LONG)).await;
    let link = place.folder.path().join("link.db");
    fs::hard_link(place.path(), &link).unwrap();
    let words = "the file has 2 names (hard links)";
    for path in [&link, &place.path()] {
        refusal(path, ErrorKind::InvalidConfig, words).await;
    }
    // Who had it open before goes on: nobody can open it by the other name.
    let (renewed, _) = outcome(&*store, renew("a", lease(1), LONG)).await;
    assert_eq!(renewed, Outcome::Renewed);
    fs::remove_file(&link).unwrap();
    let (refused, _) = outcome(&*place.open().await, acquire("a", lease(2), LONG)).await;
    assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");
}

/// The permission bits do not stop root, so a file of the kernel stands in for one without them.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused() {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    refusal(path, ErrorKind::Store, "the file is read-only").await;
}

#[tokio::test]
async fn a_file_of_another_program_is_left_as_it_is() {
    let kind = ErrorKind::InvalidConfig;
    let place = Place::new();
    for content in ["not a database".into(), "x".repeat(10_000)] {
        fs::write(place.path(), &content).unwrap();
        refusal(&place.path(), kind, "not a SQLite database; it was left").await;
        assert_eq!(fs::read(place.path()).unwrap(), content.as_bytes());
    }
    fs::remove_file(place.path()).unwrap();

    for mode in ["delete", "wal"] {
        let place = Place::new();
        let foreign = place.database();
        let setup =
            format!("PRAGMA journal_mode = {mode}; CREATE TABLE t (x); PRAGMA user_version = 7");
        foreign.execute_batch(&setup).unwrap();
        if mode == "delete" {
            foreign.close().unwrap();
        }
        // In WAL mode it is in use by the other program, and the tables are in the log only.
        let (files, before) = (place.files(), contents(&place));
        refusal(&place.path(), kind, "another program").await;
        assert_eq!(place.files(), files);
        assert_eq!(contents(&place), before);
    }
}

/// The other program was killed, and what it wrote last is in its log. Whoever opens the database
/// would fold it in.
#[tokio::test]
async fn the_log_of_another_program_is_left_as_it_is() {
    let source = Place::new();
    let foreign = source.database();
    foreign
        .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        .unwrap();
    let place = Place::new();
    for name in ["locks.db", "locks.db-wal"] {
        let to = place.folder.path().join(name);
        fs::copy(source.folder.path().join(name), to).unwrap();
    }
    let before = contents(&place);
    let kind = ErrorKind::InvalidConfig;
    refusal(&place.path(), kind, "another program").await;
    assert_eq!(place.files(), ["locks.db", "locks.db-wal"]);
    assert_eq!(contents(&place), before);
}

/// Reads the files. Only when no store of this process has them open: closing them would take its
/// locks away.
fn contents(place: &Place) -> Vec<Vec<u8>> {
    let files = place.files();
    let shm = |name: &&String| !name.ends_with("-shm");
    files
        .iter()
        .filter(shm)
        .map(|name| fs::read(place.folder.path().join(name)).unwrap())
        .collect()
}

#[tokio::test]
async fn an_empty_file_is_taken_over_with_its_permissions() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o660)).unwrap();
    token(&*place.open().await, acquire("a", lease(1), LONG)).await;
    let mode = fs::metadata(place.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
}

#[tokio::test]
async fn a_file_of_a_newer_leasehold_is_refused() {
    let place = Place::new();
    drop(place.open().await);
    place
        .database()
        .pragma_update(None, "user_version", 2)
        .unwrap();
    let words = "made by a newer leasehold (format 2, this one knows 1)";
    refusal(&place.path(), ErrorKind::InvalidConfig, words).await;
}

#[tokio::test]
async fn a_locked_file_is_a_store_that_cannot_be_reached() {
    let place = Place::new();
    // A file that is being created by somebody who does not come to an end.
    let other = place.database();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let words = "another process keeps the file locked";
    refusal(&place.path(), ErrorKind::Unreachable, words).await;
    other.execute_batch("COMMIT").unwrap();

    let options = OpenOptions::default().response_timeout(Duration::from_millis(300));
    let store = store::open(&place.url(), &options).await.unwrap();
    let other = place.database();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = rejected(&*store, acquire("a", lease(1), LONG)).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains(words), "{error}");
    // Who only looks is not held up.
    assert_eq!(store.inspect(&key("a")).await.unwrap(), None);
    other.execute_batch("COMMIT").unwrap();
    token(&*store, acquire("a", lease(1), LONG)).await;
}

/// Who asked later waits on when another is told that it waited long enough.
#[tokio::test]
async fn each_request_waits_its_own_time_for_a_locked_file() {
    let place = Place::new();
    let options = OpenOptions::default().response_timeout(Duration::from_millis(1_600));
    let store = store::open(&place.url(), &options).await.unwrap();
    let other = place.database();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut waiting = Vec::new();
    for name in ["first", "second", "third"] {
        let mut asked = store.apply(vec![acquire(name, lease(1), LONG)]);
        start(&mut asked);
        waiting.push(asked);
        tokio::time::sleep(options.response_timeout / 4).await;
    }
    let third = waiting.pop().unwrap();
    for asked in waiting {
        let replies = asked.await;
        assert!(matches!(replies[0], Reply::Rejected(_)), "{replies:?}");
    }
    other.execute_batch("COMMIT").unwrap();
    let replies = third.await;
    assert!(matches!(replies[0], Reply::Applied { .. }), "{replies:?}");
}

#[tokio::test]
async fn holders_learn_that_the_file_was_deleted() {
    let place = Place::new();
    let store = place.open().await;
    let first = token(&*store, acquire("a", lease(1), LONG)).await;
    // Only the file itself: what SQLite keeps beside it must not be taken for the new file's.
    fs::remove_file(place.path()).unwrap();
    let other = place.open().await;
    let second = token(&*other, acquire("a", lease(2), LONG)).await;
    assert!(second > first);

    let (lost, _) = outcome(&*store, renew("a", lease(1), LONG)).await;
    assert_eq!(lost, Outcome::Lost(Loss::TakenOver));
    let (refused, _) = outcome(&*store, acquire("a", lease(3), LONG)).await;
    assert!(matches!(refused, Outcome::Refused { .. }), "{refused:?}");

    // All of it is gone, and nobody has made it anew.
    for name in place.files() {
        fs::remove_file(place.folder.path().join(name)).unwrap();
    }
    let (lost, _) = outcome(&*other, renew("a", lease(2), LONG)).await;
    assert_eq!(lost, Outcome::Lost(Loss::Gone));
    token(&*store, acquire("a", lease(4), LONG)).await;
}
