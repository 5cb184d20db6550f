//! Leader election, and the events of a lock.

use std::time::Duration;

use leasehold::{
    Cause, Client, Election, ErrorKind, Leader, Leaders, LeaseOptions, LockEvent, LockEvents,
    Owner, Token,
};
use tokio::time::timeout;

use crate::fixture::{Fixture, fresh_name, with_options};
use crate::waiters::{SOON, soon, spawn_polled};

/// What is told within a time in which a change is noticed even by polling.
async fn next(leaders: &mut Leaders) -> Option<Leader> {
    timeout(SOON, leaders.next()).await.unwrap().unwrap()
}

/// Waits until an observer is told of a leader with this value. Its term is larger than that of every other leader that
/// it was told since `last`.
async fn observed(leaders: &mut Leaders, value: &str, last: &mut Option<Token>) -> Leader {
    loop {
        let Some(leader) = next(leaders).await else {
            continue;
        };
        assert!(last.is_none_or(|last| leader.term >= last), "{leader:?}");
        *last = Some(leader.term);
        if &*leader.value == value {
            return leader;
        }
    }
}

/// The next change of a lock. A store on a busy machine may be silent for a while.
async fn next_event(events: &mut LockEvents) -> LockEvent {
    let next = async {
        loop {
            let event = events.next().await.unwrap();
            if !matches!(event, LockEvent::Unobserved(_) | LockEvent::Observed) {
                return event;
            }
        }
    };
    timeout(SOON, next).await.unwrap()
}

async fn election(fixture: &Fixture, name: &str) -> (Client, Election) {
    let client = fixture.client().await;
    let election = client.election(name).unwrap();
    (client, election)
}

pub(super) async fn a_successor_leads_when_the_leader_resigns(fixture: Fixture) {
    let name = fresh_name("election");
    let (first_client, first) = election(&fixture, &name).await;
    let (second_client, second) = election(&fixture, &name).await;
    let (_observing_client, observing) = election(&fixture, &name).await;
    let mut leaders = observing.observe();
    assert_eq!(next(&mut leaders).await, None);
    assert_eq!(first.leader().await.unwrap(), None);

    let leadership = first.campaign("a:1").await.unwrap();
    leadership.proclaimed().await.unwrap();
    let mut last = None;
    let leader = observed(&mut leaders, "a:1", &mut last).await;
    assert_eq!(
        (leader.term, leader.lease.client),
        (leadership.term(), first_client.id())
    );
    assert_eq!(second.leader().await.unwrap(), Some(leader));
    assert!(second.try_campaign("b:1").await.unwrap().is_none());
    let limited = second.campaign_timeout("b:1", Duration::from_secs(4));
    assert!(limited.await.unwrap().is_none());

    let candidate = second.clone();
    let campaign = spawn_polled(async move { candidate.campaign("b:2").await.unwrap() });
    let term = leadership.term();
    leadership.release().await.unwrap();
    let successor = soon(campaign).await;
    assert!(successor.term() > term);
    let leader = observed(&mut leaders, "b:2", &mut last).await;
    assert_eq!(
        (leader.term, leader.lease.client),
        (successor.term(), second_client.id())
    );
    drop(successor);
    assert_eq!(next(&mut leaders).await, None);
}

pub(super) async fn a_value_is_replaced_and_its_length_is_checked(fixture: Fixture) {
    let name = fresh_name("value");
    let (_client, election) = election(&fixture, &name).await;
    let mut leaders = election.observe();
    let longest = "\u{1f512}".repeat(1_024);
    let too_long = format!("{longest}.");
    let errors = [
        election.campaign(&too_long).await.unwrap_err(),
        election.try_campaign(&too_long).await.unwrap_err(),
        election
            .campaign_timeout(&too_long, SOON)
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert_eq!(error.lock(), Some(&*name));
        assert!(
            error.to_string().ends_with("at most 4096 bytes, not 4097"),
            "{error}"
        );
    }
    let leadership = election.campaign(&longest).await.unwrap();
    leadership.proclaimed().await.unwrap();
    let mut last = None;
    let first = observed(&mut leaders, &longest, &mut last).await;
    for value in [
        "",
        "one line\nanother",
        " a  b ",
        "{\"host\": \"a\\b\"}\r\n\t\0end",
        "昼 夜 ü",
    ] {
        leadership.proclaim(value).await.unwrap();
        let leader = observed(&mut leaders, value, &mut last).await;
        assert_eq!((leader.term, leader.lease), (first.term, first.lease));
    }
    let error = leadership.proclaim(&too_long).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
}

