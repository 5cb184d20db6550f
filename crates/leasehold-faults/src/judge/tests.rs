//! Each rule is broken once, and the judge has to say so. Times are in milliseconds.

use super::judge;
use crate::clock::MILLI;
use crate::history::{Event, Fault, Happened, History, Note, Process, Seen, Write};

const TTL: u64 = 90;

/// A history in the making. The token of a lease that was granted at 11 ms is 11,000.
struct Story(History);

impl Story {
    fn new() -> Self {
        let world = Note::World {
            names: vec!["orders".into()],
            wall: Some(0),
            servers: 1,
        };
        Self(History::default()).noted(0, world)
    }

    /// The same with many masters.
    fn masters() -> Self {
        let world = Note::World {
            names: vec!["orders".into()],
            wall: Some(0),
            servers: 3,
        };
        Self(History::default()).noted(0, world)
    }

    fn process(mut self, name: &str, events: Vec<(u64, Event)>) -> Self {
        let started = Event::Started {
            pid: 1,
            ttl_ms: TTL,
            handoff: false,
        };
        let events = [(0, started)].into_iter().chain(events);
        self.0.processes.push(Process {
            name: name.into(),
            events: events.map(|(at, event)| (at * MILLI, event)).collect(),
            complaint: String::new(),
        });
        self
    }

    fn noted(mut self, at: u64, note: Note) -> Self {
        self.0.notes.push((at * MILLI, note));
        self
    }

    fn fault(self, fault: Fault, process: Option<&str>, from: u64, to: u64) -> Self {
        let span = (from * MILLI, to * MILLI);
        let happened = Happened {
            fault,
            process: process.map(str::to_owned),
            master: None,
            holder: None,
            name: None,
            outer: span,
            inner: span,
        };
        self.noted(to, Note::Fault(happened))
    }

    fn sampled(self, at: u64, lease: &str) -> Self {
        let sampled = Note::Sampled {
            name: "orders".into(),
            from: at * MILLI,
            holds: vec![(lease.into(), 1)],
            left_ms: 50,
        };
        self.noted(at, sampled)
    }

    fn wrote(self, at: u64, process: &str, token: u64, accepted: bool) -> Self {
        let wrote = Note::Wrote {
            process: process.into(),
            hold: 1,
            name: "orders".into(),
            token,
            accepted,
        };
        self.noted(at, wrote)
    }

    #[track_caller]
    fn innocent(self) -> super::Figures {
        let verdict = judge(&self.0);
        assert_eq!(verdict.violations, Vec::<String>::new());
        verdict.figures
    }

    /// There are violations, and all of them say this.
    #[track_caller]
    fn told(self, what: &str) {
        let violations = judge(&self.0).violations;
        assert!(!violations.is_empty(), "nothing was said");
        for violation in violations {
            assert!(violation.contains(what), "{violation}");
        }
    }
}

fn asked(at: u64) -> (u64, Event) {
    let asked = Event::Asked {
        hold: 1,
        name: "orders".into(),
        fixed: false,
        inside: None,
    };
    (at, asked)
}

fn granted(at: u64, lease: &str, token: u64) -> (u64, Event) {
    let granted = Event::Granted {
        hold: 1,
        lease: lease.into(),
        token,
        deadline: 0,
        ttl_ms: TTL,
    };
    (at, granted)
}

fn checked(at: u64, state: Seen) -> (u64, Event) {
    let checked = Event::Checked {
        hold: 1,
        before: at * MILLI,
        state,
        step: true,
    };
    (at, checked)
}

fn held(at: u64, until: u64) -> (u64, Event) {
    checked(at, Seen::Held(until * MILLI))
}

fn lost(at: u64) -> (u64, Event) {
    checked(at, Seen::Lost("Paused".into()))
}

fn leaving(at: u64) -> (u64, Event) {
    (at, Event::Leaving { hold: 1 })
}

fn left(at: u64) -> (u64, Event) {
    let how = "ok".into();
    (at, Event::Left { hold: 1, how })
}

