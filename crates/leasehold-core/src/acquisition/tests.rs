//! The faults that an acquisition tolerates, in virtual time.

mod host;

use std::sync::Arc;

use self::host::Host;
use super::*;
use crate::annotation::CompletionKey;
use crate::fixture::{at, lease, ms, token};
use crate::policy::Policy;
use crate::record::{Claim, Unless};
use crate::release::LateRelease;
use crate::time::{StoreTime, Ttl};

const SHARD: u32 = 7;
const SPREAD: f64 = 0.5;

/// A time of the store, whose clock has another start than the local one.
fn store_time(millis: u64) -> StoreTime {
    StoreTime::from_micros(1_700_000_000_000_000 + millis * 1_000)
}

fn ttl() -> Ttl {
    Ttl::from_millis(30_000).unwrap()
}

fn options() -> AcquisitionOptions {
    let (policy, fixed) = (Policy::of(ttl()), None);
    AcquisitionOptions {
        lease: RenewalOptions { policy, fixed },
        claim: Claim::Mutex,
        run: None,
        wait: true,
        replicated: false,
        idempotent: true,
        longest_poll: POLL_MAX,
    }
}

fn granted(first: u64) -> Outcome {
    Outcome::granted(token(first))
}

fn refused(time_left: u64, queue_position: Option<u32>) -> Outcome {
    Outcome::Refused {
        time_left: Some(ms(time_left)),
        queue_position,
    }
}

#[test]
fn a_refusal_is_final_only_for_a_caller_that_does_not_wait() {
    let mut waiting = Host::new(options());
    waiting.sends(0);
    waiting.applied(refused(20_000, Some(0)), 0);
    waiting.waits(0);
    assert_eq!(waiting.next_timeout(), 20_253);
    let mut trying = Host::new(AcquisitionOptions {
        wait: false,
        ..options()
    });
    trying.sends(0);
    trying.applied(refused(20_000, None), 0);
    assert!(matches!(trying.poll(0), AcquireAction::Refused));
    assert_eq!(trying.machine.abandon(), None);
}

#[test]
fn a_request_without_a_reply_is_repeated_under_the_same_id() {
    let mut host = Host::new(options());
    host.sends(0);
    // The request itself may interrupt the connection, and so may that of another waiter.
    host.notice(AcquireNotice::Interrupted, 2_000);
    host.unknown(2_000);
    host.notice(AcquireNotice::Interrupted, 2_000);
    host.waits(2_000);
    let retry = host.next_timeout();
    assert_eq!(retry, 2_375, "a quarter of the failure, spread");
    assert_eq!(host.sends(retry), lease(1));
    host.applied(granted(5), 2_400);
    let granted = host.holds(2_400);
    // The first request can still be applied, after the release of this grant.
    assert_eq!(granted.late_release, Some(at(30_000)));
    assert_eq!(granted.lease.deadline(), time::deadline(at(retry), ttl()));
}

#[test]
fn an_id_whose_lease_can_have_expired_is_abandoned_and_released_once_more_after_its_ttl() {
    let mut host = Host::new(options());
    host.sends(0);
    host.rejected(Failure::Until(ms(29_000)), 10);
    assert!(host.machine.abandon().is_none(), "certainly not applied");
    let mut host = Host::new(options());
    host.queued(0);
    host.sends(20_253);
    host.unknown(25_000);
    let retry = host.next_timeout();
    host.sends(retry);
    host.unknown(49_999);
    assert!(host.released.is_empty());
    // The store is silent for less than a ttl: the caller continues to wait.
    let next = host.next_timeout();
    assert_eq!(host.sends(next), lease(2), "{next}");
    let expected = AbandonedLease {
        lease: lease(1),
        ttl: ttl(),
        late: Some(LateRelease {
            at: at(retry).after(ttl().as_duration()),
            single: false,
        }),
        order: ReleaseOrder::Behind,
    };
    assert_eq!(host.released, [expected]);
}

#[test]
fn a_grant_that_came_too_late_is_released_and_counts_as_silence() {
    let mut host = Host::new(options());
    host.sends(0);
    host.applied(granted(5), 25_000);
    host.waits(25_000);
    assert_eq!(host.expired_grants, 1);
    assert_eq!(host.released.len(), 1);
    assert_eq!(host.released[0].lease, lease(1));
    assert_eq!(host.released[0].late, None, "every request has a reply");
    let retry = host.next_timeout();
    assert_eq!(host.sends(retry), lease(2));
}

