//! Requests that ran, and whose replies were lost.

use leasehold::{Cause, ErrorKind};
use leasehold_testkit::{AfterLoss, eventually_async};

use super::runner::{Schedule, run, run_all};
use super::scenario::{Contended, Scenario, TTL};
use crate::waiters::SOON;

const AFTER_LOSS: [AfterLoss; 2] = [AfterLoss::Silent, AfterLoss::Cut];

async fn of_an_acquire() {
    for after_loss in AFTER_LOSS {
        let scenario = Scenario::start().await;
        scenario.proxy.lose_replies("queue", 2, after_loss);
        let held = scenario.acquire(&scenario.a).await;
        assert_eq!(scenario.proxy.stats().replies_lost, 2);
        // Three requests were applied, as one.
        scenario.assert_recorded(&held, 1);
        let counter = scenario.server.cli(&["GET", &scenario.key(":token")]);
        assert_eq!(counter, held.token().to_string());
        held.assert_stays_held(TTL).await;
        scenario.assert_ends(held).await;
    }
}

/// A request that does not wait is repeated if it has no reply.
async fn of_a_request_that_does_not_wait() {
    for after_loss in AFTER_LOSS {
        let scenario = Scenario::start().await;
        scenario.proxy.lose_replies("acquire", 1, after_loss);
        let guard = scenario.mutex(&scenario.a).try_lock().await;
        let held = scenario.checker.granted(guard.unwrap().unwrap());
        scenario.assert_recorded(&held, 1);
        scenario.assert_ends(held).await;
    }
}

async fn of_a_renewal() {
    tokio::join!(
        of_one_renewal(AfterLoss::Silent),
        of_one_renewal(AfterLoss::Cut)
    );
}

async fn of_one_renewal(after_loss: AfterLoss) {
    let contended = Contended::start().await;
    contended
        .proxy
        .lose_replies(&contended.renewals(), 1, after_loss);
    // Not until the lease is in jeopardy: the next renewal may end that before it is seen.
    eventually_async(SOON, async || contended.proxy.stats().replies_lost == 1).await;
    contended.held.assert_stays_held(TTL).await;
    let (scenario, next) = contended.release_to_waiter().await;
    scenario.assert_ends(next).await;
}

/// The store has renewed all the time; the holder does not know.
async fn of_all_renewals() {
    let contended = Contended::start().await;
    let renewals = contended.renewals();
    contended
        .proxy
        .lose_replies(&renewals, usize::MAX, AfterLoss::Cut);
    contended.held.until_in_jeopardy().await;
    contended.held.until_lost(&[Cause::Unreachable]).await;
    let left = contended.ttl_left();
    assert!(left > TTL / 3, "{left:?}");
    let (scenario, _held, next) = contended.lost().await;
    scenario.assert_ends(next).await;
}

async fn of_a_release() {
    for after_loss in AFTER_LOSS {
        let Contended {
            scenario,
            held,
            waiter,
            ..
        } = Contended::start().await;
        scenario.proxy.lose_replies("release", 2, after_loss);
        let error = held.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        // It was applied, and its repetitions change nothing.
        let (next, _) = waiter.granted().await;
        eventually_async(SOON, async || scenario.proxy.stats().replies_lost == 2).await;
        next.assert_stays_held(TTL).await;
        scenario.assert_recorded(&next, 1);
        scenario.assert_ends(next).await;
    }
}

async fn of_a_re_entry() {
    for after_loss in AFTER_LOSS {
        let scenario = Scenario::start().await;
        let (mutex, outer) = scenario.owned().await;
        scenario.proxy.lose_replies("enter", 1, after_loss);
        let error = mutex.lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert_eq!(scenario.proxy.stats().replies_lost, 1);
        // The hold is released again, as no task received it.
        scenario.until_recorded(&outer, 1).await;
        outer.until_held().await;
        let inner = mutex.lock().await.unwrap();
        assert_eq!(inner.token(), outer.token());
        scenario.assert_recorded(&outer, 2);
        inner.release().await.unwrap();
        scenario.assert_recorded(&outer, 1);
        scenario.assert_ends(outer).await;
    }
}

async fn of_an_inner_release() {
    for after_loss in AFTER_LOSS {
        let scenario = Scenario::start().await;
        let (mutex, outer) = scenario.owned().await;
        let inner = mutex.lock().await.unwrap();
        scenario.proxy.lose_replies("enter", 1, after_loss);
        let error = inner.release().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        scenario.until_recorded(&outer, 1).await;
        outer.until_held().await;
        outer.assert_stays_held(TTL).await;
        scenario.assert_recorded(&outer, 1);
        scenario.assert_ends(outer).await;
    }
}

schedules! {
    of_an_acquire,
    of_a_request_that_does_not_wait,
    of_a_renewal,
    of_all_renewals,
    of_a_release,
    of_a_re_entry,
    of_an_inner_release,
}

/// A renewal fails just when the end of its connection is notified. Whichever is noticed first, the lease
/// is renewed again. So often, because the two seldom cross.
#[test]
fn of_a_renewal_many_times() {
    let once: Schedule = ("once", || run(of_one_renewal(AfterLoss::Silent)));
    run_all(&[once; 24]);
}
