//! Requests that run late, after whoever sent them gave them up.

use leasehold::clock::{BootClock, Clock};
use leasehold::{Client, ErrorKind, Owner};
use leasehold_testkit::eventually_async;

use super::causes::{Why, lost};
use super::judge::Held;
use super::play::play;
use super::scene::{Scene, TTL, client};
use crate::waiters::SOON;

/// Asks for a lock that another holds. The question is held back and asked again on another
/// connection; then the client gives up, and leaves the queue.
async fn gives_up(scene: &Scene, client: Client) {
    scene.proxy.hold_requests("acquire", 1);
    let mutex = scene.lock(&client);
    let waited = tokio::time::timeout(SOON, async {
        tokio::select! {
            _ = mutex.lock() => unreachable!("another holds it"),
            () = eventually_async(SOON, async || scene.queue() == 1) => {}
        }
    });
    waited.await.unwrap();
    assert_eq!(scene.proxy.tally().requests_held, 1);
    drop((mutex, client));
    eventually_async(SOON, async || scene.queue() == 0).await;
}

/// Lets a request run late, and looks that its lease does not stay for a ttl from then on.
async fn is_given_back(scene: &Scene) {
    tokio::time::sleep(TTL / 2).await;
    assert_eq!(scene.record(), "");
    scene.proxy.deliver();
    eventually_async(SOON, async || !scene.record().is_empty()).await;
    let soon = TTL * 3 / 4;
    eventually_async(soon, async || scene.record().is_empty()).await;
}

/// The server was stopped, and its client gave up and went. It runs what it had received, with a full
/// ttl from then on, for nobody.
async fn an_acquire_of_a_client_that_is_gone() {
    let scene = Scene::set().await;
    let goes = async || {
        let ghost = client(&scene.server.url(), TTL).await;
        scene.holds(&ghost).await.release().await.unwrap();
        scene.server.stop();
        let error = scene.lock(&ghost).try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
    };
    // As with a process, all that it began ends with its runtime.
    std::thread::scope(|threads| {
        threads.spawn(|| play(goes())).join().unwrap();
    });
    scene.server.cont();
    eventually_async(SOON, async || !scene.record().is_empty()).await;
    let begun = BootClock.now();
    assert!(scene.left() <= TTL);
    let (next, at) = scene.wants(&scene.b).served().await;
    let took = at.since(begun);
    assert!(took < TTL * 3 / 2, "{took:?}");
    assert!(next.writes());
    next.release().await.unwrap();
    scene.ends_clean().await;
}

/// The client lives, so it releases the dead id again when nothing of it can come any more.
async fn an_acquire_that_was_given_up() {
    let scene = Scene::set().await;
    let held = scene.holds(&scene.b).await;
    gives_up(&scene, scene.a.clone()).await;
    held.release().await.unwrap();
    is_given_back(&scene).await;
    scene.ends_clean().await;
}

/// The question puts the dead id into the queue. It is granted the lock in its turn, and gives it
/// back at once.
async fn a_question_that_was_given_up() {
    let scene = Scene::set().await;
    let held = scene.holds(&scene.b).await;
    gives_up(&scene, scene.a.clone()).await;
    passes_a_ghost_over(&scene, held).await;
    scene.ends_clean().await;
}

/// As the one before, but the client has gone: nobody waits for somebody who cannot be told.
async fn a_question_of_a_client_that_is_gone() {
    let scene = Scene::set().await;
    let held = scene.holds(&scene.b).await;
    gives_up(&scene, client(&scene.proxy.url(), TTL).await).await;
    passes_a_ghost_over(&scene, held).await;
    scene.ends_clean().await;
}

async fn passes_a_ghost_over(scene: &Scene, held: Held) {
    scene.proxy.deliver();
    eventually_async(SOON, async || scene.queue() == 1).await;
    let waiter = scene.queues(&scene.another().await).await;
    let released = BootClock.now();
    held.release().await.unwrap();
    let (next, at) = waiter.served().await;
    let took = at.since(released);
    assert!(took < TTL / 2, "{took:?}");
    next.stays_held(TTL).await;
    assert!(next.writes());
    next.release().await.unwrap();
}

