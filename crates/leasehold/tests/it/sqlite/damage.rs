//! Damaged records and files, and disks that refuse to write.

use std::fs::OpenOptions as FileOptions;
use std::process::Command;

use leasehold::__private::store::{CompletionKey, Event, EventScope, Notice, Slot};
use leasehold_core::StoreTime;
use leasehold_sim::history::{Histories, Shape, timed};
use leasehold_testkit::Helper;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;
use crate::differential::shares;
use crate::processes::child::finish;
use crate::store_ext::StoreExt as _;

/// A revocation repairs it.
#[tokio::test]
async fn a_damaged_record_is_an_error_of_that_lock_only() {
    let damages = [
        "heads SET value = ''",
        "heads SET value = '2' || substr(value, 2)",
        "heads SET value = replace(value, 'mutex', 'lock')",
        "heads SET value = replace(value, ' held 1 ', ' held 0 ')",
        "heads SET value = replace(value, ' held ', ' 9 ')",
        "heads SET value = substr(value, 1, 60)",
        "heads SET value = '1 0' || substr(value, instr(value, ' mutex'))",
        "heads SET value = value || ' more'",
        "heads SET value = CAST(X'31FF' AS TEXT)",
        "heads SET value = replace(value, ' queue 2 ', ' queue -2 ')",
        "members SET id = 'nobody ' || place",
        "members SET value = '1'",
        "members SET value = value || ' more'",
        "members SET value = CAST(X'31FF' AS TEXT)",
        "members SET place = place + 10",
        "members SET place = 9223372036854775807 - place",
    ];
    let (fixture, store) = FileFixture::opened().await;
    let start = format!(r#"lock "bad" at {}: its record is damaged"#, fixture.url());
    let client = StoreClient::listening(&store, 11).await;
    for damage in damages {
        for name in ["bad", "good"] {
            client.acquire(name, 1).await;
            assert_eq!(client.wait(name, 2).await, 0);
            assert_eq!(client.wait(name, 3).await, 1);
        }
        let sql = format!("UPDATE {damage} WHERE name = 'bad'");
        let changed = fixture.database().execute(&sql, []).unwrap();
        assert!(changed > 0, "{damage}");
        let batch = ["bad", "good"].map(|name| client.own(release(name, 1)));
        let replies = store.apply(batch.into()).await;
        assert!(matches!(replies[1], Reply::Applied { .. }), "{damage}");
        let error = error(&replies[0]);
        assert_eq!(error.kind(), ErrorKind::Store, "{damage}");
        assert!(error.to_string().starts_with(&start), "{damage}: {error}");
        // The grant and the notice to the next.
        client.next_events(2).await;
        for number in [2, 3] {
            client.release("good", number).await;
        }
        client.next_events(1).await;

        let known: Vec<_> = if damage.starts_with("heads") {
            let list = store.held(&space()).await.unwrap_err();
            assert!(list.to_string().starts_with(&start), "{damage}: {list}");
            Vec::new()
        } else {
            vec![client.lease(1)]
        };
        let events = known.len();
        let revoked = applied(&*store, revoke("bad")).await;
        assert_eq!(revoked, Outcome::Revoked(known), "{damage}");
        client.next_events(events).await;
        assert_eq!(fixture.count("members"), 0, "{damage}");
        assert_eq!(store.held(&space()).await.unwrap(), []);
    }
}

/// Rows without a queue do not become part of a new one.
#[tokio::test]
async fn waiters_without_a_queue_are_deleted() {
    let (fixture, store) = FileFixture::opened().await;
    let client = StoreClient::listening(&store, 11).await;
    client.acquire("a", 1).await;
    for number in 2..6 {
        client.wait("a", number).await;
    }
    let damage = "UPDATE heads SET value = substr(value, 1, instr(value, ' queue ') - 1)";
    fixture.database().execute(damage, []).unwrap();
    assert_eq!(client.wait("a", 6).await, 0);
    assert_eq!(client.wait("a", 7).await, 1);
    assert_eq!(fixture.count("members"), 2);
    // And a record with a queue that has no row.
    let damage = "DELETE FROM members";
    fixture.database().execute(damage, []).unwrap();
    client.release("a", 1).await;
    assert_eq!(client.events(), []);
    client.acquire("a", 8).await;
}

/// A head that was deleted by hand leaves members behind.
#[tokio::test]
async fn a_new_record_has_no_members_of_a_lost_one() {
    let (fixture, store) = FileFixture::opened().await;
    let client = StoreClient::listening(&store, 11).await;
    let take = async |first: u64| {
        let request = permits(acquire("a", first), 2, 3);
        granted(&*store, client.own(request)).await;
        assert_eq!(client.join(permits(wait("a", first + 1), 2, 3)).await, 0);
    };
    take(1).await;
    fixture
        .database()
        .execute_batch("DELETE FROM heads")
        .unwrap();
    take(3).await;
    client.release("a", 3).await;
    let [Event::Notice(_, Notice::Granted(grant))] = &client.next_events(1).await[..] else {
        panic!("one lease waits");
    };
    assert_eq!(grant.lease, client.lease(4));
    client.release("a", 4).await;
    assert_eq!(fixture.count("members"), 0);
}

/// The rows of a name that may not be removed at a time.
fn rows(database: &Connection, name: &str, now: StoreTime) -> Vec<String> {
    let query = "SELECT 0 || value FROM heads WHERE name = ?1 AND until > ?2 UNION ALL
                 SELECT class || id || value || ifnull(place, '') FROM members
                 WHERE name = ?1 AND ifnull(until, ?2 + 1) > ?2";
    let mut statement = database.prepare(query).unwrap();
    let now = now.as_micros().cast_signed();
    let rows = statement.query_map((name, now), |row| row.get(0)).unwrap();
    rows.map(|row| row.unwrap()).collect()
}

/// Damages one row of a name, if it has one.
fn damage(database: &Connection, name: &str, random: &mut fastrand::Rng) {
    const VALUES: [&str; 7] = [
        "",
        "1",
        "1 lost",
        "2 - free",
        "1 held",
        "1 - latch 3 2 -",
        "1 - mutex 42 held 1 1 1 - 1",
    ];
    let value = VALUES[random.usize(..VALUES.len())];
    let sql = match random.u8(..4) {
        0 => "UPDATE heads SET value = ?1 WHERE name = ?2 AND ?3 < 9",
        _ => {
            "UPDATE members SET value = ?1 WHERE (class, name, id) IN (
                 SELECT class, name, id FROM members WHERE name = ?2 LIMIT 1 OFFSET ?3)"
        }
    };
    let damaged = database.execute(sql, (value, name, random.u8(..6)));
    damaged.unwrap();
}

