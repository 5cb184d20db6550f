//! Each check finds its violation in a history, and none in a similar one without it. Times are in milliseconds.

use super::check;
use super::report::{CheckReport, Count, Margin};
use crate::clock::MILLI;
use crate::history::{
    Event, Fault, FaultEvent, FencedWrite, History, HoldEvent, LeaseState, Note, Process, Sample,
    World, WriteOutcome,
};

const TTL: u64 = 90;

type Events = Vec<(u64, Event)>;

/// A history under construction. The token of a lease that is granted at 11 ms is 11,000.
struct Builder(History);

impl Builder {
    fn new(servers: usize) -> Self {
        Self(History::default()).world(World {
            wall: Some(0),
            servers,
            watched: false,
        })
    }

    /// A world with a watchdog.
    fn watched() -> Self {
        Self(History::default()).world(World {
            wall: None,
            servers: 1,
            watched: true,
        })
    }

    fn world(self, world: World) -> Self {
        self.note(0, Note::World(world))
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
        self.note(
            until,
            Note::Fault(FaultEvent::new(fault, process, time, time)),
        )
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

    fn check(&self) -> CheckReport {
        check(&self.0)
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
    hold(
        at,
        HoldEvent::Granted {
            lease,
            token,
            ttl_ms,
        },
    )
}

fn observed(at: u64, state: LeaseState) -> (u64, Event) {
    hold(
        at,
        HoldEvent::Observed {
            before: at * MILLI,
            state,
            step: true,
        },
    )
}

fn held(at: u64, until: u64) -> (u64, Event) {
    observed(at, LeaseState::Held(until * MILLI))
}

fn lost(at: u64) -> (u64, Event) {
    observed(at, LeaseState::Lost("Paused".into()))
}

fn releasing(at: u64) -> (u64, Event) {
    hold(at, HoldEvent::Releasing)
}

fn released(at: u64) -> (u64, Event) {
    let outcome = "ok".into();
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
    Builder::new(1).process("0-1", events)
}

/// The first holder, and one more.
fn both(other: Events) -> Builder {
    one(first()).process("1-1", other)
}

/// The same over many masters.
fn both_over_masters(other: Events) -> Builder {
    Builder::new(3)
        .process("0-1", first())
        .process("1-1", other)
}

/// The first holder, which was notified of its loss after the next grant.
fn late_notification(stalled: Events, at: u64) -> Builder {
    let events = [first(), stalled, vec![lost(at)]].concat();
    one(events).process("1-1", second(102))
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
    histories.fault(Fault::WrongCounter, 30, 40)
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
    let history = Builder(History::default()).world(World {
        wall: None,
        servers: 1,
        watched: false,
    });
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
    let counted = HoldEvent::Counted {
        before: 20 * MILLI,
        expected: 2,
        found: Some(("a:1".into(), count)),
        state: LeaseState::Held(70 * MILLI),
    };
    one(first_with([hold(21, counted)]))
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
    one(first_with([next])).fault_of(Fault::PauseHolderLong, Some("0-1"), 20, 120)
}

/// A holder with a watchdog, which was stopped and may have been without nodes.
fn watched_loss(nodes_killed: u64) -> Builder {
    let history = Builder::watched().process("0-1", first_with([lost(121)]));
    let history = history.fault_of(Fault::PauseHolderLong, Some("0-1"), 20, 120);
    history.fault(Fault::KillNodes, nodes_killed, nodes_killed + 5)
}

/// A holder with a watchdog whose lock is granted to another, and when it died.
fn watched_grant(at: u64, died: Option<u64>) -> Builder {
    let history = Builder::watched()
        .process("0-1", first())
        .process("1-1", second(at));
    match died {
        Some(died) => history.fault_of(Fault::KillHolder, Some("0-1"), died, died),
        None => history,
    }
}

fn with_stderr(text: &str) -> Builder {
    let mut history = one(first());
    history.0.processes[0].stderr = text.into();
    history
}

/// Histories, and a part of the text of their first violation: of holds.
fn violations_of_holds() -> Vec<(&'static str, Builder)> {
    let late_token = vec![requested(200), granted(202, "b:1", 10_999), releasing(203)];
    let masters = both_over_masters(late_token).fault(Fault::FlushAll, 100, 101);
    vec![
        // A fault before the first grant excuses nothing, nor does one that keeps all.
        ("P1 two holders", both(second(50))),
        (
            "P1 two holders",
            both(second(50)).fault(Fault::FlushAll, 5, 6),
        ),
        (
            "P1 two holders",
            both(second(50)).fault(Fault::RestartKept, 40, 41),
        ),
        ("P1 two holders", late_reader()),
        ("P1 two holders", lost_counter(None)),
        // Whatever one of many masters forgot.
        (
            "P1 two holders",
            both_over_masters(second(50)).fault(Fault::FlushAll, 40, 41),
        ),
        (
            "P1 two holders",
            both_over_masters(second(50)).fault(Fault::RestartSnapshot, 40, 41),
        ),
        (
            "P1 two holders",
            both_over_masters(second(50)).fault(Fault::ReplaceServer, 40, 41),
        ),
        ("P5", masters.fault(Fault::ClockBack, 100, 101)),
        ("but the record is", one(first()).sample(40, "b:1")),
        ("has no expiry", one(first()).sample_with_ttl(40, "a:1", -1)),
        ("less than a third", both(second(90))),
        ("notified of its loss", late_notification(vec![], 103)),
        ("P3", one(first_with([lost(71), held(72, 110)]))),
        ("was lost before", one(first_with([lost(50)]))),
        ("P3", revived(true, None)),
        ("P3", revived(true, Some(1))),
        ("P3", revived(false, Some(1))),
        (
            "a deadline that had passed",
            one(first_with([held(75, 70)])),
        ),
    ]
}

/// The same of tokens, releases, endings and the watchdog.
fn other_violations() -> Vec<(&'static str, Builder)> {
    let failed = Note::Failed {
        process: "0-1".into(),
        reason: "it did not end".into(),
    };
    let left = Note::LeftBehind {
        key: "k".into(),
        ttl_ms: 5,
    };
    vec![
        ("P4", paused(held(121, 160))),
        ("P5", second_token(11_000)),
        ("P5", second_token(10_000)),
        ("P5", second_token(11_000).fault(Fault::FlushAll, 80, 81)),
        ("the fenced resource had seen", stale_write(true)),
        (
            "and was rejected",
            one(first())
                .write(5, "9-9", 99_000, true)
                .write(13, "0-1", 11_000, false),
        ),
        ("was released at", first_released().sample(40, "a:1")),
        (
            "was released at",
            first_released()
                .fault(Fault::StopServer, 8, 9)
                .sample(40, "a:1"),
        ),
        ("the hold count", hold_count(1)),
        ("P8 the key", Builder::new(1).note(500, left)),
        ("released everything", held_at_end(true, 40)),
        ("did not end", Builder::new(1).note(500, failed)),
        ("panicked", with_stderr("thread 'main' panicked at")),
        ("its process was watched", watched_loss(200)),
        ("though the process of", watched_grant(80, None)),
        ("though the process of", watched_grant(80, Some(90))),
    ]
}

/// Histories without a violation, and how often something in them is counted: of holds.
fn clean_holds() -> Vec<(Builder, Count, u64)> {
    let stalled = (102, Event::Stalled { since: 60 * MILLI });
    let lost_early = || first_with([lost(50)]);
    vec![
        (both(second(102)), Count::Granted, 2),
        (both(second(102)), Count::Steps, 2),
        (
            first_released().process("1-1", second(31)),
            Count::Granted,
            2,
        ),
        (
            both(second(50)).fault(Fault::FlushAll, 40, 41),
            Count::OverlapsForgotten,
            1,
        ),
        (
            late_reader().fault(Fault::RestartEmpty, 40, 41),
            Count::OverlapsForgotten,
            1,
        ),
        (lost_counter(Some(1)), Count::OverlapsForgotten, 1),
        // A holder with a bare majority may lose it.
        (
            Builder::new(3)
                .process("0-1", lost_early())
                .fault(Fault::FlushAll, 40, 41),
            Count::Lost,
            1,
        ),
        (
            one(lost_early()).fault(Fault::FlushAll, 40, 41),
            Count::Lost,
            1,
        ),
        (one(first()).sample(40, "a:1"), Count::SamplesCompared, 1),
        (
            one(first())
                .fault(Fault::DeleteRecord, 30, 31)
                .sample(40, "b:1"),
            Count::SamplesCompared,
            1,
        ),
        // After its deadline it relies on nothing.
        (one(first()).sample(80, "b:1"), Count::SamplesCompared, 0),
        (late_notification(vec![], 101), Count::Lost, 1),
        (late_notification(vec![stalled], 103), Count::Lost, 1),
    ]
}

/// The same of tokens, releases, endings and the watchdog.
fn other_clean() -> Vec<(Builder, Count, u64)> {
    let stepped = hold(71, HoldEvent::Stepped(WriteOutcome::Accepted));
    let regressed = second_token(10_000).fault(Fault::FlushAll, 80, 81);
    vec![
        (paused(lost(121)), Count::PausedHolding, 1),
        (second_token(11_001), Count::Granted, 2),
        (
            regressed.fault(Fault::ClockBack, 5, 6),
            Count::TokensForgotten,
            1,
        ),
        (stale_write(false), Count::WritesRejected, 1),
        (
            first_released().sample(31, "a:1"),
            Count::ReleasesObserved,
            1,
        ),
        (
            first_released()
                .fault(Fault::StopServer, 15, 20)
                .sample(40, "a:1"),
            Count::LateRequests,
            1,
        ),
        (hold_count(2), Count::CountsCompared, 1),
        (held_at_end(false, 40), Count::Granted, 1),
        // It had expired before.
        (held_at_end(true, 80), Count::Granted, 1),
        (one(first_with([stepped])), Count::StepsLate, 1),
        (watched_loss(60), Count::Lost, 1),
        (watched_grant(50, Some(40)), Count::KilledHolding, 1),
    ]
}

#[test]
fn every_violation_is_found() {
    let all = violations_of_holds().into_iter().chain(other_violations());
    for (at, (expected, history)) in all.enumerate() {
        let violations = history.check().violations;
        let first = violations.first().map_or("", String::as_str);
        assert!(first.contains(expected), "{at}: {expected}: {violations:?}");
    }
}

#[test]
fn no_violation_is_found_without_one() {
    let all = clean_holds().into_iter().chain(other_clean());
    for (at, (history, count, expected)) in all.enumerate() {
        let report = history.check();
        assert_eq!(report.violations, Vec::<String>::new(), "{at}");
        assert_eq!(report.count(count), expected, "{at}: {count:?}");
    }
}

#[test]
fn margins_are_measured_where_a_lease_expires() {
    let margin = i64::try_from(32 * MILLI).unwrap();
    let report = both(second(102)).check();
    assert_eq!(report.margins[&Margin::Renewed], [margin]);
    let report = first_released().process("1-1", second(31)).check();
    assert!(report.margins.is_empty());
}
