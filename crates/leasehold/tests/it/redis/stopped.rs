//! A process that was stopped while its server failed.

use leasehold::Mutex;
use leasehold::clock::ManualClock;
use leasehold_testkit::{Restart, eventually};
use tokio::runtime::{Builder, Runtime};

use super::*;

const RECORD: &str = "leasehold:{default:a}";
/// How far the clock of the waiter advances between two checks.
const STEP: Duration = Duration::from_millis(1);

const QUEUE: &str = "leasehold:{default:a}:queue";

/// A process of one thread, which runs only inside `block_on`, and its clock.
fn process(server: &RedisServer) -> (Runtime, ManualClock, Mutex) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let clock = ManualClock::new();
    let builder = Client::builder().clock(Arc::new(clock.clone()));
    let client = runtime.block_on(builder.connect(&server.url())).unwrap();
    let mutex = client.mutex("a").unwrap();
    (runtime, clock, mutex)
}

/// The grant came before the process stood still, the end of the connection too. Read together, the
/// grant must not hide that the connection ended: the lease is checked at once, not at the next renewal.
#[test]
fn a_grant_that_the_server_has_forgotten_is_checked_at_once() {
    let mut server = RedisServer::start();
    let (holder, _, held) = process(&server);
    let (waiter, clock, wanted) = process(&server);
    let guard = holder.block_on(held.lock()).unwrap();
    let task = waiter.spawn(async move { wanted.lock().await.unwrap() });
    waiter.block_on(eventually_async(SOON, async || {
        server.cli(&["LLEN", QUEUE]) == "2"
    }));

    let lease = guard.lease_id().to_string();
    holder.block_on(guard.release()).unwrap();
    eventually(SOON, || {
        let record = server.cli(&["GET", RECORD]);
        !record.is_empty() && record != lease
    });
    server.kill9();
    server.restart(Restart::Empty);

    waiter.block_on(async {
        // Either the grant was not used, and this is another one, or it is over soon.
        let guard = task.await.unwrap();
        let mut passed = Duration::ZERO;
        let known = async || {
            clock.advance(STEP);
            passed += STEP;
            let record = server.cli(&["GET", RECORD]);
            record == guard.lease_id().to_string() || guard.state().is_lost()
        };
        eventually_async(SOON, known).await;
        // By its clock, the first renewal would be due a second after the grant.
        assert!(passed.as_millis() < 500, "{passed:?}");
    });
}