/// The first holder: granted at 11, and gone without a word. It was promised until 70; its ttl ends
/// at 101.
fn first() -> Vec<(u64, Event)> {
    vec![asked(10), granted(12, "a:1", 11_000), held(12, 70)]
}

/// The second holder: granted at some time, for a moment.
fn second(at: u64) -> Vec<(u64, Event)> {
    vec![
        asked(20),
        granted(at + 1, "b:1", at * 1000),
        held(at + 1, at + 60),
        leaving(at + 10),
        left(at + 11),
    ]
}

#[test]
fn a_lease_that_ends_by_itself_is_passed_on() {
    let story = Story::new().process("0-1", first());
    let figures = story.process("1-1", second(102)).innocent();
    assert_eq!((figures.granted, figures.steps), (2, 2));
    let margin = i64::try_from(32 * MILLI).unwrap();
    assert_eq!(figures.margins_renewed, [margin]);
}

#[test]
fn a_lease_that_is_released_is_passed_on_at_once() {
    let mut events = first();
    events.extend([leaving(30), left(31)]);
    let story = Story::new().process("0-1", events);
    let figures = story.process("1-1", second(31)).innocent();
    assert!(figures.margins_renewed.is_empty());
}

#[test]
fn two_who_believe_are_seen_unless_the_store_forgot_in_between() {
    let both = || {
        Story::new()
            .process("0-1", first())
            .process("1-1", second(50))
    };
    let violations = judge(&both().0).violations;
    assert!(
        violations[0].starts_with("P1 two believe"),
        "{violations:?}"
    );
    let forgotten = both().fault(Fault::FlushAll, None, 40, 41).innocent();
    assert_eq!(forgotten.overlaps_forgotten, 1);
    // What was forgotten before the first grant excuses nothing, nor does a fault that keeps all.
    for (fault, at) in [(Fault::FlushAll, 5), (Fault::RestartKept, 40)] {
        let violations = judge(&both().fault(fault, None, at, at + 1).0).violations;
        assert!(!violations.is_empty());
    }
}

#[test]
fn what_one_of_many_masters_forgot_excuses_nobody() {
    let both = || {
        Story::masters()
            .process("0-1", first())
            .process("1-1", second(50))
    };
    for fault in [
        Fault::FlushAll,
        Fault::RestartSnapshot,
        Fault::ExchangeServer,
    ] {
        let violations = judge(&both().fault(fault, None, 40, 41).0).violations;
        assert!(
            violations[0].starts_with("P1 two believe"),
            "{violations:?}"
        );
    }
    let lost = Story::masters().process("0-1", [first(), vec![lost(50)]].concat());
    // A holder that has a bare majority may lose it.
    lost.fault(Fault::FlushAll, None, 40, 41).innocent();
    let late = [asked(200), granted(202, "b:1", 10_999), leaving(203)];
    let tokens = Story::masters().process("0-1", first());
    tokens
        .process("1-1", late.into())
        .fault(Fault::FlushAll, None, 100, 101)
        .fault(Fault::ClockBack, None, 100, 101)
        .told("P5");
}

#[test]
fn a_record_of_another_opinion_is_seen() {
    let story = || Story::new().process("0-1", first());
    assert_eq!(story().sampled(40, "a:1").innocent().samples_compared, 1);
    story().sampled(40, "b:1").told("but the record is");
    let forgotten = story().fault(Fault::DeleteRecord, None, 30, 31);
    forgotten.sampled(40, "b:1").innocent();
    // After its time it believes nothing.
    story().sampled(80, "b:1").innocent();
}

#[test]
fn a_record_without_an_end_is_seen() {
    let endless = Note::Sampled {
        name: "orders".into(),
        from: 40 * MILLI,
        holds: vec![("a:1".into(), 1)],
        left_ms: -1,
    };
    let story = Story::new().process("0-1", first());
    story.noted(40, endless).told("has no end");
}