#[test]
fn a_store_that_is_silent_for_a_ttl_is_an_error() {
    let mut host = Host::new(options());
    let mut now = 0;
    while now < 30_000 {
        host.sends(now);
        host.unknown(now + 5_000);
        now += 5_000;
        if now < 30_000 {
            host.waits(now);
            now = host.next_timeout();
        }
    }
    host.fails(now);
    // The next caller has not waited for as long, and sends a request of its own.
    let mut next = Host::new(options());
    next.machine = host.machine.successor(options(), at(now));
    next.machine.take_over(at(now - 100));
    assert!(!next.machine.is_silent(at(now)));
    next.sends(now);
}

#[test]
fn a_failure_with_a_known_end_is_waited_for() {
    let mut host = Host::new(options());
    let mut now = 0;
    while now < 200_000 {
        host.sends(now);
        host.rejected(Failure::Until(ms(200_000 - now)), now);
        host.waits(now);
        now = host.next_timeout();
    }
    host.sends(now);
    host.rejected(Failure::Permanent, now);
    host.fails(now);
}

#[test]
fn a_caller_that_does_not_wait_retries_once_after_silence() {
    let trying = || {
        Host::new(AcquisitionOptions {
            wait: false,
            ..options()
        })
    };
    let mut host = trying();
    host.sends(0);
    host.unknown(10);
    let retry = host.next_timeout();
    host.sends(retry);
    host.unknown(retry + 10);
    host.fails(retry + 10);
    let mut host = trying();
    host.sends(0);
    host.rejected(Failure::Transient, 10);
    let retry = host.next_timeout();
    host.sends(retry);
    host.rejected(Failure::Transient, retry);
    host.fails(retry);
    let mut host = trying();
    host.sends(0);
    host.rejected(Failure::Until(Duration::from_secs(9)), 10);
    host.fails(10);
}

#[test]
fn a_grant_and_a_repeated_refusal_that_crossed_are_decided_by_the_store() {
    // The clock of the store may have been set back between them.
    for pushed in [21_255, 30_000] {
        let mut host = Host::new(options());
        host.queued(1_000);
        host.sends(21_253);
        host.pushed(9, pushed, 21_256);
        host.applied(refused(20_000, Some(0)), 21_260);
        assert_eq!(host.sends(21_260), lease(1));
        host.applied(granted(9), 21_270);
        assert_eq!(host.holds(21_270).first, token(9));
    }
}

#[test]
fn a_grant_of_another_shard_is_not_accepted() {
    let mut host = Host::new(options());
    host.queued(1_000);
    host.pushed(9, 2_000, 2_000);
    let moved = host.machine.poll(at(2_000), SHARD + 1);
    assert!(matches!(moved, AcquireAction::Acquire(_)), "{moved:?}");
    // Nor one after a refusal during which the record moved.
    let mut host = Host::new(options());
    host.sends(1_000);
    let reply = AcquireReply::Applied {
        outcome: refused(20_000, Some(0)),
        now: store_time(1_000),
        shard: None,
        notifies_changes: false,
    };
    host.machine.handle_reply(reply, at(1_000), SPREAD);
    host.pushed(9, 2_000, 2_000);
    host.sends(2_000);
}

#[test]
fn a_notified_grant_says_nothing_of_replicas_and_is_too_short_for_a_fixed_lease() {
    let replicated = AcquisitionOptions {
        replicated: true,
        ..options()
    };
    let fixed = AcquisitionOptions {
        lease: RenewalOptions {
            fixed: Some(ttl()),
            ..options().lease
        },
        ..options()
    };
    for options in [replicated, fixed] {
        let mut host = Host::new(options);
        host.queued(1_000);
        host.pushed(9, 2_000, 2_000);
        host.sends(2_000);
    }
}

/// The lease would be lost before the reply to its first renewal.
#[test]
fn a_notified_grant_that_leaves_no_time_to_renew_it_is_requested_again() {
    let minutes = Ttl::from_millis(300_000).unwrap();
    for (ttl, waited, late, is_accepted) in [
        (minutes, 10_000, 0, true),
        // 1 % of this time is the allowance for drift, and a third of the 3 s of the grant is the margin.
        (minutes, 80_000, 0, true),
        (minutes, 105_000, 0, false),
        // A round trip takes as long as the notice was late.
        (minutes, 10_000, 700, true),
        (minutes, 10_000, 1_000, false),
        (ttl(), 20_000, 500, true),
        (ttl(), 20_000, 1_500, false),
        (ttl(), 1_000, 7_000, false),
    ] {
        let mut options = options();
        options.lease.policy = Policy::of(ttl);
        let mut host = Host::new(options);
        host.queued(1_000);
        let now = 1_000 + waited + late;
        host.pushed(9, now - late, now);
        match is_accepted {
            true => assert_eq!(host.holds(now).first, token(9)),
            false => assert_eq!(host.sends(now), lease(1), "{waited} {late}"),
        }
        assert!(host.released.is_empty());
    }
}

