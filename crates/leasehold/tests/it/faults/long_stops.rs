//! A server that stands still under leases of the default ttl. It starts early, for it takes longest.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, ErrorKind, Instant};
use leasehold_testkit::RedisServer;

use super::checker::{HeldLock, lost};
use super::scenario::{Scenario, Waiter};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// A holder, a waiter, and when the lease was granted.
struct Harness {
    scenario: Scenario,
    held: HeldLock,
    waiter: Waiter,
    begun: Instant,
}

impl Harness {
    async fn start() -> Self {
        let scenario = Scenario::start_with(RedisServer::options(), TTL).await;
        let begun = BootClock.now();
        let held = scenario.acquire(&scenario.a).await;
        let waiter = scenario.enqueue(&scenario.b).await;
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
        assert!(self.waiter.is_waiting() && self.held.write());
        self.scenario.assert_recorded(&self.held, 1);
        self.held.release().await.unwrap();
        let (next, _) = self.waiter.granted().await;
        assert!(next.write());
        next.release().await.unwrap();
        self.scenario.assert_clean_end().await;
    }
}

/// Over the time of a renewal, which is answered late enough.
async fn of_1_s() {
    let harness = Harness::start().await;
    // A renewal is due at 10 s, and has 2 s.
    let stop = async {
        BootClock
            .sleep_until(harness.begun.after(SECOND * 19 / 2))
            .await;
        harness.scenario.server.stop();
        tokio::time::sleep(SECOND).await;
        harness.scenario.server.cont();
    };
    tokio::join!(stop, harness.held.assert_never_in_doubt(SECOND * 12));
    harness.end().await;
}

/// The first renewal fails, and the second is in time.
async fn of_12_s() {
    let harness = Harness::start().await;
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
    harness.held.assert_stays_held(SECOND * 5).await;
    harness.end().await;
}

/// The holder is notified with a third of the ttl left, and the lease ends while the server stands.
async fn of_40_s() {
    let harness = Harness::start().await;
    let notified = harness.held.loss_notification();
    let loss = async {
        harness.held.until(|state| state.is_lost()).await;
        BootClock.now().since(harness.begun)
    };
    let (loss, ()) = tokio::join!(loss, harness.stop(1, 41));
    assert!((SECOND * 19..SECOND * 21).contains(&loss), "{loss:?}");
    lost(harness.held.state(), &[Cause::Unreachable]);
    let (next, at) = harness.waiter.granted().await;
    notified.before(at).await;
    assert!(next.write() && !harness.held.write());
    let error = harness.held.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    // What the holder had sent meanwhile has run by now.
    next.assert_stays_held(SECOND).await;
    harness.scenario.assert_recorded(&next, 1);
    next.release().await.unwrap();
    harness.scenario.assert_clean_end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_1_and_12_and_40_seconds() {
    tokio::join!(of_1_s(), of_12_s(), of_40_s());
}
