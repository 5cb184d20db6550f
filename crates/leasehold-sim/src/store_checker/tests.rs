//! The rule keeps every promise, and the checker notices every mutation of it.

mod queue;

use std::cell::Cell;

use leasehold_core::record::{
    Body, Change, Changes, Class, End, Head, LeaseKind, Leases, Part, QueueHead, Row,
};
use leasehold_core::{Applied, Environment, Holder, Loss, Rows, Token};

use super::*;
use crate::history::{Histories, Shape, timed};

/// How many histories a mutation may survive. Most are noticed in the first three.
const HISTORIES_MAX: u64 = 200;

const START: u64 = 1_700_000_000_000_000;

const TICK: Duration = Duration::from_micros(1);

/// Before the end of every lease and queue.
const NEVER_ENDED: Environment = Environment {
    now: StoreTime::from_micros(0),
};

type Rule = fn(&mut Rows, &Call<'_>) -> Applied;

/// A request to a store.
struct Call<'a> {
    op: &'a Op,
    environment: Environment,
    reaches: &'a dyn Fn(ClientId) -> bool,
}

impl Call<'_> {
    fn apply(&self, record: &mut Rows) -> Applied {
        self.apply_op(record, self.op)
    }

    fn apply_changed(&self, record: &mut Rows, change: impl FnOnce(&mut Op)) -> Applied {
        let mut op = self.op.clone();
        change(&mut op);
        self.apply_op(record, &op)
    }

    fn apply_op(&self, record: &mut Rows, op: &Op) -> Applied {
        record.apply(op, &self.environment, self.reaches)
    }

    /// The holder, unless its lease has ended.
    fn holder(&self, record: &Rows) -> Option<Holder> {
        record.holders(&self.environment).next().copied()
    }
}

/// How often grants, completions and next waiters were notified, dead waiters passed over, waiters refused behind others,
/// notes stored, runs found to be complete and not complete, and arrivals counted.
type Counts = [u64; 9];

/// Plays the histories of a seed to a rule, with a checker for each name.
fn play(seed: u64, shape: Shape, rule: Rule) -> Result<Counts, Violation> {
    let histories = Histories::random(seed, shape, 4);
    let passed_over = Cell::new(0);
    let reaches = |client| histories.reaches(client);
    let counted = |client| {
        let reached = reaches(client);
        passed_over.set(passed_over.get() + u64::from(!reached));
        reached
    };
    let mut names: Vec<_> = (0..histories.names)
        .map(|_| (Rows::default(), StoreChecker::new(Duration::ZERO)))
        .collect();
    let [mut granted, mut told, mut next, mut behind] = [0; 4];
    let [mut stored, mut complete, mut running, mut arrived] = [0; 4];
    let mut now = START;
    for round in &histories.rounds {
        now = now.saturating_add_signed(round.step_ms * 1_000);
        let now = StoreTime::from_micros(now);
        for (name, op) in round.batches.iter().flatten() {
            let (record, checker) = &mut names[*name];
            let op = &timed(op, now);
            let call = Call {
                op,
                environment: Environment { now },
                reaches: &counted,
            };
            let Applied {
                outcome,
                mut notices,
                ..
            } = rule(record, &call);
            notices.retain(|notice| reaches(notice.lease().client));
            let grants = notices.iter().filter(|notice| is_grant(notice)).count();
            let is_told = |notice: &&Notice| matches!(notice, Notice::Complete { .. });
            let completions = notices.iter().filter(is_told).count();
            granted += grants as u64;
            told += completions as u64;
            next += (notices.len() - grants - completions) as u64;
            match &outcome {
                Outcome::Refused { queue_position, .. } => {
                    behind += u64::from(*queue_position > Some(0));
                }
                Outcome::Stored => stored += 1,
                Outcome::Complete(_) => complete += 1,
                Outcome::Granted { run: Some(run), .. } => running += u64::from(run.last.is_some()),
                Outcome::Arrived(_) => arrived += 1,
                _ => {}
            }
            let observation = Observation {
                op,
                reply: &outcome,
                notices: &notices,
                now,
            };
            checker.observe(observation, reaches)?;
            let holder = call.holder(record);
            let holder = holder.map(|it| (it.lease, it.count.get(), it.is_reserved));
            checker.inspect(holder, now)?;
        }
    }
    Ok([
        granted,
        told,
        next,
        passed_over.get(),
        behind,
        stored,
        complete,
        running,
        arrived,
    ])
}

const fn is_grant(notice: &Notice) -> bool {
    matches!(notice, Notice::Granted(_))
}

fn set_head(record: &mut Rows, change: impl FnOnce(&mut Head)) {
    let mut head = *record.head();
    change(&mut head);
    record.store(Changes {
        head: Some(head),
        rows: Vec::new(),
    });
}

/// The holder that a record names. Its lease may have ended.
fn holder(record: &Rows) -> Option<Holder> {
    record.holders(&NEVER_ENDED).next().copied()
}