pub(super) async fn a_lock_that_passes_on_has_no_leader_until_a_value_is_proclaimed(
    fixture: Fixture,
) {
    let name = fresh_name("phantom");
    let (client, election) = election(&fixture, &name).await;
    let leadership = election.campaign("first").await.unwrap();
    leadership.proclaimed().await.unwrap();
    leadership.release().await.unwrap();
    assert_eq!(election.leader().await.unwrap(), None);
    // It holds the lock of the election, and has no value.
    let guard = client.mutex(&name).unwrap().lock().await.unwrap();
    assert_eq!(election.leader().await.unwrap(), None);
    guard.release().await.unwrap();
}

pub(super) async fn a_leader_that_is_cut_off_cannot_proclaim(fixture: Fixture) {
    let name = fresh_name("cut-off");
    let (_client, election) = election(&fixture, &name).await;
    let mut leaders = election.observe();
    let leadership = election.campaign("first").await.unwrap();
    observed(&mut leaders, "first", &mut None).await;
    let cut_off = election.mutex().revoke().await.unwrap();
    assert_eq!(cut_off.unwrap().lease, leadership.lease_id());
    assert_eq!(next(&mut leaders).await, None);
    let error = leadership.proclaim("second").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    let cause = timeout(SOON, leadership.lost()).await.unwrap();
    assert!(
        [Cause::Revoked, Cause::Deleted].contains(&cause),
        "{cause:?}"
    );
    assert_eq!(election.leader().await.unwrap(), None);
}

/// Neither a hand-off nor an owner lets two leaderships share a lease, under which a late write could be mixed up.
pub(super) async fn each_leadership_has_a_lease_of_its_own(fixture: Fixture) {
    let name = fresh_name("lease");
    let (_client, election) = election(&fixture, &name).await;
    let owner = Owner::new();
    let first = owner.scope(election.campaign("first")).await.unwrap();
    let refused = owner.scope(election.try_campaign("second")).await.unwrap();
    assert!(refused.is_none());
    let candidate = election.clone();
    let campaign = spawn_polled(async move { candidate.campaign("second").await.unwrap() });
    let (term, lease) = (first.term(), first.lease_id());
    first.release().await.unwrap();
    let second = soon(campaign).await;
    assert!(second.term() > term);
    assert_ne!(second.lease_id(), lease);
    second.proclaimed().await.unwrap();
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!((&*leader.value, leader.term), ("second", second.term()));
}

pub(super) async fn the_events_of_a_lock_come_in_their_order(fixture: Fixture) {
    let name = fresh_name("events");
    let (_client, election) = election(&fixture, &name).await;
    let mut events = election.mutex().events();
    let mut event = async || next_event(&mut events).await;
    assert_eq!(event().await, LockEvent::Free);
    let leadership = election.campaign("leader").await.unwrap();
    let lease = leadership.lease_id();
    assert_eq!(event().await, LockEvent::Granted(lease));
    match event().await {
        LockEvent::LeaderChanged(Some(leader)) => assert_eq!(&*leader.value, "leader"),
        other => panic!("{other:?}"),
    }
    leadership.release().await.unwrap();
    assert_eq!(event().await, LockEvent::Released(lease));
    assert_eq!(event().await, LockEvent::LeaderChanged(None));
    // So long that a busy observer reads it before its end.
    let fixed = with_options(
        election.mutex(),
        LeaseOptions::new().fixed(Duration::from_secs(4)),
    );
    let guard = fixed.lock().await.unwrap();
    let lease = guard.lease_id();
    assert_eq!(event().await, LockEvent::Granted(lease));
    assert_eq!(event().await, LockEvent::Expired(lease));
    drop(guard);
    let guard = election.mutex().lock().await.unwrap();
    let lease = guard.lease_id();
    assert_eq!(event().await, LockEvent::Granted(lease));
    drop(election.mutex().revoke().await.unwrap());
    assert_eq!(event().await, LockEvent::Revoked(lease));
}

/// The first one lasts for longer than the test waits for the end of the second.
pub(super) async fn each_of_several_leases_expires_at_its_own_end(fixture: Fixture) {
    let name = fresh_name("ends");
    let client = fixture.client().await;
    let mut events = client.mutex(&name).unwrap().events();
    let mut event = async || next_event(&mut events).await;
    assert_eq!(event().await, LockEvent::Free);
    let semaphore = client.semaphore(&name, 2).unwrap();
    let mut permits = Vec::new();
    // So long that a busy observer reads it before its end.
    for seconds in [600, 4] {
        let fixed = LeaseOptions::new().fixed(Duration::from_secs(seconds));
        let permit = semaphore.with(fixed).unwrap().acquire().await.unwrap();
        assert_eq!(event().await, LockEvent::Granted(permit.lease_id()));
        permits.push(permit);
    }
    let expired = LockEvent::Expired(permits[1].lease_id());
    assert_eq!(event().await, expired);
}
