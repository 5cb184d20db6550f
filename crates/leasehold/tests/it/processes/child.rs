//! A helper that acquires and releases one lock.
//!
//! | command | effect | replies |
//! |---|---|---|
//! | `client URL NAME MILLIS` | connects, for a lock with this ttl; always the first | |
//! | `lock` | acquires the lock | `queued` if it waits, `holds TOKEN` |
//! | `release` | releases it | `released Ok`, or the kind of the error |
//! | `state` | | `is STATE` of its lease |
//! | `write KIND PLACE VALUE` | writes to a fenced resource | `wrote OUTCOME` |
//! | `many COUNT FILE` | so many tasks acquire the lock once each and record that in a file | `queued`, `done` |

use std::fs::OpenOptions;
use std::future::Future;
use std::io::Write as _;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::{Client, Guard, Mutex};
use leasehold_testkit::Helper;
use leasehold_testkit::helper::{self, Commands};
use rustix::process::Signal;

use crate::fence;
use crate::fixture::Fixture;
use crate::recording_store::RecordingStore;
use crate::waiters::{SOON, spawn_polled, spawn_waiter};

/// The ttl of leases unless a test needs another.
const TTL: Duration = Duration::from_secs(30);

/// A child as its test sees it. It is killed when it is dropped.
pub(crate) struct Child(Helper);

impl Child {
    /// Starts a child for a lock.
    pub(crate) fn start(fixture: &Fixture, name: &str) -> Self {
        Self::start_with_ttl(fixture, name, TTL)
    }

    /// As [`Child::start`], with leases of this ttl.
    pub(crate) fn start_with_ttl(fixture: &Fixture, name: &str, ttl: Duration) -> Self {
        let url = fixture.url().expect("a store that processes share");
        let helper = Helper::start();
        helper.send(&format!("client {url} {name} {}", ttl.as_millis()));
        Self(helper)
    }

    pub(crate) fn tell(&self, order: &str) {
        self.0.send(order);
    }

    /// The next that it says, which must begin with this word; and the rest of it.
    #[track_caller]
    pub(crate) fn says(&self, word: &str) -> String {
        self.says_within(word, SOON)
    }

    #[track_caller]
    pub(crate) fn says_within(&self, word: &str, span: Duration) -> String {
        let said = self.0.reply_within(span);
        let said = said.unwrap_or_else(|| panic!("not {word} within {span:?}"));
        let rest = said.strip_prefix(word);
        rest.unwrap_or_else(|| panic!("{said}, not {word}"))
            .trim()
            .to_owned()
    }

    /// Takes the lock, which must be free, and answers the token.
    #[track_caller]
    pub(crate) fn locks(&self) -> u64 {
        self.tell("lock");
        self.holds(SOON)
    }

    /// Comes to the queue of the store.
    #[track_caller]
    pub(super) fn waits(&self) {
        self.tell("lock");
        self.says("queued");
    }

    /// Waits until it holds the lock, and answers the token.
    #[track_caller]
    pub(super) fn holds(&self, span: Duration) -> u64 {
        self.says_within("holds", span).parse().unwrap()
    }

    /// Says nothing, which would be that it holds the lock.
    pub(super) fn still_waits(&self) {
        assert_eq!(self.0.reply_within(Duration::ZERO), None);
    }

    #[track_caller]
    pub(super) fn releases(&self) {
        self.tell("release");
        assert_eq!(self.says("released"), "Ok");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.0.signal(signal);
    }

    /// Stops it, and waits until it stands still.
    pub(crate) fn stop(&self) {
        self.0.stop();
    }

    pub(super) fn kill(mut self) {
        self.0.kill();
    }
}

/// In the helper: obeys the commands of a test.
pub(crate) fn serve() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let mut commands = helper::commands();
        let Some(first) = commands.next().await else {
            return;
        };
        let words: Vec<_> = first.split(' ').collect();
        let ["client", url, name, millis] = words[..] else {
            panic!("{first}");
        };
        let builder = Client::builder().ttl(Duration::from_millis(millis.parse().unwrap()));
        let (client, recorder) = Fixture::Other(url.to_owned()).recorded(builder).await;
        obey(&client.mutex(name).unwrap(), &recorder, commands).await;
    });
}

async fn obey(mutex: &Mutex, recorder: &Arc<RecordingStore>, mut commands: Commands) {
    let mut guard: Option<Guard> = None;
    while let Some(command) = commands.next().await {
        let words: Vec<_> = command.split(' ').collect();
        match words[..] {
            ["lock"] => guard = Some(lock(mutex, recorder).await),
            ["release"] => {
                let outcome = guard.take().unwrap().release().await;
                let outcome =
                    outcome.map_or_else(|error| format!("{:?}", error.kind()), |()| "Ok".into());
                helper::reply(format!("released {outcome}"));
            }
            ["state"] => {
                helper::reply(format!("is {:?}", guard.as_ref().unwrap().state()));
            }
            ["write", resource, place, value] => {
                let token = guard.as_ref().unwrap().token();
                let wrote = fence::write(resource, place, token, value).await;
                helper::reply(format!("wrote {wrote}"));
            }
            ["many", count, journal] => {
                many(mutex, recorder, count.parse().unwrap(), Path::new(journal)).await;
            }
            _ => panic!("{command}"),
        }
    }
}

/// Takes the lock; says when it waits, and when it holds.
async fn lock(mutex: &Mutex, recorder: &Arc<RecordingStore>) -> Guard {
    recorder.clear();
    let mut locking = pin!(mutex.lock());
    let guard = with_notice(recorder, locking.as_mut()).await.unwrap();
    helper::reply(format!("holds {}", guard.token()));
    guard
}

/// Says when the lock is waited for, while it is.
async fn with_notice<T>(recorder: &Arc<RecordingStore>, locking: impl Future<Output = T>) -> T {
    let queued = async {
        recorder.until_queued(1).await;
        helper::reply("queued");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        biased;
        outcome = locking => outcome,
        () = queued => unreachable!("it never ends"),
    }
}

/// So many tasks that each take the lock once and write into the journal that they hold it. Says
/// when they all wait, and when all are done.
async fn many(mutex: &Mutex, recorder: &Arc<RecordingStore>, count: usize, journal: &Path) {
    recorder.clear();
    let waiters: Vec<_> = (0..count).map(|_| spawn_waiter(mutex)).collect();
    let journal = journal.to_owned();
    let all = spawn_polled(async move {
        let pid = std::process::id();
        let options = OpenOptions::new().append(true).create(true).open(journal);
        let mut journal = options.unwrap();
        for (task, waiter) in waiters.into_iter().enumerate() {
            let guard = waiter.await.unwrap();
            let token = guard.token();
            let enter = format!("enter {pid} {task} {token}\n");
            journal.write_all(enter.as_bytes()).unwrap();
            tokio::task::yield_now().await;
            let leave = format!("leave {pid} {task} {token}\n");
            journal.write_all(leave.as_bytes()).unwrap();
            guard.release().await.unwrap();
        }
    });
    with_notice(recorder, all).await.unwrap();
    helper::reply("done");
}

/// How long something took that must not take longer.
#[track_caller]
pub(super) fn within<T>(span: Duration, work: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    let outcome = work();
    let took = begun.elapsed();
    assert!(took < span, "{took:?}");
    (outcome, took)
}
