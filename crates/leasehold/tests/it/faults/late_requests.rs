//! Requests that run late, after whoever sent them gave them up.

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, Client, ErrorKind, Owner};
use leasehold_testkit::eventually_async;

use super::checker::{HeldLock, lost};
use super::runner::run;
use super::scenario::{Scenario, TTL, client};
use crate::waiters::SOON;

/// Asks for a lock that another holds. The question is held back and asked again on another
/// connection; then the client gives up, and leaves the queue.
async fn gives_up(scenario: &Scenario, client: Client) {
    scenario.proxy.hold_requests("queue", 1);
    let mutex = scenario.mutex(&client);
    let waited = tokio::time::timeout(SOON, async {
        tokio::select! {
            _ = mutex.lock() => unreachable!("another holds it"),
            () = eventually_async(SOON, async || scenario.queue() == 1) => {}
        }
    });
    waited.await.unwrap();
    assert_eq!(scenario.proxy.tally().requests_held, 1);
    drop((mutex, client));
    eventually_async(SOON, async || scenario.queue() == 0).await;
}

/// Lets a request run late, and looks that its lease does not stay for a ttl from then on.
async fn is_given_back(scenario: &Scenario) {
    tokio::time::sleep(TTL / 2).await;
    assert_eq!(scenario.record(), "");
    scenario.proxy.deliver();
    eventually_async(SOON, async || !scenario.record().is_empty()).await;
    let soon = TTL * 3 / 4;
    eventually_async(soon, async || scenario.record().is_empty()).await;
}

/// The server was stopped, and its client gave up and went. It runs what it had received, with a full
/// ttl from then on, for nobody.
async fn an_acquire_of_a_client_that_is_gone() {
    let scenario = Scenario::start().await;
    let goes = async || {
        let ghost = client(&scenario.server.url(), TTL).await;
        scenario.acquire(&ghost).await.release().await.unwrap();
        scenario.server.stop();
        let error = scenario.mutex(&ghost).try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
    };
    // As with a process, all that it began ends with its runtime.
    std::thread::scope(|threads| {
        threads.spawn(|| run(goes())).join().unwrap();
    });
    scenario.server.cont();
    eventually_async(SOON, async || !scenario.record().is_empty()).await;
    let begun = BootClock.now();
    assert!(scenario.ttl_left() <= TTL);
    let (next, at) = scenario.wait(&scenario.b).granted().await;
    let took = at.since(begun);
    assert!(took < TTL * 3 / 2, "{took:?}");
    assert!(next.write());
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// The client lives, so it releases the dead id again when nothing of it can come any more.
async fn an_acquire_that_was_given_up() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.b).await;
    gives_up(&scenario, scenario.a.clone()).await;
    held.release().await.unwrap();
    is_given_back(&scenario).await;
    scenario.assert_clean_end().await;
}

/// The question puts the dead id into the queue. It is granted the lock in its turn, and gives it
/// back at once.
async fn a_question_that_was_given_up() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.b).await;
    gives_up(&scenario, scenario.a.clone()).await;
    passes_a_ghost_over(&scenario, held).await;
    scenario.assert_clean_end().await;
}

/// As the one before, but the client has gone: nobody waits for somebody who cannot be notified.
async fn a_question_of_a_client_that_is_gone() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.b).await;
    gives_up(&scenario, client(&scenario.proxy.url(), TTL).await).await;
    passes_a_ghost_over(&scenario, held).await;
    scenario.assert_clean_end().await;
}

async fn passes_a_ghost_over(scenario: &Scenario, held: HeldLock) {
    scenario.proxy.deliver();
    eventually_async(SOON, async || scenario.queue() == 1).await;
    let waiter = scenario.enqueue(&scenario.another_client().await).await;
    let released = BootClock.now();
    held.release().await.unwrap();
    let (next, at) = waiter.granted().await;
    let took = at.since(released);
    assert!(took < TTL / 2, "{took:?}");
    next.assert_stays_held(TTL).await;
    assert!(next.write());
    next.release().await.unwrap();
}

async fn a_renewal() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    let notified = held.loss_notification();
    scenario
        .proxy
        .hold_requests(&scenario.renewals(), usize::MAX);
    let (next, at) = waiter.granted().await;
    notified.before(at).await;
    lost(held.state(), &[Cause::Unreachable]);
    scenario.proxy.deliver();
    next.assert_stays_held(TTL).await;
    scenario.assert_recorded(&next, 1);
    assert!(next.write() && !held.write());
    assert_eq!(held.release().await.unwrap_err().kind(), ErrorKind::Lost);
    scenario.assert_recorded(&next, 1);
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// It makes the store keep a lease for longer that its holder has given up, and no longer than a ttl.
async fn a_renewal_of_a_lease_that_is_lost_and_not_over() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    let waiter = scenario.enqueue(&scenario.b).await;
    scenario
        .proxy
        .hold_requests(&scenario.renewals(), usize::MAX);
    held.until(|state| state.is_lost()).await;
    scenario.proxy.deliver();
    let late = BootClock.now();
    eventually_async(SOON, async || scenario.ttl_left() > TTL / 2).await;
    let (next, at) = waiter.granted().await;
    let took = at.since(late);
    assert!(took < TTL * 3 / 2, "{took:?}");
    assert!(next.write() && !held.write());
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

async fn a_release() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    scenario.proxy.hold_requests("release", 1);
    let error = held.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    // It was notified again in the background.
    let next = scenario.acquire(&scenario.a).await;
    scenario.proxy.deliver();
    next.assert_stays_held(TTL).await;
    scenario.assert_recorded(&next, 1);
    next.release().await.unwrap();
    scenario.assert_clean_end().await;
}

/// A hold that came and went while the other stayed: its late request gives the lease a hold that
/// nobody has, and the last release ends that, too.
async fn a_re_entry() {
    let scenario = Scenario::start().await;
    let mutex = scenario.mutex(&scenario.a).owned_by(&Owner::new());
    let outer = scenario.checker.granted(mutex.lock().await.unwrap());
    scenario.proxy.hold_requests("enter", 1);
    scenario.proxy.count("release");
    let error = mutex.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    outer.until(|state| state.is_held()).await;
    // The hold is left again. What is answered after that says that it was.
    eventually_async(SOON, async || scenario.proxy.counted("release") > 0).await;
    assert!(mutex.is_locked().await.unwrap());
    scenario.until_recorded(&outer, 1).await;
    scenario.proxy.deliver();
    scenario.until_recorded(&outer, 2).await;
    outer.assert_stays_held(TTL).await;
    outer.release().await.unwrap();
    assert_eq!(scenario.record(), "");
    scenario.assert_clean_end().await;
}

/// The same, after the lease was released: it takes nothing that is not held.
async fn a_re_entry_after_the_last_release() {
    let scenario = Scenario::start().await;
    let mutex = scenario.mutex(&scenario.a).owned_by(&Owner::new());
    let outer = scenario.checker.granted(mutex.lock().await.unwrap());
    scenario.proxy.hold_requests("enter", 1);
    let error = mutex.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    outer.until(|state| state.is_held()).await;
    outer.release().await.unwrap();
    scenario.proxy.deliver();
    let next = scenario.acquire(&scenario.b).await;
    scenario.assert_recorded(&next, 1);
    next.release().await.unwrap();
    assert_eq!(scenario.record(), "");
    scenario.assert_clean_end().await;
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
