//! A process that was stopped while its server failed.

use leasehold::Mutex;
use leasehold_testkit::{Restart, eventually};
use tokio::runtime::{Builder, Runtime};

use super::*;

const RECORD: &str = "leasehold:{default:a}";
const QUEUE: &str = "leasehold:{default:a}:queue";

/// A process of one thread, which runs only inside `block_on`.
fn process(server: &RedisServer) -> (Runtime, Mutex) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mutex = runtime.block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        client.mutex("a").unwrap()
    });
    (runtime, mutex)
}

/// The grant came before the process stood still, the end of the connection too. Read together, the
/// grant must not hide that the connection ended: the lease is checked at once, not at the next renewal.
#[test]
fn a_grant_that_the_server_has_forgotten_is_checked_at_once() {
    let mut server = RedisServer::start();
    let (holder, held) = process(&server);
    let (waiter, wanted) = process(&server);
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
        let asked = std::time::Instant::now();
        let known = async || {
            let record = server.cli(&["GET", RECORD]);
            record == guard.lease_id().to_string() || guard.state().is_lost()
        };
        eventually_async(SOON, known).await;
        // The first renewal would be due a second after the grant.
        assert!(asked.elapsed().as_millis() < 500, "{:?}", asked.elapsed());
    });
}
