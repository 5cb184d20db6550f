//! A server that stands still under leases of the default ttl. It starts early, for it takes longest.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{ErrorKind, Instant};
use leasehold_testkit::RedisServer;

use super::causes::{Why, lost};
use super::judge::Held;
use super::scenario::{Scenario, Waiter};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// A holder, a waiter, and when the lease was granted.
struct Harness {
    scenario: Scenario,
    held: Held,
    waiter: Waiter,
    begun: Instant,
}

impl Harness {
    async fn set() -> Self {
        let scenario = Scenario::with(RedisServer::options(), TTL).await;
        let begun = BootClock.now();
        let held = scenario.holds(&scenario.a).await;
        let waiter = scenario.queues(&scenario.b).await;
        Self {
            scenario,
            held,
            waiter,
            begun,
        }
    }

    async fn at(&self, seconds: u32) {
        let end = self.begun.after(SECOND * seconds);
        BootClock.sleep_until(end).await;
    }

    /// Stops the server from one second to another.
    async fn stop(&self, from: u32, to: u32) {
        self.at(from).await;
        self.scenario.server.stop();
        self.at(to).await;
        self.scenario.server.cont();
    }

    /// Releases the lock, and the other has it.
    async fn end(self) {
        assert!(self.waiter.waits() && self.held.writes());
        self.scenario.is_recorded(&self.held, 1);
        self.held.release().await.unwrap();
        let (next, _) = self.waiter.served().await;
        assert!(next.writes());
        next.release().await.unwrap();
        self.scenario.ends_clean().await;
    }
}

/// Over the time of a renewal, which is answered late enough.
async fn of_1_s() {
    let harness = Harness::set().await;
    // A renewal is due at 10 s, and has 2 s.
    let stop = async {
        BootClock
            .sleep_until(harness.begun.after(SECOND * 19 / 2))
            .await;
        harness.scenario.server.stop();
        tokio::time::sleep(SECOND).await;
        harness.scenario.server.cont();
    };
    tokio::join!(stop, harness.held.is_never_in_doubt(SECOND * 12));
    harness.end().await;
}

/// The first renewal fails, and the second is in time.
async fn of_12_s() {
    let harness = Harness::set().await;
    let jeopardy = async {
        harness.held.until_in_doubt().await;
        BootClock.now().since(harness.begun)
    };
    let (jeopardy, ()) = tokio::join!(jeopardy, harness.stop(5, 17));
    assert!(
        (SECOND * 10..SECOND * 13).contains(&jeopardy),
        "{jeopardy:?}"
    );
    harness.held.until(|state| state.is_held()).await;
    harness.held.stays_held(SECOND * 5).await;
    harness.end().await;
}

/// The holder is told with a third of the ttl left, and the lease ends while the server stands.
async fn of_40_s() {
    let harness = Harness::set().await;
    let told = harness.held.told();
    let loss = async {
        harness.held.until(|state| state.is_lost()).await;
        BootClock.now().since(harness.begun)
    };
    let (loss, ()) = tokio::join!(loss, harness.stop(1, 41));
    assert!((SECOND * 19..SECOND * 21).contains(&loss), "{loss:?}");
    lost(harness.held.state(), &[Why::Unreachable]);
    let (next, at) = harness.waiter.served().await;
    told.before(at).await;
    assert!(next.writes() && !harness.held.writes());
    let error = harness.held.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    // What the holder had sent meanwhile has run by now.
    next.stays_held(SECOND).await;
    harness.scenario.is_recorded(&next, 1);
    next.release().await.unwrap();
    harness.scenario.ends_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_1_and_12_and_40_seconds() {
    tokio::join!(of_1_s(), of_12_s(), of_40_s());
}
