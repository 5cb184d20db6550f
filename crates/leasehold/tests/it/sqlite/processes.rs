//! Many processes on one file, killed at random moments.
//!
//! Each child writes into a journal when it may rely on the lock, and until when. The checker reads the journals and
//! the file only.

use std::fs::{self, OpenOptions as FileOptions};
use std::io::Write as _;
use std::process::{Child, Stdio};
use std::time::Instant;

use leasehold::clock::{BootClock, Clock as _};
use leasehold_checker::{Grant, overlaps, token_disorder};
use leasehold_core::{Ttl, time};
use leasehold_testkit::OutputLines;

use super::*;

const CHILDREN: usize = 6;
const KILLS: usize = 100;
const TTL: Duration = Duration::from_millis(150);

/// Two locks, so that children also compete for the file only.
const NAMES: [&str; 2] = ["odd", "even"];

#[test]
fn killed_processes_leave_a_sound_file_and_never_two_holders() {
    const DIRECTORY: &str = "LEASEHOLD_TEST_CHILD";
    if let Ok(directory) = std::env::var(DIRECTORY) {
        return block_on(lock_for_ever(Path::new(&directory)));
    }
    let fixture = FileFixture::new();
    let spawn = || {
        let test = "sqlite::processes::killed_processes_leave_a_sound_file_and_never_two_holders";
        let mut child = child(test);
        child.env(DIRECTORY, fixture.directory.path());
        Running(child.stdout(Stdio::null()).spawn().unwrap())
    };
    let mut children: Vec<_> = (0..CHILDREN).map(|_| spawn()).collect();
    for kill in 0..KILLS {
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..60_000)));
        let child = &mut children[kill % CHILDREN];
        assert_eq!(child.0.try_wait().unwrap(), None, "a child failed");
        *child = spawn();
    }
    drop(children);

    let holds = journals(&fixture);
    check_holds(&holds);
    assert!(fixture.is_sound());
    block_on(nothing_outlives_its_ttl(&fixture, &holds));
}

/// SQLite's files beside a deleted file are still in use by the process that has it open. They do not belong to the
/// new file.
#[test]
fn a_process_notices_that_another_replaced_the_file() {
    const URL: &str = "LEASEHOLD_TEST_REPLACED";
    if let Ok(url) = std::env::var(URL) {
        return block_on(hold_until_told(&url));
    }
    let test = "sqlite::processes::a_process_notices_that_another_replaced_the_file";
    let fixture = FileFixture::new();
    let mut child = child(test);
    child.env(URL, fixture.url());
    let child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = Running(child.unwrap());
    let replies = OutputLines::read(child.0.stdout.take().unwrap());
    assert_eq!(replies.after("child: "), "holds");
    fs::remove_file(fixture.path()).unwrap();
    block_on(async {
        let store = fixture.open().await;
        for number in 0..100 {
            let name = format!("n{number}");
            granted(&*store, acquire(&name, 2)).await;
        }
        granted(&*store, acquire("a", 2)).await;
        child.0.stdin.take().unwrap().write_all(b"renew\n").unwrap();
        assert_eq!(replies.after("child: "), "Lost(TakenOver)");
        assert!(child.0.wait().unwrap().success());
        assert_eq!(store.list(&space()).await.unwrap().len(), 101);
    });
}

async fn hold_until_told(url: &str) {
    let store = open(url).await;
    let names = (0..200).map(|number| format!("n{number}"));
    let mut batch: Vec<_> = names.map(|name| acquire(&name, 1)).collect();
    batch.push(acquire("a", 1));
    store.apply(batch).await;
    // The test harness has begun a line already.
    println!("\nchild: holds");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let outcome = applied(&*store, renew("a", 1)).await;
    println!("child: {outcome:?}");
}

/// A child that is killed when it goes out of scope.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Acquires and releases locks until the process is killed.
async fn lock_for_ever(directory: &Path) {
    let journal = directory.join(format!("journal-{}", std::process::id()));
    let options = FileOptions::new().append(true).create(true).open(journal);
    let mut journal = options.unwrap();
    let store = open(&format!("sqlite:{}", directory.join("locks.db").display())).await;
    let client = StoreClient::unique(&store);
    for number in 0.. {
        let name = NAMES[fastrand::usize(..NAMES.len())];
        let sent = BootClock.now();
        let acquired = client.apply(lasting(acquire(name, number), TTL)).await;
        let Outcome::Granted { first } = acquired else {
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
        client.apply(release(name, number, 0)).await;
    }
}

/// The time in which a child relied on a lock.
#[derive(Debug)]
struct HoldInterval {
    name: String,
    token: u64,
    from: u64,
    /// The end by its journal, or the deadline if it was killed before.
    until: u64,
}

fn journals(fixture: &FileFixture) -> Vec<HoldInterval> {
    let mut holds: Vec<HoldInterval> = Vec::new();
    for file in fixture.files() {
        if !file.starts_with("journal-") {
            continue;
        }
        let text = fs::read_to_string(fixture.directory.path().join(file)).unwrap();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "enter" => holds.push(HoldInterval {
                    name: words[1].into(),
                    token: number(2),
                    from: number(3),
                    until: number(4),
                }),
                _ => {
                    let hold = holds.last_mut().unwrap();
                    assert_eq!(hold.token, number(2));
                    hold.until = hold.until.min(number(3));
                }
            }
        }
    }
    holds
}

fn check_holds(holds: &[HoldInterval]) {
    for name in NAMES {
        let holds: Vec<_> = holds.iter().filter(|held| held.name == name).collect();
        assert!(holds.len() > KILLS / 2, "only {} holds", holds.len());
        let interval = |held: &&HoldInterval| leasehold_checker::HoldInterval {
            from: held.from,
            until: held.until,
            holder: held.token,
        };
        let overlaps = overlaps(&holds.iter().map(interval).collect::<Vec<_>>());
        assert_eq!(overlaps, [], "two holders: {holds:?}");
        let grant = |held: &&HoldInterval| Grant {
            requested: held.from,
            granted: held.from,
            token: held.token,
            holder: (held.from, held.until),
        };
        let disorder = token_disorder(&holds.iter().map(grant).collect::<Vec<_>>());
        assert_eq!(disorder, [], "tokens: {holds:?}");
    }
}

async fn nothing_outlives_its_ttl(fixture: &FileFixture, holds: &[HoldInterval]) {
    let store = fixture.open().await;
    let deadline = Instant::now() + SOON;
    for name in NAMES {
        while let Some(entry) = store.inspect(&key(name)).await.unwrap() {
            assert!(entry.time_left <= TTL, "{entry:?}");
            assert!(Instant::now() < deadline, "{entry:?}");
            tokio::time::sleep(entry.time_left).await;
        }
        let last = holds.iter().filter(|held| held.name == name);
        let last = last.map(|held| held.token).max().unwrap();
        assert!(granted(&*store, acquire(name, 1)).await > last);
    }
}