async fn a_renewal() {
    let scene = Scene::set().await;
    let held = scene.holds(&scene.a).await;
    let waiter = scene.queues(&scene.b).await;
    let told = held.told();
    scene.proxy.hold_requests(&scene.renewals(), usize::MAX);
    let (next, at) = waiter.served().await;
    told.before(at).await;
    lost(held.state(), &[Why::Unreachable]);
    scene.proxy.deliver();
    next.stays_held(TTL).await;
    scene.is_recorded(&next, 1);
    assert!(next.writes() && !held.writes());
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    scene.is_recorded(&next, 1);
    next.release().await.unwrap();
    scene.ends_clean().await;
}

/// It makes the store keep a lease for longer that its holder has given up, and no longer than a ttl.
async fn a_renewal_of_a_lease_that_is_lost_and_not_over() {
    let scene = Scene::set().await;
    let held = scene.holds(&scene.a).await;
    let waiter = scene.queues(&scene.b).await;
    scene.proxy.hold_requests(&scene.renewals(), usize::MAX);
    held.until(|state| state.is_lost()).await;
    scene.proxy.deliver();
    let late = BootClock.now();
    eventually_async(SOON, async || scene.left() > TTL / 2).await;
    let (next, at) = waiter.served().await;
    let took = at.since(late);
    assert!(took < TTL * 3 / 2, "{took:?}");
    assert!(next.writes() && !held.writes());
    next.release().await.unwrap();
    scene.ends_clean().await;
}

async fn a_release() {
    let scene = Scene::set().await;
    let held = scene.holds(&scene.a).await;
    scene.proxy.hold_requests("release", 1);
    let error = held.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    // It was told again in the background.
    let next = scene.holds(&scene.a).await;
    scene.proxy.deliver();
    next.stays_held(TTL).await;
    scene.is_recorded(&next, 1);
    next.release().await.unwrap();
    scene.ends_clean().await;
}

/// A hold that came and went while the other stayed: its late request gives the lease a hold that
/// nobody has, and the last release ends that, too.
async fn a_re_entry() {
    let scene = Scene::set().await;
    let mutex = scene.lock(&scene.a).owned_by(&Owner::new());
    let outer = scene.judge.granted(mutex.lock().await.unwrap());
    scene.proxy.hold_requests("enter", 1);
    scene.proxy.count("release");
    let error = mutex.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    outer.until(|state| state.is_held()).await;
    // The hold is left again. What is answered after that says that it was.
    eventually_async(SOON, async || scene.proxy.counted("release") > 0).await;
    assert!(mutex.is_locked().await.unwrap());
    scene.until_recorded(&outer, 1).await;
    scene.proxy.deliver();
    scene.until_recorded(&outer, 2).await;
    outer.stays_held(TTL).await;
    outer.release().await.unwrap();
    assert_eq!(scene.record(), "");
    scene.ends_clean().await;
}

/// The same, after the lease was released: it takes nothing that is not held.
async fn a_re_entry_after_the_last_release() {
    let scene = Scene::set().await;
    let mutex = scene.lock(&scene.a).owned_by(&Owner::new());
    let outer = scene.judge.granted(mutex.lock().await.unwrap());
    scene.proxy.hold_requests("enter", 1);
    let error = mutex.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    outer.until(|state| state.is_held()).await;
    outer.release().await.unwrap();
    scene.proxy.deliver();
    let next = scene.holds(&scene.b).await;
    scene.is_recorded(&next, 1);
    next.release().await.unwrap();
    assert_eq!(scene.record(), "");
    scene.ends_clean().await;
}

schedules! {
    a_re_entry_after_the_last_release,
    an_acquire_of_a_client_that_is_gone,
    an_acquire_that_was_given_up,
    a_question_that_was_given_up,
    a_question_of_a_client_that_is_gone,
    a_renewal,
    a_renewal_of_a_lease_that_is_lost_and_not_over,
    a_release,
    a_re_entry,
}
