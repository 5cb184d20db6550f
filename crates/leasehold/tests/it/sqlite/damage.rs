//! What fails in the middle: damaged records, damaged files, disks that take no more.

use std::fs::OpenOptions as FileOptions;
use std::process::Command;

use leasehold_testkit::RunToEnd as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::event_log::Asker;
use super::*;

#[tokio::test]
async fn a_damaged_record_is_an_error_of_that_lock_only() {
    let values = [
        "client = 'nobody'",
        "client = X'00', count = 1",
        "count = 0",
        "count = NULL",
        "number = NULL",
        "expires_at = -1",
        "expires_at = NULL",
        "last_token = 0",
        "last_token = -5",
        "last_token = 9223372036854775807",
    ];
    let place = Place::new();
    let store = place.open().await;
    for value in values {
        outcome(&*store, acquire("bad", lease(1), LONG)).await;
        let damage = format!("UPDATE records SET {value} WHERE name = 'bad'");
        let database = place.database();
        // The tables are strict; whatever damages a row does not ask them.
        if database.execute(&damage, []).is_err() {
            continue;
        }
        let batch = vec![
            acquire("good", lease(1), LONG),
            acquire("bad", lease(1), LONG),
            release("good", lease(1)),
        ];
        let replies = store.apply(batch).await;
        assert!(matches!(replies[0], Reply::Applied { .. }), "{value}");
        assert!(matches!(replies[2], Reply::Applied { .. }), "{value}");
        let Reply::Rejected(error) = &replies[1] else {
            panic!("{value}: {replies:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Store);
        let text = error.to_string();
        let start = format!(r#"lock "bad" at {}: its record is damaged"#, place.url());
        assert!(text.starts_with(&start), "{value}: {text}");
        let list = store.list(&space("main")).await.unwrap_err();
        assert!(list.to_string().starts_with(&start), "{value}: {list}");

        // An operator frees it, and that fixes it.
        let revoke = Request::new(key("bad"), Op::Revoke);
        let (revoked, _) = outcome(&*store, revoke).await;
        assert_eq!(revoked, Outcome::Revoked { cut_off: None });
        token(&*store, acquire("bad", lease(2), LONG)).await;
        outcome(&*store, release("bad", lease(2))).await;
        assert_eq!(store.list(&space("main")).await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_damaged_queue_is_an_error_of_that_lock_only() {
    let damages = [
        "UPDATE records SET queue_until = -1 WHERE name = 'bad'",
        "UPDATE waiters SET client = 'nobody' WHERE name = 'bad'",
        "UPDATE waiters SET ttl = 0 WHERE name = 'bad'",
        "UPDATE waiters SET ttl = -5 WHERE name = 'bad'",
        "UPDATE waiters SET tokens = 0 WHERE name = 'bad'",
        "UPDATE waiters SET position = position - 10 WHERE name = 'bad'",
        "UPDATE waiters SET position = 9223372036854775807 - position WHERE name = 'bad'",
    ];
    let place = Place::new();
    let store = place.open().await;
    let asker = Asker::on(&store, 11).await;
    for damage in damages {
        for name in ["bad", "good"] {
            asker.take(name, 1).await;
            assert_eq!(asker.wait(name, 2).await, Some(0));
            assert_eq!(asker.wait(name, 3).await, Some(1));
        }
        let changed = place.database().execute(damage, []).unwrap();
        assert!(changed > 0, "{damage}");
        let batch = vec![
            release("bad", asker.lease(1)),
            release("good", asker.lease(1)),
        ];
        let replies = store.apply(batch).await;
        assert!(matches!(replies[1], Reply::Applied { .. }), "{damage}");
        let Reply::Rejected(error) = &replies[0] else {
            panic!("{damage}: {replies:?}");
        };
        let words = "its record is damaged";
        assert!(error.to_string().contains(words), "{damage}: {error}");
        assert_eq!(asker.hears(2).await.len(), 2, "both who wait for the other");
        for number in [2, 3] {
            asker.release("good", number).await;
        }
        asker.hears(1).await;

        let revoke = Request::new(key("bad"), Op::Revoke);
        let (revoked, _) = outcome(&*store, revoke).await;
        assert_eq!(revoked, Outcome::Revoked { cut_off: None });
        assert_eq!(place.count("waiters"), 0, "{damage}");
    }
}

/// Rows that no record knows of do not come up in a new queue.
#[tokio::test]
async fn waiters_without_a_queue_are_forgotten() {
    let place = Place::new();
    let store = place.open().await;
    let asker = Asker::on(&store, 11).await;
    asker.take("a", 1).await;
    for number in 2..6 {
        asker.wait("a", number).await;
    }
    let damage = "UPDATE records SET queue_until = NULL";
    place.database().execute(damage, []).unwrap();
    assert_eq!(asker.wait("a", 6).await, Some(0));
    assert_eq!(asker.wait("a", 7).await, Some(1));
    assert_eq!(place.count("waiters"), 2);
    // And a record that says it has one, without a row.
    place.database().execute("DELETE FROM waiters", []).unwrap();
    asker.release("a", 1).await;
    assert_eq!(asker.take_heard(), []);
    asker.take("a", 8).await;
}

#[tokio::test]
async fn a_damaged_file_is_told_and_its_store_lives_on() {
    let place = Place::new();
    let store = place.open().await;
    let names = (0..3_000).map(|number| format!("n{number}"));
    let batch = names.map(|name| acquire(&name, lease(1), LONG));
    store.apply(batch.collect()).await;
    // Everything is in the file itself, and then everything after the roots of the tables is noise.
    let database = place.database();
    database
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    overwrite(&place.path(), 5);
    // The store sees that somebody wrote, so it does not answer from its memory.
    database.execute_batch("UPDATE meta SET id = id").unwrap();
    drop(database);
    let error = rejected(&*store, renew("n1234", lease(1), LONG)).await;
    assert_eq!(error.kind(), ErrorKind::Store);
    let words = "the file is damaged; stop the programs that use it and delete it";
    assert!(error.to_string().contains(words), "{error}");
    refusal_or_error(&place).await;

    // That is what the message says, and it helps.
    std::fs::remove_file(place.path()).unwrap();
    token(&*store, acquire("n1234", lease(2), LONG)).await;
    assert_eq!(store.list(&space("main")).await.unwrap().len(), 1);
}

/// Whoever opens the damaged file is told then or at the first lock, and nothing is granted.
async fn refusal_or_error(place: &Place) {
    let error = match store::open(&place.url(), &OpenOptions::default()).await {
        Ok(store) => rejected(&*store, acquire("n1234", lease(2), LONG)).await,
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::Store);
    assert!(error.to_string().contains("the file is damaged"), "{error}");
}

/// Overwrites all pages after the first ones. By another process: closing the file in this one
/// would take the store's locks away.
fn overwrite(path: &Path, pages: u64) {
    let length = std::fs::metadata(path).unwrap().len() / 4_096;
    assert!(length > pages + 10, "{length} pages");
    let status = Command::new("dd")
        .args(["if=/dev/urandom", "bs=4096", "conv=notrunc", "status=none"])
        .arg(format!("of={}", path.display()))
        .arg(format!("seek={pages}"))
        .arg(format!("count={}", length - pages))
        .status();
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn a_file_that_was_cut_off_is_told() {
    let place = Place::new();
    drop(place.open().await);
    wait_until_closed(&place);
    let file = FileOptions::new().write(true).open(place.path()).unwrap();
    file.set_len(4_096).unwrap();
    drop(file);
    refusal(&place.path(), ErrorKind::Store, "the file is damaged").await;
}

fn wait_until_closed(place: &Place) {
    let deadline = std::time::Instant::now() + SOON;
    while place.files() != ["locks.db"] {
        assert!(std::time::Instant::now() < deadline, "{:?}", place.files());
        std::thread::yield_now();
    }
}

/// A limit on the size of files makes the disk refuse to write in the middle of a commit. It is one
/// of the process, so the test runs in a child.
#[test]
fn a_commit_that_fails_is_unknown_and_the_store_lives_on() {
    const PATH: &str = "LEASEHOLD_TEST_LIMITED";
    if let Ok(path) = std::env::var(PATH) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        return runtime.unwrap().block_on(fill(Path::new(&path)));
    }
    let place = Place::new();
    let me = std::env::current_exe().unwrap();
    let name = "sqlite::damage::a_commit_that_fails_is_unknown_and_the_store_lives_on";
    // The signal that goes with the limit would kill the process; ignored it is inherited.
    let output = Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#])
        .arg(me)
        .args(["--exact", name, "--nocapture"])
        .env(PATH, place.path())
        .run_to_end();
    assert!(output.status.success(), "{output:?}");
    let check: String = place
        .database()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
}

async fn fill(path: &Path) {
    let url = format!("sqlite:{}", path.display());
    let store = store::open(&url, &OpenOptions::default()).await.unwrap();
    let holder = Asker::on(&store, 11).await;
    let first = holder.take("before", 1).await;
    assert_eq!(holder.wait("before", 2).await, Some(0));
    let limit = getrlimit(Resource::Fsize);
    let little = Rlimit {
        current: Some(64 * 1024),
        ..limit
    };
    setrlimit(Resource::Fsize, little).unwrap();
    let batch = |lease| {
        let names = (0..3_000).map(|number| format!("n{number}"));
        names
            .map(|name| acquire(&name, lease, LONG))
            .collect::<Vec<_>>()
    };
    // The first of them grants the lock, and that fails with the others.
    let mut requests = batch(lease(2));
    requests.insert(0, release("before", holder.lease(1)));
    let replies = store.apply(requests).await;
    assert_eq!(replies.len(), 3_001);
    for reply in &replies {
        let Reply::Unknown(error) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        assert!(error.to_string().starts_with(&format!("store {url}: ")));
    }
    setrlimit(Resource::Fsize, limit).unwrap();
    assert_eq!(holder.take_heard(), []);
    let entry = store.inspect(&key("before")).await.unwrap().unwrap();
    assert_eq!(entry.token.unwrap().get(), first);
    holder.release("before", 1).await;
    assert!(holder.granted("before", 2).await.first.get() > first);
    for reply in store.apply(batch(lease(3))).await {
        let granted = matches!(
            reply,
            Reply::Applied {
                outcome: Outcome::Granted { .. },
                ..
            }
        );
        assert!(granted, "{reply:?}");
    }
}
