//! A server that stands still under leases of the default ttl. It starts early, for it takes longest.

use std::time::Duration;

use leasehold::clock::{BootClock, Clock};
use leasehold::{ErrorKind, Instant};
use leasehold_testkit::RedisServer;

use super::causes::{Why, lost};
use super::judge::Held;
use super::scene::{Scene, Waiter};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

/// A holder, a waiter, and when the lease was granted.
struct Stage {
    scene: Scene,
    held: Held,
    waiter: Waiter,
    begun: Instant,
}

impl Stage {
    async fn set() -> Self {
        let scene = Scene::with(RedisServer::options(), TTL).await;
        let begun = BootClock.now();
        let held = scene.holds(&scene.a).await;
        let waiter = scene.queues(&scene.b).await;
        Self {
            scene,
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
        self.scene.server.stop();
        self.at(to).await;
        self.scene.server.cont();
    }

    /// Releases the lock, and the other has it.
    async fn end(self) {
        assert!(self.waiter.waits() && self.held.writes());
        self.scene.is_recorded(&self.held, 1);
        self.held.release().await.unwrap();
        let (next, _) = self.waiter.served().await;
        assert!(next.writes());
        next.release().await.unwrap();
        self.scene.ends_clean().await;
    }
}

/// Over the time of a renewal, which is answered late enough.
async fn of_1_s() {
    let stage = Stage::set().await;
    // A renewal is due at 10 s, and has 2 s.
    let stop = async {
        BootClock
            .sleep_until(stage.begun.after(SECOND * 19 / 2))
            .await;
        stage.scene.server.stop();
        tokio::time::sleep(SECOND).await;
        stage.scene.server.cont();
    };
    tokio::join!(stop, stage.held.is_never_in_doubt(SECOND * 12));
    stage.end().await;
}

/// The first renewal fails, and the second is in time.
async fn of_12_s() {
    let stage = Stage::set().await;
    let jeopardy = async {
        stage.held.until_in_doubt().await;
        BootClock.now().since(stage.begun)
    };
    let (jeopardy, ()) = tokio::join!(jeopardy, stage.stop(5, 17));
    assert!(
        (SECOND * 10..SECOND * 13).contains(&jeopardy),
        "{jeopardy:?}"
    );
    stage.held.until(|state| state.is_held()).await;
    stage.held.stays_held(SECOND * 5).await;
    stage.end().await;
}

/// The holder is told with a third of the ttl left, and the lease ends while the server stands.
async fn of_40_s() {
    let stage = Stage::set().await;
    let told = stage.held.told();
    let loss = async {
        stage.held.until(|state| state.is_lost()).await;
        BootClock.now().since(stage.begun)
    };
    let (loss, ()) = tokio::join!(loss, stage.stop(1, 41));
    assert!((SECOND * 19..SECOND * 21).contains(&loss), "{loss:?}");
    lost(stage.held.state(), &[Why::Unreachable]);
    let (next, at) = stage.waiter.served().await;
    told.before(at).await;
    assert!(next.writes() && !stage.held.writes());
    let error = stage.held.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    // What the holder had sent meanwhile has run by now.
    next.stays_held(SECOND).await;
    stage.scene.is_recorded(&next, 1);
    next.release().await.unwrap();
    stage.scene.ends_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_1_and_12_and_40_seconds() {
    tokio::join!(of_1_s(), of_12_s(), of_40_s());
}
