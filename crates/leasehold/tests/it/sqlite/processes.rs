//! Many processes on one file, killed at random moments.
//!
//! Each child writes into a journal when it may rely on the lock, and until when. The checker reads the journals and
//! the file only.

use std::collections::HashMap;
use std::fs::{self, OpenOptions as FileOptions};
use std::io::Write as _;

use leasehold::clock::{BootClock, Clock as _};
use leasehold_checker::{HoldInterval, overlaps, token_disorder};
use leasehold_core::{Ttl, time};
use leasehold_testkit::{Helper, eventually, eventually_async, helper};

use super::*;
use crate::store_ext::StoreExt as _;

/// A grant, and the time in which a child relied on the lock.
type Grant = leasehold_checker::Grant<(u64, u64)>;

const CHILDREN: usize = 6;
const KILLS: usize = 100;
const TTL: Duration = Duration::from_millis(150);

/// Two locks, so that children also compete for the file only.
const NAMES: [&str; 2] = ["odd", "even"];

#[test]
fn killed_processes_leave_a_sound_file_and_never_two_holders() {
    let fixture = FileFixture::new();
    let spawn = || {
        let child = Helper::start();
        child.send(&format!(
            "lock-for-ever {}",
            fixture.directory.path().display()
        ));
        child
    };
    let mut children: Vec<_> = (0..CHILDREN).map(|_| spawn()).collect();
    for kill in 0..KILLS {
        let child = &mut children[kill % CHILDREN];
        // A busy machine takes longer to start it than it would live.
        let journal = format!("journal-{}", child.pid());
        eventually(SOON, || fixture.directory.path().join(&journal).exists());
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..60_000)));
        assert_eq!(child.ended(), None, "a child failed");
        *child = spawn();
    }
    drop(children);

    assert!(fixture.is_sound());
    let grants = journals(&fixture);
    for name in NAMES {
        check(&grants[name]);
        block_on(nothing_outlives_its_ttl(&fixture, name, &grants[name]));
    }
}

/// SQLite's files beside a deleted file are still in use by the process that has it open. They do not belong to the
/// new file.
#[test]
fn a_process_notices_that_another_replaced_the_file() {
    let fixture = FileFixture::new();
    let child = Helper::start();
    assert_eq!(child.request(&format!("renew {}", fixture.url())), "ready");
    fs::remove_file(fixture.path()).unwrap();
    block_on(async {
        let store = fixture.open().await;
        for number in 0..100 {
            let name = format!("n{number}");
            granted(&*store, acquire(&name, 2)).await;
        }
        granted(&*store, acquire("a", 2)).await;
        assert_eq!(child.request("renew"), "Lost(TakenOver)");
        assert_eq!(store.held(&space()).await.unwrap().len(), 101);
    });
}

/// In a helper: acquires locks, and renews one of them at the next command.
pub(super) fn renew_once(url: &str, mut commands: Commands) {
    block_on(async {
        let store = open(url).await;
        let names = (0..200).map(|number| format!("n{number}"));
        let mut batch: Vec<_> = names.map(|name| acquire(&name, 1)).collect();
        batch.push(acquire("a", 1));
        store.apply(batch).await;
        helper::reply("ready");
        commands.next().await;
        let outcome = applied(&*store, renew("a", 1)).await;
        helper::reply(format!("{outcome:?}"));
    });
}

/// In a helper: acquires and releases locks until the process is killed.
pub(super) async fn lock_for_ever(directory: &Path) {
    let store = open(&format!("sqlite:{}", directory.join("locks.db").display())).await;
    // From now on it may be killed.
    let journal = directory.join(format!("journal-{}", std::process::id()));
    let options = FileOptions::new().append(true).create(true).open(journal);
    let mut journal = options.unwrap();
    let client = StoreClient::unique(&store);
    for number in 0.. {
        let name = NAMES[fastrand::usize(..NAMES.len())];
        let sent = BootClock.now();
        let acquired = client.apply(lasting(acquire(name, number), TTL)).await;
        let Outcome::Granted { first, .. } = acquired else {
            continue;
        };
        let from = BootClock.now();
        let until = time::deadline(sent, Ttl::checked(TTL).unwrap());
        if from >= until {
            continue;
        }
        let nanos = |instant: leasehold_core::Instant| instant.as_nanos();
        let enter = format!("enter {name} {first} {} {}\n", nanos(from), nanos(until));
        journal.write_all(enter.as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_micros(fastrand::u64(0..3_000))).await;
        let leave = format!("leave {name} {first} {}\n", nanos(BootClock.now()));
        journal.write_all(leave.as_bytes()).unwrap();
        client.apply(release(name, number)).await;
    }
}

/// The grants of each name. A child relied on the lock until it released it by its journal, or until the deadline if it
/// was killed before.
fn journals(fixture: &FileFixture) -> HashMap<String, Vec<Grant>> {
    let mut grants = HashMap::<_, Vec<Grant>>::new();
    for file in fixture.files() {
        if !file.starts_with("journal-") {
            continue;
        }
        let text = fs::read_to_string(fixture.directory.path().join(file)).unwrap();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            let (grants, token, at) = (
                grants.entry(words[1].into()).or_default(),
                number(2),
                number(3),
            );
            match words[0] {
                "enter" => grants.push(Grant {
                    requested: at,
                    granted: at,
                    token,
                    holder: (at, number(4)),
                }),
                _ => {
                    let last = grants.last_mut().unwrap();
                    assert_eq!(last.token, token);
                    last.holder.1 = last.holder.1.min(at);
                }
            }
        }
    }
    grants
}

fn check(grants: &[Grant]) {
    assert!(grants.len() > KILLS / 2, "only {} grants", grants.len());
    let interval = |grant: &Grant| HoldInterval {
        from: grant.holder.0,
        until: grant.holder.1,
        holder: grant.token,
    };
    let intervals: Vec<_> = grants.iter().map(interval).collect();
    assert_eq!(overlaps(&intervals), [], "two holders: {grants:?}");
    assert_eq!(token_disorder(grants), [], "tokens: {grants:?}");
}

async fn nothing_outlives_its_ttl(fixture: &FileFixture, name: &str, grants: &[Grant]) {
    let store = fixture.open().await;
    eventually_async(SOON, async || {
        let entry = store.inspect(&key(name)).await.unwrap();
        assert!(entry.as_ref().is_none_or(|entry| entry.time_left <= TTL));
        entry.is_none()
    })
    .await;
    let last = grants.iter().map(|grant| grant.token).max();
    assert!(Some(granted(&*store, acquire(name, 1)).await) > last);
}