#[test]
fn a_waiter_that_gives_up_leaves_the_queue() {
    let mut host = Host::new(options());
    assert_eq!(host.machine.abandon(), None);
    host.queued(1_000);
    assert!(host.machine.is_queued());
    let abandoned = host.machine.abandon().unwrap();
    assert_eq!((abandoned.lease, abandoned.late), (lease(1), None));
    assert_eq!(host.machine.abandon(), None);
    // With a request in flight, that may be applied behind the release, which finds the grant of the first one.
    let mut host = Host::new(options());
    host.queued(1_000);
    host.sends(21_253);
    assert!(!host.machine.is_queued());
    let late = host.machine.abandon().unwrap().late.unwrap();
    assert_eq!((late.at, late.single), (at(51_253), false));
}

/// Its release finds the grant of the second request. The first one may be applied behind that.
#[test]
fn an_earlier_request_without_a_reply_is_released_once_more_whatever_the_later_one_has_left() {
    for outcome in [refused(20_000, Some(0)), granted(5)] {
        let mut host = Host::new(options());
        host.sends(0);
        host.unknown(2_000);
        let retry = host.next_timeout();
        host.sends(retry);
        host.applied(outcome, retry);
        let late = host.machine.abandon().unwrap().late.unwrap();
        assert_eq!((late.at, late.single), (at(30_000), false));
    }
}

#[test]
fn a_waiter_that_the_store_can_no_longer_notify_leaves_the_queue_when_it_gives_up() {
    let mut host = Host::new(options());
    host.queued(1_000);
    let mut now = host.next_timeout();
    host.sends(now);
    host.applied(refused(20_000, None), now);
    assert!(!host.machine.is_queued());
    assert!(host.machine.unreleased().is_some());
    host.waits(now);
    now = host.next_timeout();
    host.sends(now);
    host.rejected(Failure::Transient, now);
    assert_eq!(host.machine.abandon().unwrap().lease, lease(1));
}

#[test]
fn an_interruption_behind_a_grant_casts_doubt_on_it() {
    let mut host = Host::new(options());
    host.sends(0);
    host.applied(granted(5), 10);
    host.notice(AcquireNotice::Interrupted, 11);
    host.holds(12);
    assert!(host.machine.is_in_doubt());
}

#[test]
fn a_changed_record_is_a_reason_for_one_request_of_a_client_without_a_place() {
    let mut host = Host::new(options());
    host.sends(0);
    // Before the refusal is read: it counts.
    assert!(!host.notice(AcquireNotice::Changed, 5));
    host.refused_without_queue(20_000, 10);
    host.sends(10);
    // Before the request: it does not.
    host.refused_without_queue(20_000, 20);
    host.waits(20);
    assert!(host.notice(AcquireNotice::Changed, 30));
    host.sends(30);
    // A waiter with a place is notified of its grant instead, even if the change came before the refusal.
    host.notice(AcquireNotice::Changed, 35);
    host.applied(refused(20_000, Some(3)), 40);
    host.waits(40);
    assert!(!host.notice(AcquireNotice::Changed, 50));
    host.waits(50);
}

#[test]
fn a_store_that_notifies_nobody_is_polled_at_a_growing_interval() {
    let mut host = Host::new(options());
    let (mut now, mut intervals) = (0, Vec::new());
    for _ in 0..6 {
        host.sends(now);
        host.applied(refused(20_000, None), now);
        host.waits(now);
        intervals.push(host.next_timeout() - now);
        now = host.next_timeout();
    }
    assert_eq!(intervals, [3, 6, 12, 24, 48, 48]);
}

#[test]
fn each_request_to_a_store_without_idempotent_acquires_has_an_id_of_its_own() {
    let mut host = Host::new(AcquisitionOptions {
        idempotent: false,
        ..options()
    });
    assert_eq!(host.sends(0), lease(1));
    // Several contenders have won a part: it is released, in any order.
    host.refused(Outcome::GrantedInPart { time_left: None }, 10);
    host.waits(10);
    let first = AbandonedLease {
        lease: lease(1),
        ttl: ttl(),
        late: None,
        order: ReleaseOrder::Any,
    };
    assert_eq!(host.released, [first]);
    let retry = host.next_timeout();
    assert!(retry > 10, "at a random instant within the window");
    assert_eq!(host.sends(retry), lease(2));
    host.unknown(retry + 10);
    host.waits(retry + 10);
    assert_eq!(
        host.released[1].late,
        Some(LateRelease {
            at: at(retry).after(ttl().as_duration()),
            single: true
        })
    );
    let retry = host.next_timeout();
    assert_eq!(host.sends(retry), lease(3));
    host.rejected(Failure::Transient, retry);
    let retry = host.next_timeout();
    assert_eq!(host.sends(retry), lease(4));
    host.refused_without_queue(20_000, retry);
    let retry = host.next_timeout();
    assert_eq!(host.sends(retry), lease(5));
    assert_eq!(
        host.released.len(),
        2,
        "a rejected or refused request leaves nothing"
    );
    let window = host.machine.backoff().window();
    host.applied(granted(5), retry + 1);
    host.holds(retry + 1);
    assert!(host.machine.backoff().window() < window);
}

