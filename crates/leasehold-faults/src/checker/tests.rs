//! Each check finds its violation in a history, and none in a similar one without it. Times are in milliseconds.

mod elections;
mod jobs;
mod shares;

use super::check;
use super::report::Count::{
    self, CountsCompared, Granted, KilledHolding, LateRequests, Lost, LostToSlowServers,
    OverlapsForgotten, PausedHolding, ReleasesObserved, SamplesCompared, Steps, StepsLate,
    TokensForgotten, WritesRejected,
};
use super::report::Margin;
use crate::clock::MILLI;
use crate::history::Fault::{
    self, ClockBack, DeleteRecord, FlushAll, HoldRequests, KillHolder, KillNodes, PauseHolderLong,
    ReplaceServer, RestartEmpty, RestartKept, RestartSnapshot, SlowServer, StopServer,
    WrongCounter,
};
use crate::history::{
    Event, FaultEvent, FencedWrite, History, HoldEvent, LeaseState, Note, ObservationKind, Process,
    Sample, WorldInfo,
};

const TTL: u64 = 90;

type Events = Vec<(u64, Event)>;

/// A history under construction. The token of a lease that is granted at 11 ms is 11,000.
struct Builder(History);

impl Builder {
    fn world(wall: Option<u64>, servers: usize, watched: bool) -> Self {
        let world = WorldInfo {
            wall,
            servers,
            replicated: false,
            watched,
        };
        Self(History::default()).note(0, Note::World(world))
    }

    fn process(mut self, name: &str, events: Events) -> Self {
        let started = Event::Started {
            ttl_ms: TTL,
            handoff: false,
        };
        let events = [(0, started)].into_iter().chain(events);
        self.0.processes.push(Process {
            name: name.into(),
            events: events.map(|(at, event)| (at * MILLI, event)).collect(),
            stderr: String::new(),
        });
        self
    }

    fn note(mut self, at: u64, note: Note) -> Self {
        self.0.notes.push((at * MILLI, note));
        self
    }

    fn fault(self, fault: Fault, from: u64, until: u64) -> Self {
        self.fault_of(fault, None, from, until)
    }

    fn fault_of(self, fault: Fault, process: Option<&str>, from: u64, until: u64) -> Self {
        let time = (from * MILLI, until * MILLI);
        let event = FaultEvent::new(fault, process, time, time);
        self.note(until, Note::Fault(event))
    }

    fn sample(self, at: u64, lease: &str) -> Self {
        self.sample_with_ttl(at, lease, 50)
    }

    fn sample_with_ttl(self, at: u64, lease: &str, ttl_ms: i64) -> Self {
        let sample = Sample {
            name: "orders".into(),
            from: at * MILLI,
            holds: vec![(lease.into(), 1)],
            ttl_ms,
        };
        self.note(at, Note::Sampled(sample))
    }

    fn write(self, at: u64, process: &str, token: u64, accepted: bool) -> Self {
        let write = FencedWrite {
            process: process.into(),
            hold: 1,
            name: "orders".into(),
            token,
            accepted,
        };
        self.note(at, Note::Wrote(write))
    }
}

fn hold(at: u64, event: HoldEvent) -> (u64, Event) {
    (at, Event::Hold(1, event))
}

fn requested(at: u64) -> (u64, Event) {
    hold(at, request(false, None))
}

fn request(fixed: bool, reenters: Option<u64>) -> HoldEvent {
    HoldEvent::Requested {
        name: "orders".into(),
        fixed,
        reenters,
    }
}

/// A hold 2 that re-enters another.
fn second_hold(at: u64, reenters: Option<u64>) -> (u64, Event) {
    (at, Event::Hold(2, request(false, reenters)))
}

fn granted(at: u64, lease: &str, token: u64) -> (u64, Event) {
    let lease = lease.into();
    let ttl_ms = TTL;
    let granted = HoldEvent::Granted {
        lease,
        token,
        ttl_ms,
    };
    hold(at, granted)
}

fn observed(at: u64, state: LeaseState, kind: ObservationKind) -> (u64, Event) {
    let before = at * MILLI;
    let observed = HoldEvent::Observed {
        before,
        state,
        kind,
    };
    hold(at, observed)
}