#[test]
fn a_grant_within_the_margin_is_seen() {
    let story = |at| {
        Story::new()
            .process("0-1", first())
            .process("1-1", second(at))
    };
    story(90).told("less than a third");
}

#[test]
fn a_loss_that_told_too_late_is_seen_unless_the_process_stood_still() {
    let story = |extra: Vec<(u64, Event)>| {
        let mut events = first();
        events.extend(extra);
        Story::new()
            .process("0-1", events)
            .process("1-1", second(102))
    };
    story(vec![lost(101)]).innocent();
    story(vec![lost(103)]).told("told of its loss");
    let stalled = Event::Stalled { since: 60 * MILLI };
    story(vec![(102, stalled), lost(103)]).innocent();
}

#[test]
fn a_lease_that_rises_again_is_seen() {
    let events = [first(), vec![lost(71), held(72, 110)]].concat();
    Story::new().process("0-1", events).told("P3");
}

#[test]
fn a_loss_before_its_time_is_seen_unless_the_store_forgot() {
    let story = || Story::new().process("0-1", [first(), vec![lost(50)]].concat());
    story().told("lost before");
    story().fault(Fault::FlushAll, None, 40, 41).innocent();
}

#[test]
fn a_grant_that_is_read_after_the_store_forgot_it_is_no_smaller_token() {
    // The first holder was stopped while it waited: it reads its grant when another has the lock.
    let mut late = first();
    late[1] = granted(56, "a:1", 11_000);
    late[2] = held(56, 70);
    let story = || {
        Story::new()
            .process("0-1", late.clone())
            .process("1-1", second(50))
    };
    let figures = story().fault(Fault::RestartEmpty, None, 40, 41).innocent();
    assert_eq!(figures.overlaps_forgotten, 1);
    assert!(!judge(&story().0).violations.is_empty());
}

/// Its lease is given up because another token was answered, and passed on.
#[test]
fn a_lost_counter_excuses_only_a_lease_that_was_entered_again() {
    let story = |inside| {
        let inner = Event::Asked {
            hold: 2,
            name: "orders".into(),
            fixed: false,
            inside,
        };
        let events = [first(), vec![(45, inner), lost(46)]].concat();
        let story = Story::new().process("0-1", events);
        let story = story.process("1-1", second(50));
        story.fault(Fault::WrongCounter, None, 30, 40)
    };
    assert_eq!(story(Some(1)).innocent().overlaps_forgotten, 1);
    assert!(!judge(&story(None).0).violations.is_empty());
}

/// With or without a renewed one inside, lost is lost.
#[test]
fn a_fixed_hold_that_rises_again_is_seen() {
    let story = |fixed, inside| {
        let mut events = [first(), vec![lost(50), held(52, 70)]].concat();
        if let Event::Asked { fixed: outer, .. } = &mut events[0].1 {
            *outer = fixed;
        }
        let inner = Event::Asked {
            hold: 2,
            name: "orders".into(),
            fixed: false,
            inside,
        };
        events.insert(3, (40, inner));
        Story::new().process("0-1", events)
    };
    for (fixed, inside) in [(true, None), (true, Some(1)), (false, Some(1))] {
        assert!(!judge(&story(fixed, inside).0).violations.is_empty());
    }
}

#[test]
fn a_promise_of_the_past_is_seen() {
    let events = [first(), vec![held(75, 70)]].concat();
    Story::new()
        .process("0-1", events)
        .told("a time that had passed");
}

#[test]
fn a_process_that_sees_nothing_of_its_pause_is_seen() {
    let story = |extra| {
        let events = [first(), vec![extra]].concat();
        let story = Story::new().process("0-1", events);
        story.fault(Fault::PauseHolderLong, Some("0-1"), 20, 120)
    };
    assert_eq!(story(lost(121)).innocent().paused_holding, 1);
    story(held(121, 160)).told("P4");
}

