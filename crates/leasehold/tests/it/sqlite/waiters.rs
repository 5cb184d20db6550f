//! Waiters in processes of their own: told, killed, stopped.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use leasehold::store::Event;
use leasehold_core::Notice;
use leasehold_testkit::{OutputLines, eventually_async};
use rustix::process::{Pid, Signal, kill_process};

use super::event_log::Asker;
use super::*;

const ACCEPTANCE: Duration = Duration::from_secs(3);

/// A process that waits for `a`, says when it has it, and releases it when it is asked to.
struct Waiter {
    child: Child,
    answers: OutputLines,
}

impl Waiter {
    fn start(place: &Place, test: &str, client: u8) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(URL, place.url())
            .env(CLIENT, client.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = OutputLines::read(child.stdout.take().unwrap());
        Self { child, answers }
    }

    /// The next thing it says.
    fn answer(&mut self) -> String {
        self.answers.after("child: ")
    }

    fn release(&mut self) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(b"release\n").unwrap();
        assert_eq!(self.answer(), "released");
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const URL: &str = "LEASEHOLD_TEST_WAITER_URL";
const CLIENT: &str = "LEASEHOLD_TEST_WAITER_CLIENT";

/// Runs a test, or, in its child, a waiter.
fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        match std::env::var(URL) {
            Ok(url) => wait_and_tell(&url).await,
            Err(_) => test().await,
        }
    });
}

async fn wait_and_tell(url: &str) {
    let store = store::open(url, &OpenOptions::default()).await.unwrap();
    let client = std::env::var(CLIENT).unwrap().parse().unwrap();
    let asker = Asker::on(&store, client).await;
    let place = asker.wait("a", 1).await.unwrap();
    // The test harness has begun a line already.
    println!("\nchild: {place}");
    println!("child: {}", asker.granted_at_last().await.first);
    std::io::stdin().read_line(&mut String::new()).unwrap();
    asker.release("a", 1).await;
    println!("child: released");
}

#[test]
fn processes_are_served_in_the_order_in_which_they_asked() {
    let name = "sqlite::waiters::processes_are_served_in_the_order_in_which_they_asked";
    run(async || {
        let place = Place::new();
        let holder = Asker::on(&place.open().await, 1).await;
        let mut last = holder.take("a", 1).await;
        let mut waiters = Vec::new();
        for number in 0..4 {
            let mut waiter = Waiter::start(&place, name, 10 + number);
            assert_eq!(waiter.answer(), number.to_string());
            waiters.push(waiter);
        }
        holder.release("a", 1).await;
        for waiter in &mut waiters {
            let token: u64 = waiter.answer().parse().unwrap();
            assert!(token > last);
            last = token;
            let entry = holder.store.inspect(&key("a")).await.unwrap().unwrap();
            assert_eq!(entry.token.unwrap().get(), token);
            waiter.release();
        }
        assert_eq!(holder.store.inspect(&key("a")).await.unwrap(), None);
    });
}

#[test]
fn a_killed_waiter_is_passed_over_at_once() {
    let name = "sqlite::waiters::a_killed_waiter_is_passed_over_at_once";
    run(async || {
        let place = Place::new();
        let holder = Asker::on(&place.open().await, 1).await;
        holder.take("a", 1).await;
        let mut killed: Vec<_> = (0..3)
            .map(|number| Waiter::start(&place, name, 10 + number))
            .collect();
        for waiter in &mut killed {
            waiter.answer();
        }
        let mut last = Waiter::start(&place, name, 20);
        assert_eq!(last.answer(), "3");
        for waiter in &mut killed {
            waiter.kill();
        }
        let wake = place.folder.path().join("locks.db-wake");
        let bells = || std::fs::read_dir(&wake).unwrap().count();
        assert_eq!(bells(), 5);
        // In the same transaction: nobody who looks ever sees a dead holder.
        holder.release("a", 1).await;
        let entry = holder.store.inspect(&key("a")).await.unwrap().unwrap();
        assert_eq!(entry.lease.client, client(20));
        assert_eq!(last.answer(), entry.token.unwrap().to_string());
        last.release();
        assert!(bells() <= 2, "the dead ones' bells are still there");
    });
}

#[test]
fn a_stopped_waiter_costs_the_acceptance_ttl() {
    let name = "sqlite::waiters::a_stopped_waiter_costs_the_acceptance_ttl";
    run(async || {
        let place = Place::new();
        let store = place.open().await;
        let holder = Asker::on(&store, 1).await;
        let next = Asker::on(&store, 2).await;
        holder.take("a", 1).await;
        let mut stopped = Waiter::start(&place, name, 10);
        assert_eq!(stopped.answer(), "0");
        assert_eq!(next.wait("a", 1).await, Some(1));
        stopped.signal(Signal::STOP);
        let released = Instant::now();
        holder.release("a", 1).await;
        let entry = store.inspect(&key("a")).await.unwrap().unwrap();
        assert_eq!(entry.lease.client, client(10));
        assert!(entry.time_left <= ACCEPTANCE, "{entry:?}");
        // The next is told how long to wait before it looks.
        let Event::Notice(_, Notice::Next { ttl, .. }) = next.hears(1).await.remove(0) else {
            panic!("not told");
        };
        assert_eq!(ttl.as_duration(), ACCEPTANCE);
        eventually_async(SOON, async || {
            store.inspect(&key("a")).await.unwrap().is_none()
        })
        .await;
        next.take("a", 1).await;
        assert!(released.elapsed() < ACCEPTANCE * 2);

        // It hears of its grant when it goes on; its lease has ended by then.
        stopped.signal(Signal::CONT);
        assert_eq!(stopped.answer(), entry.token.unwrap().to_string());
        let (lost, _) = outcome(&*store, renew("a", entry.lease, LONG)).await;
        assert_eq!(lost, Outcome::Lost(Loss::TakenOver));
        stopped.kill();
    });
}