fn held(at: u64, until: u64) -> (u64, Event) {
    let state = LeaseState::Held(until * MILLI);
    observed(at, state, ObservationKind::Step)
}

fn lost(at: u64) -> (u64, Event) {
    let state = LeaseState::Lost("Paused".into());
    observed(at, state, ObservationKind::Check)
}

fn releasing(at: u64) -> (u64, Event) {
    hold(at, HoldEvent::Releasing)
}

fn released(at: u64) -> (u64, Event) {
    released_as(at, "ok")
}

fn released_as(at: u64, outcome: &str) -> (u64, Event) {
    let outcome = outcome.into();
    hold(at, HoldEvent::Released { outcome })
}

/// The first holder: granted at 11, and silent after its only check. Its deadline is 70; its ttl ends at 101.
fn first() -> Events {
    vec![requested(10), granted(12, "a:1", 11_000), held(12, 70)]
}

fn first_with(events: impl Into<Events>) -> Events {
    [first(), events.into()].concat()
}

/// The second holder: granted at some time, for a moment.
fn second(at: u64) -> Events {
    vec![
        requested(20),
        granted(at + 1, "b:1", at * 1000),
        held(at + 1, at + 60),
        releasing(at + 10),
        released(at + 11),
    ]
}

/// One holder that did this.
fn one(events: Events) -> Builder {
    Builder::world(Some(0), 1, false).process("0-1", events)
}

/// The first holder, and one more.
fn both(other: Events) -> Builder {
    one(first()).process("1-1", other)
}

/// Many masters.
fn masters() -> Builder {
    Builder::world(Some(0), 3, false)
}

/// A world with a watchdog.
fn watched(events: Events) -> Builder {
    Builder::world(None, 1, true).process("0-1", events)
}

/// The first holder, which was notified of its loss after the next grant.
fn late_notification(stalled: Events, at: u64) -> Builder {
    let events = [first(), stalled, vec![lost(at)]].concat();
    one(events).process("1-1", second(102))
}

/// The first holder renews its lease long after its grant, and another one is granted it all the same.
fn renewed() -> Builder {
    let renewed = (13..20).map(|at| held(at * 10, at * 10 + 60));
    let events: Vec<_> = renewed.collect();
    one(first_with(events)).process("1-1", second(200))
}

/// The first holder reads its grant when another has the lock.
fn late_reader() -> Builder {
    let events = vec![requested(10), granted(56, "a:1", 11_000), held(56, 70)];
    one(events).process("1-1", second(50))
}

/// The lease of the first holder is lost, perhaps after a re-entry, with the counter.
fn lost_counter(reenters: Option<u64>) -> Builder {
    let events = first_with([second_hold(45, reenters), lost(46)]);
    let histories = one(events).process("1-1", second(50));
    histories.fault(WrongCounter, 30, 40)
}

/// A hold that is lost and held again, with or without another one inside.
fn revived(fixed: bool, reenters: Option<u64>) -> Builder {
    one(vec![
        hold(10, request(fixed, None)),
        granted(12, "a:1", 11_000),
        held(12, 70),
        second_hold(40, reenters),
        lost(50),
        held(52, 70),
    ])
}

/// Tokens without times: the second holder has this one.
fn second_token(token: u64) -> Builder {
    let mut events = second(102);
    events[0] = requested(60);
    events[1] = granted(103, "b:1", token);
    let history = Builder::world(None, 1, false);
    history.process("0-1", first()).process("1-1", events)
}

fn stale_write(accepted: bool) -> Builder {
    let history = both(second(102)).write(13, "0-1", 11_000, true);
    history
        .write(104, "1-1", 102_000, true)
        .write(105, "0-1", 11_000, accepted)
}

fn first_released() -> Builder {
    one(first_with([releasing(30), released(31)]))
}

fn hold_count(count: u32) -> Builder {
    let kind = ObservationKind::Count(2, Some(("a:1".into(), count)));
    let counted = observed(21, LeaseState::Held(70 * MILLI), kind);
    one(first_with([counted]))
}

/// The record of the first lease at the end of its process.
fn held_at_end(released_all: bool, ended: u64) -> Builder {
    let end = Event::Ended {
        released: released_all,
    };
    let events = first_with([releasing(30), released(31), (ended, end)]);
    let (name, lease) = ("orders".into(), "a:1".into());
    one(events).note(41, Note::HeldAtEnd { name, lease })
}