fn set_holder(record: &mut Rows, holder: Option<Holder>) {
    set_head(record, |head| {
        if let Body::Leases(_) | Body::Free = head.body {
            head.body = Body::Leases(Leases {
                kind: LeaseKind::Mutex,
                limit: 1,
                used: u64::from(holder.is_some()),
                earliest: holder.map(|holder| holder.end),
                sole: holder,
            });
        }
    });
}

fn change_holder(record: &mut Rows, change: impl FnOnce(&mut Holder)) {
    if let Some(mut holder) = holder(record) {
        change(&mut holder);
        set_holder(record, Some(holder));
    }
}

fn keep_until(record: &mut Rows, end: StoreTime) {
    change_holder(record, |holder| holder.end = holder.end.max(End::At(end)));
}

/// The promises that a mutation violates.
fn violated(rule: Rule) -> Vec<Promise> {
    let mut violated: Vec<_> = (0..HISTORIES_MAX)
        .filter_map(|seed| play(seed, Shape::RunningBack, rule).err())
        .map(|violation| violation.promise)
        .collect();
    violated.sort();
    violated.dedup();
    violated
}

/// Asserts that a mutation violates this promise.
#[track_caller]
fn assert_noticed(promise: Promise, rule: Rule) {
    let violated = violated(rule);
    assert!(violated.contains(&promise), "{violated:?}");
}

/// Asserts that a mutation violates these promises and no others.
#[track_caller]
fn assert_noticed_only(promises: &[Promise], rule: Rule) {
    assert_eq!(violated(rule), promises);
}

#[test]
fn the_rule_keeps_every_promise() {
    for shape in [Shape::Standing, Shape::Running, Shape::RunningBack] {
        let mut total = Counts::default();
        for seed in 0..1_000 {
            match play(seed, shape, |record, call| call.apply(record)) {
                Ok(counts) => {
                    for (total, count) in total.iter_mut().zip(counts) {
                        *total += count;
                    }
                }
                Err(violation) => panic!("{violation}\n{}", Histories::random(seed, shape, 4)),
            }
        }
        assert!(
            total.iter().all(|count| *count > 90),
            "{shape:?}: {total:?}"
        );
    }
}

#[test]
fn an_operation_that_is_sent_twice_has_the_effect_and_the_reply_of_one() {
    for seed in 0..300 {
        let played = play(seed, Shape::RunningBack, |record, call| {
            let applied = call.apply(record);
            // It would revoke the lease that it let in.
            if matches!(call.op, Op::Revoke(_)) {
                return applied;
            }
            let mut twice = record.clone();
            let repeated = call.apply(&mut twice);
            match call.op {
                Op::Remove(_) => assert_ne!(repeated.outcome, Outcome::Removed(true)),
                // The lease does not hold the lock any more.
                Op::Release { note: None, .. } if applied.outcome == Outcome::Released => {
                    assert!(matches!(repeated.outcome, Outcome::Lost(_)));
                }
                _ => assert_eq!(repeated.outcome, applied.outcome),
            }
            // No waiter is left to notify.
            assert_eq!(repeated.notices, []);
            assert_eq!(twice, *record);
            applied
        });
        played.unwrap();
    }
}

#[test]
fn mutations_of_holds_are_noticed() {
    // A grant while another holds.
    assert_noticed(Promise::Exclusion, |record, call| {
        if matches!(call.op, Op::Acquire(_)) {
            set_holder(record, None);
        }
        call.apply(record)
    });
    // A release by another lease.
    assert_noticed(Promise::Exclusion, |record, call| {
        let held = holder(record);
        call.apply_changed(record, |op| {
            if let (Op::Release { lease, .. }, Some(holder)) = (op, held) {
                *lease = holder.lease;
            }
        })
    });
    // An expired lease that is renewed.
    assert_noticed(Promise::Exclusion, |record, call| {
        if let Op::Renew { .. } = call.op {
            keep_until(record, call.environment.now.after_span(TICK));
        }
        call.apply(record)
    });
    // A late request that shortens a lease.
    assert_noticed(Promise::Exclusion, |record, call| {
        let applied = call.apply(record);
        if let Outcome::Granted { .. } | Outcome::Kept = applied.outcome
            && let Some(ttl) = call.op.ttl()
        {
            let end = End::At(call.environment.now.after(ttl));
            change_holder(record, |holder| holder.end = end);
        }
        applied
    });
    // Counts that add up.
    assert_noticed_only(&[Promise::HoldCount], |record, call| {
        let before = call.holder(record);
        let applied = call.apply(record);
        if let (Op::Acquire(request), Some(before)) = (call.op, before)
            && before.lease == request.lease
            && !before.is_reserved
        {
            let count = before.count.saturating_add(request.count.get());
            change_holder(record, |holder| holder.count = count);
        }
        applied
    });
    // A count that is not set.
    assert_noticed_only(&[Promise::HoldCount], |record, call| {
        call.apply_changed(record, |op| {
            if let Op::Renew { count, .. } = op {
                *count = None;
            }
        })
    });
}