#[test]
fn a_waiter_of_such_a_store_retries_at_a_random_instant_after_a_change() {
    let mut host = Host::new(AcquisitionOptions {
        idempotent: false,
        ..options()
    });
    host.sends(0);
    host.refused_without_queue(0, 10);
    let retry = host.next_timeout();
    host.sends(retry);
    host.refused_without_queue(20_000, retry);
    host.waits(retry);
    let window = host.machine.backoff().window_after_change(at(100));
    host.notice(AcquireNotice::Changed, 100);
    let at_first = host.machine.next_timeout().unwrap();
    assert_eq!(at_first, at(100).after(window.mul_f64(SPREAD)));
    host.notice(AcquireNotice::Changed, 101);
    assert_eq!(host.machine.next_timeout(), Some(at_first));
}

/// A caller that has asked for a run 500 ms before.
fn running() -> Host {
    let unless = Unless::Key {
        key: CompletionKey::parse("v1").unwrap(),
        asked: Duration::ZERO,
    };
    let since = at(500);
    Host::new(AcquisitionOptions {
        run: Some(Arc::new(RunRequest { unless, since })),
        ..options()
    })
}

fn completion() -> Annotation {
    Annotation {
        lease: lease(9),
        token: token(4),
        text: "complete".into(),
    }
}

fn is_complete(host: &mut Host, now: u64) {
    match host.poll(now) {
        AcquireAction::Complete(note) => assert_eq!(note, completion()),
        other => panic!("not complete at {now} ms: {other:?}"),
    }
}

#[test]
fn each_request_for_a_run_names_the_time_since_it_was_asked_for() {
    let mut host = running();
    for now in [1_000, 1_500] {
        let action = host.poll(now);
        let AcquireAction::Acquire(Op::Acquire(request)) = action else {
            panic!("{action:?}");
        };
        assert_eq!(request.unless.unwrap().asked(), ms(now - 500));
        host.unknown(now);
    }
    let run = Run {
        requested_at: store_time(400),
        last: Some(completion()),
    };
    host.sends(2_000);
    let first = token(5);
    let granted = Outcome::Granted {
        first,
        number: None,
        floor: None,
        run: Some(run.clone()),
    };
    host.applied(granted, 2_000);
    assert_eq!(host.holds(2_000).run, Some((run, store_time(2_000))));
}

#[test]
fn a_run_that_is_complete_leaves_nothing_but_requests_without_a_reply() {
    let complete = || Outcome::Complete(completion());
    let mut host = running();
    host.sends(1_000);
    host.applied(complete(), 1_010);
    is_complete(&mut host, 1_010);
    assert_eq!(host.machine.abandon(), None);
    // A late request finds the same completion, unless that was removed.
    let mut host = running();
    host.sends(1_000);
    host.unknown(2_000);
    let retry = host.next_timeout();
    assert_eq!(host.sends(retry), lease(1));
    host.applied(complete(), retry);
    is_complete(&mut host, retry);
    let late = host.machine.abandon().unwrap().late.unwrap();
    assert_eq!((late.at, late.single), (at(31_000), true));
}

#[test]
fn a_waiter_is_told_that_its_run_is_complete() {
    let notice = |number| AcquireNotice::Complete(lease(number), completion());
    let mut host = running();
    host.queued(1_000);
    assert!(!host.notice(notice(2), 2_000), "of another lease");
    host.waits(2_000);
    assert!(host.notice(notice(1), 2_000));
    is_complete(&mut host, 2_000);
    assert_eq!(host.machine.abandon(), None, "the store has dropped it");
    // Its repeated request is in flight, and may be granted if the completion was removed.
    let mut host = running();
    host.queued(1_000);
    host.sends(21_253);
    assert!(host.notice(notice(1), 21_260));
    is_complete(&mut host, 21_260);
    assert_eq!(host.machine.abandon().unwrap().lease, lease(1));
    // That grant is newer than the completion.
    let mut host = running();
    host.queued(1_000);
    host.sends(21_253);
    assert!(host.notice(notice(1), 21_260));
    host.applied(granted(5), 21_270);
    assert_eq!(host.holds(21_270).id, lease(1));
    assert!(!host.notice(notice(1), 21_280));
    host.waits(21_280);
    // A failure does not hide it.
    let mut host = running();
    host.queued(1_000);
    host.sends(21_253);
    assert!(host.notice(notice(1), 21_260));
    host.rejected(Failure::Permanent, 21_270);
    is_complete(&mut host, 21_270);
}