/// The first holder was stopped for longer than its ttl.
fn paused(next: (u64, Event)) -> Builder {
    one(first_with([next])).fault_of(PauseHolderLong, Some("0-1"), 20, 120)
}

/// A holder with a watchdog, which was stopped until then and may have been without nodes.
fn watched_loss(resumed: u64, nodes_killed: u64) -> Builder {
    let history = watched(first_with([lost(121)]));
    let history = history.fault_of(PauseHolderLong, Some("0-1"), 20, resumed);
    history.fault(KillNodes, nodes_killed, nodes_killed + 5)
}

/// A holder with a watchdog whose server did not reply for some time.
fn slow_server(from: u64, until: u64) -> Builder {
    watched(first_with([lost(121)])).fault(SlowServer, from, until)
}

/// A holder with a watchdog whose lock is granted to another, and when it died.
fn watched_grant(at: u64, died: Option<u64>) -> Builder {
    let history = watched(first()).process("1-1", second(at));
    match died {
        Some(died) => history.fault_of(KillHolder, Some("0-1"), died, died),
        None => history,
    }
}

fn with_stderr(text: &str) -> Builder {
    let mut history = one(first());
    history.0.processes[0].stderr = text.into();
    history
}

/// Checks that the first violation in a history contains a text.
#[track_caller]
fn finds(expected: &str, history: &Builder) {
    let violations = check(&history.0).violations;
    let first = violations.first().map_or("", String::as_str);
    assert!(first.contains(expected), "{expected}: {violations:?}");
}

/// Checks that a history has no violation, and how often something in it is counted.
#[track_caller]
fn counts(history: &Builder, count: Count, expected: u64) {
    let report = check(&history.0);
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.count(count), expected, "{count:?}");
}

#[test]
fn violations_of_holds_are_found() {
    let two = || both(second(50));
    finds("P1 two holders", &two());
    // A fault before the first grant excuses nothing, nor does one that keeps all.
    finds("P1 two holders", &two().fault(FlushAll, 5, 6));
    finds("P1 two holders", &two().fault(RestartKept, 40, 41));
    finds("P1 two holders", &renewed().fault(FlushAll, 40, 41));
    finds("P1 two holders", &late_reader());
    finds("P1 two holders", &lost_counter(None));
    // Whatever one of many masters forgot.
    for fault in [FlushAll, RestartSnapshot, ReplaceServer] {
        let history = masters().process("0-1", first());
        let history = history.process("1-1", second(50));
        finds("P1 two holders", &history.fault(fault, 40, 41));
    }
    finds("but the record is", &one(first()).sample(40, "b:1"));
    let endless = one(first()).sample_with_ttl(40, "a:1", -1);
    finds("has no expiry", &endless);
    finds("less than a third", &both(second(90)));
    finds("notified of its loss", &late_notification(vec![], 103));
    finds("P3", &one(first_with([lost(71), held(72, 110)])));
    finds("was lost before", &one(first_with([lost(50)])));
    for (fixed, reenters) in [(true, None), (true, Some(1)), (false, Some(1))] {
        finds("P3", &revived(fixed, reenters));
    }
    let late = one(first_with([held(75, 70)]));
    finds("a deadline that had passed", &late);
}

#[test]
fn other_violations_are_found() {
    finds("P4", &paused(held(121, 160)));
    finds("P5", &second_token(11_000));
    finds("P5", &second_token(10_000));
    finds("P5", &second_token(11_000).fault(FlushAll, 80, 81));
    let late_token = vec![requested(200), granted(202, "b:1", 10_999), releasing(203)];
    let history = masters().process("0-1", first());
    let history = history.process("1-1", late_token);
    let history = history.fault(FlushAll, 100, 101);
    finds("P5", &history.fault(ClockBack, 100, 101));
    finds("the fenced resource had seen", &stale_write(true));
    let history = one(first()).write(5, "9-9", 99_000, true);
    finds("and was rejected", &history.write(13, "0-1", 11_000, false));
    finds("was released at", &first_released().sample(40, "a:1"));
    let disturbed = first_released().fault(StopServer, 8, 9);
    finds("was released at", &disturbed.sample(40, "a:1"));
    finds("the hold count", &hold_count(1));
    finds("the hold count", &hold_count(1).fault(StopServer, 1, 15));
    finds("released everything", &held_at_end(true, 40));
    let violation = Note::Violation("P8 the key".into());
    finds("P8 the key", &one(first()).note(500, violation));
    finds("panicked", &with_stderr("thread 'main' panicked at"));
    finds("its process was watched", &watched_loss(120, 200));
    finds("its process was watched", &watched_loss(50, 200));
    finds("its process was watched", &slow_server(122, 123));
    finds("though the process of", &watched_grant(80, None));
    finds("though the process of", &watched_grant(80, Some(90)));
}

