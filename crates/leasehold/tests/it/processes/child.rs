//! A helper that acquires and releases one lock, or does something else in a process of its own.
//!
//! | command | effect | replies |
//! |---|---|---|
//! | `client URL NAME MILLIS` | connects, for a lock with this ttl; before the next five | |
//! | `lock` | acquires the lock | `queued` if it waits, `acquired TOKEN` |
//! | `release` | releases it | `released Ok`, or the kind of the error |
//! | `state` | | `state STATE` of its lease |
//! | `write KIND PLACE VALUE` | writes to a fenced resource | `wrote OUTCOME` |
//! | `end URL NAME WAY` | ends the program with locks held, see [`ends`] | |
//! | `fork URL NAME WAY`, `connect URL` | forks, see [`fork`] | |
//! | the rest | see [`sqlite`] | |

use std::ops::{Deref, DerefMut};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, Guard, Mutex};
use leasehold_testkit::helper::{self, Commands};
use leasehold_testkit::{Helper, eventually};

use super::{ends, fork};
use crate::fixture::Fixture;
use crate::recording_store::RecordingStore;
use crate::waiters::SOON;
use crate::{fence, sqlite};

/// The ttl of leases unless a test needs another.
pub(super) const TTL: Duration = Duration::from_secs(30);

/// Longer than any program takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// Executes one command in a helper, which has to end without an error.
#[track_caller]
pub(crate) fn run(command: &str) {
    let mut helper = Helper::command();
    // The test runs in the main thread.
    helper.env("RUST_TEST_THREADS", "1");
    finish(Helper::spawn(helper), command);
}

/// Sends the last command to a helper, which has to end without an error.
#[track_caller]
pub(crate) fn finish(mut helper: Helper, command: &str) {
    helper.send(command);
    eventually(LONG, || helper.ended().is_some());
    assert!(helper.ended().unwrap().success(), "{command}");
}

/// A client in a process of its own, which is killed when this is dropped.
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

    /// The rest of the next reply, which must begin with this word.
    #[track_caller]
    pub(crate) fn expect(&self, word: &str, timeout: Duration) -> String {
        let reply = self.reply_within(timeout);
        let reply = reply.unwrap_or_else(|| panic!("not {word} within {timeout:?}"));
        let rest = reply.strip_prefix(word);
        let rest = rest.unwrap_or_else(|| panic!("{reply}, not {word}"));
        rest.trim().to_owned()
    }

    /// Sends a command, and returns the rest of its reply.
    #[track_caller]
    pub(crate) fn execute(&self, command: &str, word: &str) -> String {
        self.send(command);
        self.expect(word, SOON)
    }

    /// Acquires the lock, which must be free. Returns the token.
    #[track_caller]
    pub(crate) fn acquire(&self) -> u64 {
        self.send("lock");
        let reply = self.reply_within(SOON).expect("a reply within time");
        match reply.strip_prefix("acquired") {
            Some(token) => token.trim().parse().unwrap(),
            // Busy masters may not grant it immediately.
            None => self.acquired(SOON),
        }
    }

    /// Waits until it holds the lock. Returns the token.
    #[track_caller]
    pub(super) fn acquired(&self, timeout: Duration) -> u64 {
        self.expect("acquired", timeout).parse().unwrap()
    }

    /// Checks that it still waits.
    pub(super) fn assert_waiting(&self) {
        assert_eq!(self.reply_within(Duration::ZERO), None);
    }

    #[track_caller]
    pub(super) fn release(&self) {
        assert_eq!(self.execute("release", "released"), "Ok");
    }
}

impl Deref for Child {
    type Target = Helper;

    fn deref(&self) -> &Helper {
        &self.0
    }
}

impl DerefMut for Child {
    fn deref_mut(&mut self) -> &mut Helper {
        &mut self.0
    }
}

/// In the helper: executes the commands of a test.
pub(crate) fn serve() {
    let mut commands = helper::commands();
    let Some(first) = commands.blocking_next() else {
        return;
    };
    match first.splitn(4, ' ').collect::<Vec<_>>()[..] {
        ["client", url, name, millis] => sqlite::block_on(async {
            let builder = Client::builder().ttl(Duration::from_millis(millis.parse().unwrap()));
            let (client, recorder) = Fixture::Other(url.to_owned()).recorded(builder).await;
            obey(&client.mutex(name).unwrap(), &recorder, commands).await;
        }),
        ["end", url, name, way] => ends::end(url, name, way),
        ["fork", url, name, way] => fork::fork_with_locks(url, name, way),
        ["connect", url] => fork::fork_and_connect(url),
        [command, path] => sqlite::execute(command, path, commands),
        _ => panic!("{first}"),
    }
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
                helper::reply(format!("state {:?}", guard.as_ref().unwrap().state()));
            }
            ["write", resource, address, value] => {
                let token = guard.as_ref().unwrap().token();
                let wrote = fence::write(resource, address, token, value).await;
                helper::reply(format!("wrote {wrote}"));
            }
            _ => panic!("{command}"),
        }
    }
}

/// Acquires the lock. Replies when it waits, and when it holds it.
async fn lock(mutex: &Mutex, recorder: &Arc<RecordingStore>) -> Guard {
    recorder.clear();
    let mut locking = pin!(mutex.lock());
    let queued = async {
        recorder.until_queued(1).await;
        helper::reply("queued");
    };
    let guard = tokio::select! {
        biased;
        guard = &mut locking => guard,
        () = queued => locking.await,
    };
    let guard = guard.unwrap();
    helper::reply(format!("acquired {}", guard.token()));
    guard
}