/// Whatever is damaged and requested: an error has changed nothing, other names are not affected, and an operator can
/// repair everything.
#[tokio::test]
async fn random_damage_is_an_error_of_its_own_name_until_it_is_repaired() {
    let fixture = FileFixture::new();
    // It stands still, so nothing ends.
    let store = fixture.open_with_clock(ManualClock::new()).await;
    let (database, mut random) = (fixture.database(), fastrand::Rng::with_seed(1));
    let (mut errors, names) = (0, ["bad mutex", "bad semaphore"]);
    for seed in 0..40 {
        let histories = Histories::random(seed, Shape::Standing, names.len());
        let histories = shares::added(histories);
        let (_, now) = applied_at(&store, renew("clock", 1)).await;
        for round in &histories.rounds {
            for (name, op) in round.batches.iter().flatten() {
                let (name, before) = (names[*name], rows(&database, names[*name], now));
                let request = Request::new(key(name), timed(op, now));
                match send(&store, request).await {
                    Reply::Applied { .. } => {}
                    // The name is used otherwise.
                    Reply::Rejected(error) if error.kind() == ErrorKind::Conflict => {}
                    Reply::Rejected(error) => {
                        assert_eq!(rows(&database, name, now), before, "{error}");
                        errors += 1;
                    }
                    Reply::Unknown(error) => panic!("{error}"),
                }
            }
            works(&store).await;
            for name in names {
                damage(&database, name, &mut random);
            }
        }
        for name in names.map(key) {
            // Each may grant the lock to waiters. A latch is no lock.
            for _ in 0..10 {
                let reply = send(&store, revoke(name.name.as_str())).await;
                let is_latch =
                    matches!(&reply, Reply::Rejected(error) if error.kind() == ErrorKind::Conflict);
                assert!(is_latch || outcome(&reply).is_some(), "{reply:?}");
            }
            store.reset_latch(&name).await.unwrap();
            let keys = ["v1", "v2"].map(|key| Slot::Key(CompletionKey::parse(key).unwrap()));
            for slot in [Slot::Value, Slot::Period].iter().chain(&keys) {
                store.remove_annotation(&name, slot).await.unwrap();
            }
        }
        assert_eq!(store.held(&space()).await.unwrap(), []);
        assert_eq!(store.completions(&space()).await.unwrap(), []);
    }
    assert!(errors > 100, "{errors}");
}

