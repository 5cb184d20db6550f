//! The checks of elections.

use super::super::report::Count::{
    FinalLeadersObserved, LeaderChanges, LeadersObserved, OverlapsForgotten,
};
use super::*;
use crate::history::Fault::{KillMaster, OrderFailover};
use crate::history::ObservedLeader;

/// The observer of a process is told a leader.
fn told(at: u64, (lease, term): (&str, u64), process: &str) -> (u64, Event) {
    let leader = ObservedLeader {
        lease: lease.into(),
        term,
        process: process.into(),
        hold: 1,
    };
    let election = "orders".into();
    let leader = Some(leader);
    (at, Event::LeaderObserved { election, leader })
}

const FIRST: (&str, u64) = ("a:1", 11_000);
const SECOND: (&str, u64) = ("b:1", 102_000);

fn told_first(at: u64) -> (u64, Event) {
    told(at, FIRST, "0-1")
}

fn told_second(at: u64) -> (u64, Event) {
    told(at, SECOND, "1-1")
}

fn told_none(at: u64) -> (u64, Event) {
    let election = "orders".into();
    (
        at,
        Event::LeaderObserved {
            election,
            leader: None,
        },
    )
}

/// Two leaders, one after the other, and an observer that is told this.
fn observer(events: Events) -> Builder {
    beside(both(second(102)), events)
}

/// A history with an observer.
fn beside(history: Builder, events: Events) -> Builder {
    let elections = vec!["orders".into()];
    let observing = [(1, Event::Observing { elections })];
    history.process("2-1", observing.into_iter().chain(events).collect())
}

/// After the last fault the second leader leads.
fn with_final_leader(history: Builder) -> Builder {
    let (election, lease) = ("orders".into(), SECOND.0.into());
    history.note(120, Note::FinalLeader { election, lease })
}

/// A candidate that was killed before it recorded its grant, and an observer that was told of it.
fn killed_after_grant(refused: bool, election: &str) -> Builder {
    let mut campaign = vec![requested(10)];
    if refused {
        let reason = "cancelled".into();
        campaign.push(hold(12, HoldEvent::NotGranted { reason }));
    }
    let (_, Event::LeaderObserved { leader, .. }) = told_first(13) else {
        unreachable!("the event of a leader");
    };
    let election = election.into();
    let observed = vec![(13, Event::LeaderObserved { election, leader })];
    beside(one(campaign), observed).fault_of(KillHolder, Some("0-1"), 14, 15)
}

/// Two leaders at the same time, in a world with replicas that acknowledge each grant or not.
fn overlap(replicated: bool) -> Builder {
    let world = WorldInfo {
        wall: Some(0),
        servers: 1,
        replicated,
        watched: false,
    };
    let history = Builder(History::default()).note(0, Note::World(world));
    history.process("0-1", first()).process("1-1", second(50))
}

#[test]
fn violations_of_elections_are_found() {
    finds(
        "after ObservedLeader",
        &observer(vec![told_second(104), told_first(105)]),
    );
    // In between the observer was told that nobody leads.
    let again = vec![told_second(104), told_none(105), told_first(106)];
    finds("after ObservedLeader", &observer(again));
    // The store may forget what it wants.
    let back = observer(vec![told_second(104), told_first(105)]);
    finds("after ObservedLeader", &back.fault(OrderFailover, 100, 110));
    finds("a leader without a grant", &observer(vec![told_first(9)]));
    for phantom in [
        told(13, ("c:1", 12_000), "0-1"),
        told(13, ("c:1", 12_000), "3-1"),
        told(13, ("a:1", 12_000), "0-1"),
        told(13, FIRST, "1-1"),
    ] {
        finds("a leader without a grant", &observer(vec![phantom]));
    }
    finds("without a grant", &killed_after_grant(true, "orders"));
    finds("without a grant", &killed_after_grant(false, "ledger"));
    let same_term = observer(vec![told(13, ("c:1", 11_000), "0-1")]);
    finds("lead \"orders\" in term 11000", &same_term);
    // It is not the holder in any reading of that time.
    finds(
        "but hold 1 of process 1-1",
        &observer(vec![told_first(2200)]),
    );
    let failed = (
        50,
        Event::ObserverFailed {
            election: "orders".into(),
            reason: "no reply".into(),
        },
    );
    finds("failed: no reply", &observer(vec![failed]));
}

#[test]
fn an_observer_that_is_not_told_the_final_leader_is_found() {
    for events in [
        vec![],
        vec![told_first(13)],
        vec![told_second(104), told_none(110)],
        vec![told_first(13), told_second(121)],
    ] {
        finds("told", &with_final_leader(observer(events)));
    }
    let in_time = with_final_leader(observer(vec![told_first(13), told_second(119)]));
    counts(&in_time, FinalLeadersObserved, 1);
    // It was killed, or ended, before.
    let killed = with_final_leader(observer(vec![told_first(13)]));
    let killed = killed.fault_of(KillHolder, Some("2-1"), 100, 101);
    counts(&killed, FinalLeadersObserved, 0);
    let ended = (100, Event::Ended { released: true });
    let ended = with_final_leader(observer(vec![told_first(13), ended]));
    counts(&ended, FinalLeadersObserved, 0);
}

#[test]
fn no_violation_of_elections_is_found_without_one() {
    let all = vec![
        told_none(2),
        told_first(13),
        told_none(80),
        told_second(104),
    ];
    counts(&observer(all.clone()), LeadersObserved, 2);
    counts(&observer(all), LeaderChanges, 1);
    counts(&killed_after_grant(false, "orders"), LeadersObserved, 1);
    // The history of its grant is that of an earlier part.
    let mut earlier = told(9, ("a:0", 9_000), "0-1");
    if let Event::LeaderObserved { leader, .. } = &mut earlier.1 {
        leader.as_mut().unwrap().hold = 0;
    }
    counts(&observer(vec![earlier]), LeadersObserved, 1);
    let late = observer(vec![told_first(2200)]);
    counts(&late.fault(OrderFailover, 90, 110), LeadersObserved, 1);
    let stopped = (2199, Event::Stalled { since: 100 * MILLI });
    let stopped = observer(vec![stopped, told_first(2200)]);
    counts(&stopped, LeadersObserved, 1);
}

#[test]
fn two_leaders_are_excused_by_a_failover_without_replicas_only() {
    let failover = |history: Builder| history.fault(KillMaster, 30, 40);
    counts(&failover(overlap(false)), OverlapsForgotten, 1);
    finds("P1 two holders", &failover(overlap(true)));
    finds("P1 two holders", &overlap(false));
}