#[test]
fn mutations_of_minimum_holds_are_noticed() {
    // A release that frees the lock before the end.
    assert_noticed(Promise::HoldCount, |record, call| {
        call.apply_changed(record, |op| {
            if let Op::Release { rest, .. } = op {
                *rest = None;
            }
        })
    });
    // An acquisition that ends it.
    assert_noticed(Promise::Exclusion, |record, call| {
        if matches!(call.op, Op::Acquire(_)) && holder(record).is_some_and(|it| it.is_reserved) {
            set_holder(record, None);
        }
        call.apply(record)
    });
    // A renewal that lengthens it.
    assert_noticed(Promise::Refusal, |record, call| {
        let holder = call.holder(record);
        if let (Op::Renew { ttl, .. }, Some(holder)) = (call.op, holder)
            && holder.is_reserved
        {
            keep_until(record, call.environment.now.after(*ttl));
        }
        call.apply(record)
    });
    // A lease that goes on holding.
    assert_noticed(Promise::HoldCount, |record, call| {
        let applied = call.apply(record);
        change_holder(record, |holder| holder.is_reserved = false);
        applied
    });
    // A lease that is longer than its minimum hold, and lasts to its end.
    assert_noticed(Promise::Refusal, |record, call| {
        let before = call.holder(record);
        let applied = call.apply(record);
        if let (Op::Release { rest: Some(_), .. }, Some(before)) = (call.op, before)
            && applied.outcome == Outcome::Released
        {
            change_holder(record, |holder| holder.end = holder.end.max(before.end));
        }
        applied
    });
    // A late request that waits for its own end.
    assert_noticed(Promise::Order, |record, call| {
        let own = holder(record).filter(|holder| holder.is_reserved);
        if let (Op::Acquire(request), Some(own)) = (call.op, own)
            && request.lease == own.lease
        {
            change_holder(record, |holder| holder.lease.number = 0);
            let applied = call.apply(record);
            change_holder(record, |holder| {
                if holder.is_reserved {
                    holder.lease = own.lease;
                }
            });
            return applied;
        }
        call.apply(record)
    });
    // Waiters that are not notified.
    assert_noticed_only(&[Promise::Wake], |record, call| {
        let mut applied = call.apply(record);
        if let Op::Release { rest: Some(_), .. } = call.op {
            applied.notices.clear();
        }
        applied
    });
}

#[test]
fn mutations_of_tokens_are_noticed() {
    // Tokens of the clock alone.
    assert_noticed_only(&[Promise::TokenOrder], |record, call| {
        if call.holder(record).is_none() {
            set_head(record, |head| head.counter = None);
        }
        call.apply(record)
    });
    // Blocks of tokens that overlap.
    assert_noticed_only(&[Promise::TokenOrder], |record, call| {
        let applied = call.apply(record);
        if let Outcome::Granted { first, .. } = applied.outcome {
            set_head(record, |head| head.counter = Some(first));
        }
        applied
    });
    // A new token for the same grant.
    assert_noticed(Promise::TokenOrder, |record, call| {
        let mut applied = call.apply(record);
        if let (Outcome::Granted { first, .. }, Some(last)) =
            (&mut applied.outcome, record.head().counter)
        {
            *first = Token::new(last.get() + 1).unwrap();
        }
        applied
    });
}

#[test]
fn mutations_of_replies_are_noticed() {
    // A refusal of a free lock.
    assert_noticed_only(&[Promise::Refusal], |record, call| {
        let has_ended = holder(record).is_some() && call.holder(record).is_none();
        let before = record.clone();
        let mut applied = call.apply(record);
        if matches!(call.op, Op::Acquire(_)) && has_ended {
            *record = before;
            applied.notices.clear();
            applied.outcome = Outcome::Refused {
                time_left: Some(Duration::ZERO),
                queue_position: None,
            };
        }
        applied
    });
    // A wrong time left.
    assert_noticed_only(&[Promise::Refusal], |record, call| {
        let mut applied = call.apply(record);
        if let Outcome::Refused {
            time_left: Some(time_left),
            ..
        } = &mut applied.outcome
        {
            *time_left += Duration::from_millis(5);
        }
        applied
    });
    // A loss of a held lease.
    assert_noticed(Promise::Loss, |record, call| {
        let mut applied = call.apply(record);
        if applied.outcome == Outcome::Kept {
            applied.outcome = Outcome::Lost(Loss::Free);
        }
        applied
    });
    // A reply to another request.
    assert_noticed_only(&[Promise::Reply], |record, call| {
        let mut applied = call.apply(record);
        if applied.outcome == Outcome::Kept {
            applied.outcome = Outcome::Released;
        }
        applied
    });
}

#[test]
fn mutations_of_notes_and_latches_are_noticed() {
    // A note of a lease that does not hold.
    assert_noticed(Promise::Exclusion, |record, call| {
        let held = holder(record);
        call.apply_changed(record, |op| {
            if let (Op::WriteNote { lease, .. }, Some(holder)) = (op, held) {
                *lease = holder.lease;
            }
        })
    });
    // An arrival that takes a lock.
    assert_noticed_only(&[Promise::Kind], |record, call| match call.op {
        Op::Arrive { .. } => call.apply(&mut Rows::default()),
        _ => call.apply(record),
    });
}
