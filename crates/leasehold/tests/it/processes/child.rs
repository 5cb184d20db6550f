//! A process that acquires and releases a lock by command.

use std::fs::OpenOptions;
use std::future::Future;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use leasehold::{Client, Guard, Mutex};
use leasehold_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::mpsc as async_mpsc;

use crate::fence;
use crate::fixture::Fixture;
use crate::recording_store::RecordingStore;
use crate::waiters::{SOON, spawn_polled, spawn_waiter};

/// The variable with the URL of the store and the name of the lock.
const PLACE: &str = "LEASEHOLD_TEST_PLACE";

/// The variable with the ttl in milliseconds, if it is not the default.
const TTL: &str = "LEASEHOLD_TEST_TTL";

/// What a child's lines begin with, so that those of the test harness are not taken for one.
const MARK: &str = "child: ";

/// A child as its test sees it. It is killed when it is dropped.
pub(crate) struct Child {
    process: std::process::Child,
    said: Receiver<String>,
}

impl Child {
    /// Starts the test of this name anew, as a child.
    pub(crate) fn start(test: &str, fixture: &Fixture, name: &str) -> Self {
        Self::spawn(test, fixture, name, None)
    }

    /// As [`Child::start`], with leases of this ttl.
    pub(crate) fn start_with_ttl(test: &str, fixture: &Fixture, name: &str, ttl: Duration) -> Self {
        Self::spawn(test, fixture, name, Some(ttl))
    }

    fn spawn(test: &str, fixture: &Fixture, name: &str, ttl: Option<Duration>) -> Self {
        let url = fixture.url().expect("a store that processes share");
        let mut process = Command::new(std::env::current_exe().unwrap());
        process
            .args(["--exact", test, "--nocapture", "--test-threads", "1"])
            .env(PLACE, format!("{url} {name}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(ttl) = ttl {
            process.env(TTL, ttl.as_millis().to_string());
        }
        let mut process = process.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let (tell, said) = mpsc::channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                // The harness begins a line that it does not end.
                if let Some((_, said)) = line.split_once(MARK) {
                    let _ = tell.send(said.to_owned());
                }
            }
        });
        Self { process, said }
    }

    pub(crate) fn tell(&self, order: &str) {
        let mut stdin = self.process.stdin.as_ref().unwrap();
        writeln!(stdin, "{order}").unwrap();
    }

    /// The next that it says, which must begin with this word; and the rest of it.
    #[track_caller]
    pub(crate) fn says(&self, word: &str) -> String {
        self.says_within(word, SOON)
    }

    #[track_caller]
    pub(crate) fn says_within(&self, word: &str, span: Duration) -> String {
        let said = self.said.recv_timeout(span);
        let said = said.unwrap_or_else(|error| panic!("not {word} within {span:?}: {error}"));
        let rest = said.strip_prefix(word);
        rest.unwrap_or_else(|| panic!("{said}, not {word}"))
            .trim()
            .to_owned()
    }

    /// Acquires the lock, which must be free. Returns the token.
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

    /// Waits until it holds the lock. Returns the token.
    #[track_caller]
    pub(super) fn holds(&self, span: Duration) -> u64 {
        self.says_within("holds", span).parse().unwrap()
    }

    /// Says nothing, which would be that it holds the lock.
    pub(super) fn still_waits(&self) {
        assert_eq!(self.said.try_recv().ok(), None);
    }

    #[track_caller]
    pub(super) fn releases(&self) {
        self.tell("release");
        assert_eq!(self.says("released"), "Ok");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id())
            .ok()
            .and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Stops it, and waits until it is stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        let stat = format!("/proc/{}/stat", self.process.id());
        eventually(SOON, || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        });
    }

    pub(super) fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// In a child: executes commands until its test has ended.
pub(crate) fn serve() -> bool {
    let Ok(place) = std::env::var(PLACE) else {
        return false;
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let (url, name) = place.split_once(' ').unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let builder = match std::env::var(TTL) {
            Ok(millis) => Client::builder().ttl(Duration::from_millis(millis.parse().unwrap())),
            Err(_) => Client::builder(),
        };
        let (client, recorder) = Fixture::Other(url.to_owned()).recorded(builder).await;
        obey(&client.mutex(name).unwrap(), &recorder).await;
    });
    true
}

async fn obey(mutex: &Mutex, recorder: &Arc<RecordingStore>) {
    let (tell, mut orders) = async_mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for order in std::io::stdin().lines().map_while(Result::ok) {
            let _ = tell.send(order);
        }
    });
    let mut guard: Option<Guard> = None;
    while let Some(order) = orders.recv().await {
        let words: Vec<_> = order.split(' ').collect();
        match words[..] {
            ["lock"] => guard = Some(lock(mutex, recorder).await),
            ["release"] => {
                let outcome = guard.take().unwrap().release().await;
                say(&format!(
                    "released {}",
                    outcome.map_or_else(|error| format!("{:?}", error.kind()), |()| "Ok".into())
                ));
            }
            ["state"] => say(&format!("is {:?}", guard.as_ref().unwrap().state())),
            ["write", resource, place, value] => {
                let token = guard.as_ref().unwrap().token();
                let wrote = fence::write(resource, place, token, value).await;
                say(&format!("wrote {wrote}"));
            }
            ["many", count, journal] => {
                many(mutex, recorder, count.parse().unwrap(), Path::new(journal)).await;
            }
            _ => panic!("{order}"),
        }
    }
}

/// Takes the lock; says when it waits, and when it holds.
async fn lock(mutex: &Mutex, recorder: &Arc<RecordingStore>) -> Guard {
    recorder.clear();
    let mut locking = pin!(mutex.lock());
    let guard = with_notice(recorder, locking.as_mut()).await.unwrap();
    say(&format!("holds {}", guard.token()));
    guard
}

/// Says when the lock is waited for, while it is.
async fn with_notice<T>(recorder: &Arc<RecordingStore>, locking: impl Future<Output = T>) -> T {
    let queued = async {
        recorder.until_queued(1).await;
        say("queued");
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
    say("done");
}

fn say(text: &str) {
    // The test harness has begun a line already.
    println!("\n{MARK}{text}");
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