#[test]
fn no_violation_of_holds_is_found_without_one() {
    counts(&both(second(102)), Granted, 2);
    counts(&both(second(102)), Steps, 2);
    let passed_on = first_released().process("1-1", second(31));
    counts(&passed_on, Granted, 2);
    let forgotten = both(second(50)).fault(FlushAll, 40, 41);
    counts(&forgotten, OverlapsForgotten, 1);
    let forgotten = late_reader().fault(RestartEmpty, 40, 41);
    counts(&forgotten, OverlapsForgotten, 1);
    counts(&lost_counter(Some(1)), OverlapsForgotten, 1);
    // A holder with a bare majority may lose it.
    for history in [masters(), Builder::world(Some(0), 1, false)] {
        let history = history.process("0-1", first_with([lost(50)]));
        counts(&history.fault(FlushAll, 40, 41), Lost, 1);
    }
    counts(&one(first()).sample(40, "a:1"), SamplesCompared, 1);
    let deleted = one(first()).fault(DeleteRecord, 30, 31);
    counts(&deleted.sample(40, "b:1"), SamplesCompared, 1);
    // After its deadline it relies on nothing.
    counts(&one(first()).sample(80, "b:1"), SamplesCompared, 0);
    counts(&late_notification(vec![], 101), Lost, 1);
    let stalled = (102, Event::Stalled { since: 60 * MILLI });
    counts(&late_notification(vec![stalled], 103), Lost, 1);
}

#[test]
fn no_other_violation_is_found_without_one() {
    counts(&paused(lost(121)), PausedHolding, 1);
    counts(&second_token(11_001), Granted, 2);
    let forgotten = second_token(10_000).fault(FlushAll, 80, 81);
    counts(&forgotten.fault(ClockBack, 5, 6), TokensForgotten, 1);
    counts(&stale_write(false), WritesRejected, 1);
    counts(&first_released().sample(31, "a:1"), ReleasesObserved, 1);
    let disturbed = first_released().fault(StopServer, 15, 20);
    counts(&disturbed.sample(40, "a:1"), LateRequests, 1);
    // Nobody has seen a confirmation.
    for outcome in ["ran", "dropped", "Unreachable"] {
        let unconfirmed = one(first_with([releasing(30), released_as(31, outcome)]));
        counts(&unconfirmed.sample(40, "a:1"), ReleasesObserved, 0);
    }
    counts(&hold_count(2), CountsCompared, 1);
    let late_renewal = hold_count(1).fault(HoldRequests, 1, 15);
    counts(&late_renewal, CountsCompared, 1);
    counts(&held_at_end(false, 40), Granted, 1);
    // It had expired before.
    counts(&held_at_end(true, 80), Granted, 1);
    let stepped = hold(71, HoldEvent::Stepped("accepted".into()));
    counts(&one(first_with([stepped])), StepsLate, 1);
    counts(&watched_loss(120, 60), Lost, 1);
    counts(&watched_loss(65, 200), Lost, 1);
    counts(&slow_server(60, 110), LostToSlowServers, 1);
    counts(&watched_grant(50, Some(40)), KilledHolding, 1);
}

#[test]
fn margins_are_measured_where_a_lease_expires() {
    let margin = i64::try_from(32 * MILLI).unwrap();
    let report = check(&both(second(102)).0);
    assert_eq!(report.margins[&Margin::Renewed], [margin]);
    let released = first_released().process("1-1", second(31));
    let report = check(&released.0);
    assert!(report.margins.is_empty());
}
