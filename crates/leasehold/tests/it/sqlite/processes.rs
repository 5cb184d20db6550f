//! Many processes on one file, killed at random moments.
//!
//! Each child writes into a journal of its own when it may rely on the lock, and until when. The
//! judge reads the journals and the file and knows nothing of the store.

use std::fs::{self, OpenOptions as FileOptions};
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use leasehold::clock::{BootClock, Clock as _};
use leasehold_checker::{Grant, HoldInterval, overlaps, token_disorder};
use leasehold_core::time;
use leasehold_testkit::OutputLines;

use super::*;

const CHILDREN: usize = 6;
const KILLS: usize = 100;
const TTL: Duration = Duration::from_millis(150);

/// Two locks, so that children also get in each other's way in the file only.
const NAMES: [&str; 2] = ["odd", "even"];

#[test]
fn killed_processes_leave_a_sound_file_and_never_two_holders() {
    const FOLDER: &str = "LEASEHOLD_TEST_CHILD";
    if let Ok(folder) = std::env::var(FOLDER) {
        return lock_for_ever(Path::new(&folder));
    }
    let place = Place::new();
    let spawn = || {
        let name = "sqlite::processes::killed_processes_leave_a_sound_file_and_never_two_holders";
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(FOLDER, place.folder.path())
            .stdout(Stdio::null())
            .spawn();
        Running(child.unwrap())
    };
    let mut children: Vec<_> = (0..CHILDREN).map(|_| spawn()).collect();
    for kill in 0..KILLS {
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..60_000)));
        let child = &mut children[kill % CHILDREN];
        assert_eq!(child.0.try_wait().unwrap(), None, "a child failed");
        *child = spawn();
    }
    drop(children);

    let holds = journals(&place);
    judge(&holds);
    let database = place.database();
    let check: String = database
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    nothing_outlives_its_ttl(&place, &holds);
}

/// SQLite's files beside a deleted file are still in use by the process that has it open. The new
/// file must not be mixed up with them.
#[test]
fn a_process_learns_that_another_replaced_the_file() {
    const URL: &str = "LEASEHOLD_TEST_REPLACED";
    let name = "sqlite::processes::a_process_learns_that_another_replaced_the_file";
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    if let Ok(url) = std::env::var(URL) {
        return runtime.block_on(hold_until_asked(&url));
    }
    let place = Place::new();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(URL, place.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = Running(child.unwrap());
    let answers = OutputLines::read(child.0.stdout.take().unwrap());
    assert_eq!(answers.after("child: "), "holds");
    fs::remove_file(place.path()).unwrap();
    runtime.block_on(async {
        let store = place.open().await;
        for number in 0..100 {
            let name = format!("n{number}");
            token(&*store, acquire(&name, lease(2), LONG)).await;
        }
        token(&*store, acquire("a", lease(2), LONG)).await;
        child.0.stdin.take().unwrap().write_all(b"renew\n").unwrap();
        assert_eq!(answers.after("child: "), "Lost(TakenOver)");
        assert!(child.0.wait().unwrap().success());
        assert_eq!(store.list(&space("main")).await.unwrap().len(), 101);
    });
}

async fn hold_until_asked(url: &str) {
    let store = store::open(url, &OpenOptions::default()).await.unwrap();
    let names = (0..200).map(|number| format!("n{number}"));
    let mut batch: Vec<_> = names.map(|name| acquire(&name, lease(1), LONG)).collect();
    batch.push(acquire("a", lease(1), LONG));
    store.apply(batch).await;
    // The test harness has begun a line already.
    println!("\nchild: holds");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let (outcome, _) = outcome(&*store, renew("a", lease(1), LONG)).await;
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

/// What a child does until it is killed.
fn lock_for_ever(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let journal = folder.join(format!("journal-{}", std::process::id()));
        let options = FileOptions::new().append(true).create(true).open(journal);
        let mut journal = options.unwrap();
        let url = format!("sqlite:{}", folder.join("locks.db").display());
        let store = store::open(&url, &OpenOptions::default()).await.unwrap();
        let client = ClientId::from_random(fastrand::u128(..).to_be_bytes());
        for number in 0.. {
            let lease = LeaseId { client, number };
            let name = NAMES[fastrand::usize(..NAMES.len())];
            let sent = BootClock.now();
            let (outcome, _) = outcome(&*store, acquire(name, lease, TTL)).await;
            let Outcome::Granted { first } = outcome else {
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
            super::outcome(&*store, release(name, lease)).await;
        }
    });
}

/// The time in which a child relied on a lock.
#[derive(Debug)]
struct Held {
    name: String,
    token: u64,
    from: u64,
    /// When it said that it leaves, or its deadline if it was killed before.
    until: u64,
}

fn journals(place: &Place) -> Vec<Held> {
    let mut holds: Vec<Held> = Vec::new();
    for file in place.files() {
        if !file.starts_with("journal-") {
            continue;
        }
        let text = fs::read_to_string(place.folder.path().join(file)).unwrap();
        for line in text.lines() {
            let words: Vec<_> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "enter" => holds.push(Held {
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

fn judge(holds: &[Held]) {
    for name in NAMES {
        let holds: Vec<_> = holds.iter().filter(|held| held.name == name).collect();
        assert!(holds.len() > KILLS / 2, "only {} holds", holds.len());
        let interval = |held: &&Held| HoldInterval {
            from: held.from,
            until: held.until,
            holder: held.token,
        };
        let overlaps = overlaps(&holds.iter().map(interval).collect::<Vec<_>>());
        assert_eq!(overlaps, [], "two holders: {holds:?}");
        let grant = |held: &&Held| Grant {
            requested: held.from,
            granted: held.from,
            token: held.token,
            holder: (held.from, held.until),
        };
        let disorder = token_disorder(&holds.iter().map(grant).collect::<Vec<_>>());
        assert_eq!(disorder, [], "tokens: {holds:?}");
    }
}

fn nothing_outlives_its_ttl(place: &Place, holds: &[Held]) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let store = place.open().await;
        let deadline = Instant::now() + SOON;
        for name in NAMES {
            while let Some(entry) = store.inspect(&key(name)).await.unwrap() {
                assert!(entry.time_left <= TTL, "{entry:?}");
                assert!(Instant::now() < deadline, "{entry:?}");
                tokio::time::sleep(entry.time_left).await;
            }
            let last = holds.iter().filter(|held| held.name == name);
            let last = last.map(|held| held.token).max().unwrap();
            assert!(token(&*store, acquire(name, lease(1), LONG)).await > last);
        }
    });
}
