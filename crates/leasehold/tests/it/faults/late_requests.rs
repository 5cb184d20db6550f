//! Requests that are applied late, after their client has given them up.

use leasehold::clock::{BootClock, Clock};
use leasehold::{Cause, Client, ErrorKind};
use leasehold_testkit::eventually_async;

use super::runner::run;
use super::scenario::{Contended, Scenario, TTL, client};
use crate::waiters::SOON;

/// Sends a request for a lock that another holds. It is held back and repeated on another connection; then the client
/// gives up, and leaves the queue.
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
    assert_eq!(scenario.proxy.stats().requests_held, 1);
    drop((mutex, client));
    eventually_async(SOON, async || scenario.queue() == 0).await;
}

/// The server was stopped, and its client failed and ended. The server then applies the request that it had received,
/// with a full ttl from then on, for nobody.
async fn an_acquire_of_a_client_that_is_gone() {
    let scenario = Scenario::start().await;
    let fails = async || {
        let gone = client(&scenario.server.url(), TTL).await;
        scenario.acquire(&gone).await.release().await.unwrap();
        scenario.server.stop();
        let error = scenario.mutex(&gone).try_lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
    };
    // As with a process, the end of its runtime ends all that it began.
    std::thread::scope(|threads| {
        threads.spawn(|| run(fails())).join().unwrap();
    });
    scenario.server.cont();
    eventually_async(SOON, async || !scenario.record().is_empty()).await;
    let begun = BootClock.now();
    assert!(scenario.ttl_left() <= TTL);
    let (next, at) = scenario.wait(&scenario.b).granted().await;
    let took = at.since(begun);
    assert!(took < TTL * 3 / 2, "{took:?}");
    scenario.assert_ends(next).await;
}

/// The client lives, so it releases the dead id again after the last instant at which its request may be applied.
async fn an_acquire_that_was_given_up() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.b).await;
    gives_up(&scenario, scenario.a.clone()).await;
    held.release().await.unwrap();
    // The lease does not last for a ttl after the late request.
    tokio::time::sleep(TTL / 2).await;
    assert_eq!(scenario.record(), "");
    scenario.proxy.deliver();
    eventually_async(SOON, async || !scenario.record().is_empty()).await;
    let soon = TTL * 3 / 4;
    eventually_async(soon, async || scenario.record().is_empty()).await;
    scenario.assert_clean_end().await;
}

/// The late request puts the dead id into the queue. It is granted the lock in its turn, and released at once, if its
/// client lives. Otherwise it cannot be notified, and is passed over.
async fn a_waiter_that_has_given_up() {
    for lives in [true, false] {
        let scenario = Scenario::start().await;
        let held = scenario.acquire(&scenario.b).await;
        let client = match lives {
            true => scenario.a.clone(),
            false => client(&scenario.proxy.url(), TTL).await,
        };
        gives_up(&scenario, client).await;
        scenario.proxy.deliver();
        eventually_async(SOON, async || scenario.queue() == 1).await;
        let waiter = scenario.enqueue(&scenario.another_client().await).await;
        let released = BootClock.now();
        held.release().await.unwrap();
        let (next, at) = waiter.granted().await;
        let took = at.since(released);
        assert!(took < TTL / 2, "{took:?}");
        next.assert_stays_held(TTL).await;
        scenario.assert_ends(next).await;
    }
}

/// It makes the store keep a lease for longer that its holder has given up, and no longer than a ttl. Renewals after
/// the end of the lease are in `partitions`.
async fn a_renewal_of_a_lease_that_is_lost_and_not_over() {
    let contended = Contended::start().await;
    let renewals = contended.renewals();
    contended.proxy.hold_requests(&renewals, usize::MAX);
    contended.held.until_lost(&[Cause::Unreachable]).await;
    contended.proxy.deliver();
    let late = BootClock.now();
    eventually_async(SOON, async || contended.ttl_left() > TTL / 2).await;
    let (scenario, _held, next) = contended.lost().await;
    let took = BootClock.now().since(late);
    assert!(took < TTL * 3 / 2, "{took:?}");
    scenario.assert_ends(next).await;
}

async fn a_release() {
    let scenario = Scenario::start().await;
    let held = scenario.acquire(&scenario.a).await;
    scenario.proxy.hold_requests("release", 1);
    let error = held.release().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    // It was repeated in the background.
    let next = scenario.acquire(&scenario.a).await;
    scenario.proxy.deliver();
    next.assert_stays_held(TTL).await;
    scenario.assert_recorded(&next, 1);
    scenario.assert_ends(next).await;
}

/// A hold that began and ended while the other remained: its late request gives the lease a hold without a guard, and
/// the last release ends that, too.
async fn a_re_entry() {
    let scenario = Scenario::start().await;
    let (mutex, outer) = scenario.owned().await;
    scenario.proxy.hold_requests("enter", 1);
    scenario.proxy.count("enter 1");
    let error = mutex.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    outer.until_held().await;
    // The hold is released again. A later reply shows that.
    eventually_async(SOON, async || scenario.proxy.counted("enter 1") > 0).await;
    assert!(mutex.is_locked().await.unwrap());
    scenario.until_recorded(&outer, 1).await;
    scenario.proxy.deliver();
    scenario.until_recorded(&outer, 2).await;
    outer.assert_stays_held(TTL).await;
    scenario.assert_ends(outer).await;
}

/// The same, after the lease was released: it acquires nothing that is not held.
async fn a_re_entry_after_the_last_release() {
    let scenario = Scenario::start().await;
    let (mutex, outer) = scenario.owned().await;
    scenario.proxy.hold_requests("enter", 1);
    let error = mutex.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    outer.until_held().await;
    outer.release().await.unwrap();
    scenario.proxy.deliver();
    let next = scenario.acquire(&scenario.b).await;
    scenario.assert_recorded(&next, 1);
    scenario.assert_ends(next).await;
}

schedules! {
    a_re_entry_after_the_last_release,
    an_acquire_of_a_client_that_is_gone,
    an_acquire_that_was_given_up,
    a_waiter_that_has_given_up,
    a_renewal_of_a_lease_that_is_lost_and_not_over,
    a_release,
    a_re_entry,
}