#[tokio::test]
async fn a_damaged_file_is_an_error_and_its_store_survives() {
    let (fixture, store) = FileFixture::opened().await;
    let names = (0..3_000).map(|number| format!("n{number}"));
    let batch = names.map(|name| acquire(&name, 1));
    store.apply(batch.collect()).await;
    // All pages are in the file itself. Those after the roots of the tables become noise.
    let database = fixture.database();
    database
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    overwrite(&fixture.path(), 8);
    // The store notices the write, so it does not use its cache.
    database.execute_batch("UPDATE meta SET id = id").unwrap();
    drop(database);
    let error = rejected(&*store, renew("n1234", 1)).await;
    let words = "the file is damaged; stop the programs that use it and delete it";
    assert_error(&error, ErrorKind::Store, &[words]);
    refusal_or_error(&fixture).await;

    // The advice of the message helps.
    std::fs::remove_file(fixture.path()).unwrap();
    granted(&*store, acquire("n1234", 2)).await;
    assert_eq!(store.held(&space()).await.unwrap().len(), 1);
}

/// A store that opens the damaged file fails then or at the first lock.
async fn refusal_or_error(fixture: &FileFixture) {
    let error = match store::open_with(&fixture.url(), &OpenOptions::default()).await {
        Ok(store) => rejected(&*store, acquire("n1234", 2)).await,
        Err(error) => error,
    };
    assert_error(&error, ErrorKind::Store, &["the file is damaged"]);
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
async fn a_truncated_file_is_an_error() {
    let fixture = FileFixture::new();
    drop(fixture.open().await);
    fixture.wait_until_closed();
    assert_eq!(fixture.files(), ["locks.db"]);
    let file = FileOptions::new().write(true).open(fixture.path()).unwrap();
    file.set_len(4_096).unwrap();
    drop(file);
    refusal(&fixture.path(), ErrorKind::Store, "the file is damaged").await;
}

/// A limit on the size of files makes the disk refuse to write in the middle of a commit. It is one of the process, so
/// a helper has it.
#[test]
fn a_commit_that_fails_is_unknown_and_the_store_survives() {
    let fixture = FileFixture::new();
    // The signal that goes with the limit would kill the process; ignored it is inherited.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#]);
    let helper = Helper::spawn_through(shell);
    finish(helper, &format!("fill {}", fixture.url()));
    assert!(fixture.is_sound());
}

pub(super) async fn fill(url: &str) {
    let store = open(url).await;
    let holder = StoreClient::listening(&store, 11).await;
    let first = holder.acquire("before", 1).await;
    assert_eq!(holder.wait("before", 2).await, 0);
    let limit = getrlimit(Resource::Fsize);
    let little = Rlimit {
        current: Some(64 * 1024),
        ..limit
    };
    setrlimit(Resource::Fsize, little).unwrap();
    let batch = |lease| -> Vec<_> {
        let names = (0..2_000).map(|number| format!("n{number}"));
        names.map(|name| acquire(&name, lease)).collect()
    };
    // The first of them grants the lock, and that fails with the others.
    let mut requests = batch(2);
    requests.insert(0, holder.own(release("before", 1)));
    let replies = store.apply(requests).await;
    assert_eq!(replies.len(), 2_001);
    for reply in &replies {
        let Reply::Unknown(error) = reply else {
            panic!("{reply:?}");
        };
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        assert_eq!(error.store(), Some(url), "{error}");
        assert!(error.lock().is_some(), "{error}");
    }
    setrlimit(Resource::Fsize, limit).unwrap();
    // The waiter asks again.
    let interrupted = Event::Interrupted(EventScope::Record(key("before")));
    assert_eq!(holder.events(), [interrupted]);
    let entry = store.inspect(&key("before")).await.unwrap().unwrap();
    assert_eq!(entry.token.unwrap().get(), first);
    holder.release("before", 1).await;
    assert!(holder.granted("before", 2).await.first.get() > first);
    for part in batch(3).chunks(500) {
        let replies = store.apply(part.to_vec()).await;
        assert!(replies.iter().all(is_granted));
    }
}