#[test]
fn a_token_that_does_not_grow_is_seen_unless_counter_and_clock_were_lost() {
    let story = |token| {
        let mut events = second(102);
        events[0] = asked(60);
        events[1] = granted(103, "b:1", token);
        let mut story = Story::new().process("0-1", first()).process("1-1", events);
        story.0.notes[0] = (
            0,
            Note::World {
                names: vec![],
                wall: None,
                servers: 1,
            },
        );
        story
    };
    story(11_001).innocent();
    for token in [11_000, 10_000] {
        story(token).told("P5");
        let flushed = || story(token).fault(Fault::FlushAll, None, 80, 81);
        flushed().told("P5");
        let both = flushed().fault(Fault::ClockBack, None, 5, 6).innocent();
        assert!(both.tokens_forgotten > 0);
    }
}

#[test]
fn a_resource_that_takes_a_stale_write_is_seen() {
    let story = |accepted| {
        let story = Story::new()
            .process("0-1", first())
            .process("1-1", second(102));
        let story = story.wrote(13, "0-1", 11_000, true);
        story
            .wrote(104, "1-1", 102_000, true)
            .wrote(105, "0-1", 11_000, accepted)
    };
    assert_eq!(story(false).innocent().writes_refused, 1);
    story(true).told("the fenced resource had seen");
}

#[test]
fn a_holder_who_is_refused_in_its_time_is_seen() {
    let story = Story::new().process("0-1", first());
    let story = story.wrote(5, "9-9", 99_000, true);
    story.wrote(13, "0-1", 11_000, false).told("and refused");
}

#[test]
fn a_lease_that_comes_back_after_its_release_is_seen_unless_a_question_ran_late() {
    let story = || {
        let events = [first(), vec![leaving(30), left(31)]].concat();
        Story::new().process("0-1", events)
    };
    assert_eq!(story().sampled(31, "a:1").innocent().releases_watched, 1);
    story().sampled(40, "a:1").told("was released at");
    let late = story().fault(Fault::StopServer, None, 8, 9);
    late.sampled(40, "a:1").told("was released at");
    let late = story().fault(Fault::StopServer, None, 15, 20);
    assert_eq!(late.sampled(40, "a:1").innocent().echoes, 1);
}

#[test]
fn a_wrong_hold_count_is_seen() {
    let story = |count| {
        let counted = Event::Counted {
            hold: 1,
            before: 20 * MILLI,
            expected: 2,
            seen: Some(("a:1".into(), count)),
            state: Seen::Held(70 * MILLI),
        };
        Story::new().process("0-1", [first(), vec![(21, counted)]].concat())
    };
    assert_eq!(story(2).innocent().counts_compared, 1);
    story(1).told("hold count");
}

#[test]
fn what_is_left_behind_is_seen() {
    let key = || Note::LeftBehind {
        key: "k".into(),
        left_ms: 5,
    };
    Story::new().noted(500, key()).told("is left");
    let story = |released, at| {
        let ended = Event::Ended { released };
        let events = [first(), vec![leaving(30), left(31), (at, ended)]].concat();
        let holds = Note::AtTheEnd {
            name: "orders".into(),
            lease: "a:1".into(),
        };
        Story::new().process("0-1", events).noted(41, holds)
    };
    story(true, 40).told("released everything");
    story(false, 40).innocent();
    // It was over by itself before.
    story(true, 80).innocent();
}

#[test]
fn a_process_that_fails_is_seen() {
    let failed = Note::Failed {
        process: "0-1".into(),
        why: "it did not end".into(),
    };
    Story::new().noted(500, failed).told("did not end");
    let mut story = Story::new().process("0-1", first());
    story.0.processes[0].complaint = "thread 'main' panicked at".into();
    story.told("panicked");
}

#[test]
fn a_step_that_ends_late_is_counted() {
    let write = Write::Accepted;
    let stepped = Event::Stepped { hold: 1, write };
    let events = [first(), vec![(71, stepped)]].concat();
    let figures = Story::new().process("0-1", events).innocent();
    assert_eq!((figures.steps, figures.steps_late), (1, 1));
}
