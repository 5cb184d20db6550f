//! The rule keeps every promise, and the checker notices every mutation of it.

mod queue;

use leasehold_core::mutex::{self, Record};
use leasehold_core::{Loss, Token};

use super::*;
use crate::history::{Histories, Shape};

/// How many histories a mutation may survive. Most are noticed in the first three.
const HISTORIES_MAX: u64 = 200;

const START: u64 = 1_700_000_000_000_000;

const TICK: Duration = Duration::from_micros(1);

type Notify<'a> = &'a mut dyn FnMut(&Notice) -> bool;

type Rule = fn(&mut Record, &Op, StoreTime, Notify<'_>) -> Outcome;

fn apply(record: &mut Record, op: &Op, now: StoreTime, notify: Notify<'_>) -> Outcome {
    mutex::apply(record, op, now, notify)
}

/// How often grants and next waiters were notified, dead heads passed over, and waiters refused behind others.
type Counts = [u64; 4];

/// Plays the histories of a seed to a rule, with a checker for each name.
fn play(seed: u64, shape: Shape, rule: Rule) -> Result<Counts, Violation> {
    let histories = Histories::random(seed, shape, 4);
    let reaches = |client| histories.reaches(client);
    let mut names: Vec<_> = (0..histories.names)
        .map(|_| (Record::default(), StoreChecker::new(Duration::ZERO)))
        .collect();
    let [mut granted, mut next, mut passed_over, mut behind] = Counts::default();
    let mut now = START;
    for round in &histories.rounds {
        now = now.saturating_add_signed(round.step_ms * 1_000);
        let time = StoreTime::from_micros(now);
        for (name, op) in round.batches.iter().flatten() {
            let (record, checker) = &mut names[*name];
            let mut notices = Vec::new();
            let reply = rule(record, op, time, &mut |notice| {
                let reached = reaches(notice.lease().client);
                match (notice, reached) {
                    (Notice::Granted(_), true) => granted += 1,
                    (Notice::Granted(_), false) => passed_over += 1,
                    (_, true) => next += 1,
                    (_, false) => {}
                }
                notices.extend(reached.then_some(*notice));
                reached
            });
            if let Outcome::Refused { queue_position, .. } = reply {
                behind += u64::from(queue_position > Some(0));
            }
            let observation = Observation {
                op,
                reply: &reply,
                notices: &notices,
                now: time,
            };
            checker.observe(observation, reaches)?;
            let holder = record.holder(time);
            checker.inspect(holder.map(|hold| (hold.lease, hold.count.get())), time)?;
        }
    }
    Ok([granted, next, passed_over, behind])
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
            match play(seed, shape, apply) {
                Ok(counts) => {
                    for (total, count) in total.iter_mut().zip(counts) {
                        *total += count;
                    }
                }
                Err(violation) => panic!("{violation}\n{}", Histories::random(seed, shape, 4)),
            }
        }
        assert!(
            total.iter().all(|count| *count > 300),
            "{shape:?}: {total:?}"
        );
    }
}

#[test]
fn an_operation_that_is_sent_twice_has_the_effect_and_the_reply_of_one() {
    for seed in 0..300 {
        let played = play(seed, Shape::RunningBack, |record, op, now, notify| {
            let reply = apply(record, op, now, notify);
            // It names no lease, so it would revoke the one that it let in.
            if matches!(op, Op::Revoke) {
                return reply;
            }
            // No waiter is left to notify.
            let mut twice = record.clone();
            let repeated = apply(&mut twice, op, now, &mut |notice| panic!("{notice:?}"));
            match op {
                // The lease does not hold the lock any more.
                Op::Release { .. } => assert!(matches!(repeated, Outcome::Lost(_))),
                _ => assert_eq!(repeated, reply),
            }
            assert_eq!(twice, *record);
            reply
        });
        played.unwrap();
    }
}

#[test]
fn mutations_of_holds_are_noticed() {
    // A grant while another holds.
    assert_noticed(Promise::Exclusion, |record, op, now, notify| {
        if matches!(op, Op::Acquire { .. }) {
            record.hold = None;
        }
        apply(record, op, now, notify)
    });
    // A release by another lease.
    assert_noticed(Promise::Exclusion, |record, op, now, notify| {
        let mut op = *op;
        if let (Op::Release { lease, .. }, Some(hold)) = (&mut op, record.hold) {
            *lease = hold.lease;
        }
        apply(record, &op, now, notify)
    });
    // An expired lease that is renewed.
    assert_noticed(Promise::Exclusion, |record, op, now, notify| {
        if let (Op::Renew { .. }, Some(hold)) = (op, &mut record.hold) {
            hold.expires_at = hold.expires_at.max(now.after_span(TICK));
        }
        apply(record, op, now, notify)
    });
    // A late request that shortens a lease.
    assert_noticed(Promise::Exclusion, |record, op, now, notify| {
        let outcome = apply(record, op, now, notify);
        if let Outcome::Granted { .. } | Outcome::Kept = outcome
            && let (Some(ttl), Some(hold)) = (op.ttl(), &mut record.hold)
        {
            hold.expires_at = now.after(ttl);
        }
        outcome
    });
    // Counts that add up.
    assert_noticed_only(&[Promise::HoldCount], |record, op, now, notify| {
        let before = record.holder(now).copied();
        let outcome = apply(record, op, now, notify);
        if let (Op::Acquire { count, .. }, Some(before), Some(hold)) =
            (op, before, &mut record.hold)
            && before.lease == hold.lease
        {
            hold.count = before.count.saturating_add(count.get());
        }
        outcome
    });
    // A count that is not set.
    assert_noticed_only(&[Promise::HoldCount], |record, op, now, notify| {
        let mut op = *op;
        if let Op::Renew { count, .. } = &mut op {
            *count = None;
        }
        apply(record, &op, now, notify)
    });
}

#[test]
fn mutations_of_minimum_holds_are_noticed() {
    // A release that frees the lock before the end.
    assert_noticed(Promise::HoldCount, |record, op, now, notify| {
        let mut op = *op;
        if let Op::Release { rest, .. } = &mut op {
            *rest = None;
        }
        apply(record, &op, now, notify)
    });
    // An acquisition that ends it.
    assert_noticed(Promise::Exclusion, |record, op, now, notify| {
        if let (Op::Acquire { .. }, Some(hold)) = (op, record.hold)
            && hold.lease.is_min_hold()
        {
            record.hold = None;
        }
        apply(record, op, now, notify)
    });
    // A renewal that lengthens it.
    assert_noticed(Promise::Refusal, |record, op, now, notify| {
        if let (Op::Renew { ttl, .. }, Some(hold)) = (op, &mut record.hold)
            && hold.lease.is_min_hold()
            && now < hold.expires_at
        {
            hold.expires_at = hold.expires_at.max(now.after(*ttl));
        }
        apply(record, op, now, notify)
    });
    // The same, and it is confirmed: the record still names the lease.
    assert_noticed(Promise::HoldCount, |record, op, now, notify| {
        let outcome = apply(record, op, now, notify);
        if let (Op::Release { lease, .. }, Some(hold)) = (op, &mut record.hold)
            && hold.lease == lease.client.min_hold_lease()
        {
            hold.lease = *lease;
        }
        outcome
    });
    // A lease that is longer than its minimum hold, and lasts to its end.
    assert_noticed(Promise::Refusal, |record, op, now, notify| {
        let before = record.holder(now).map(|hold| hold.expires_at);
        let outcome = apply(record, op, now, notify);
        if let (Op::Release { rest: Some(_), .. }, Some(before), Some(hold)) =
            (op, before, &mut record.hold)
            && outcome == Outcome::Released
        {
            hold.expires_at = hold.expires_at.max(before);
        }
        outcome
    });
    // Waiters that are not notified.
    assert_noticed(Promise::Wake, |record, op, now, notify| match op {
        Op::Release { rest: Some(_), .. } => {
            let queue = std::mem::take(&mut record.queue);
            let outcome = apply(record, op, now, notify);
            record.queue = queue;
            outcome
        }
        _ => apply(record, op, now, notify),
    });
}

#[test]
fn mutations_of_tokens_are_noticed() {
    // Tokens of the clock alone.
    assert_noticed_only(&[Promise::TokenOrder], |record, op, now, notify| {
        if record.holder(now).is_none() {
            record.last_token = None;
        }
        apply(record, op, now, notify)
    });
    // Blocks of tokens that overlap.
    assert_noticed_only(&[Promise::TokenOrder], |record, op, now, notify| {
        let outcome = apply(record, op, now, notify);
        if let Outcome::Granted { first } = outcome {
            record.last_token = Some(first);
        }
        outcome
    });
    // A new token for the same grant.
    assert_noticed(Promise::TokenOrder, |record, op, now, notify| {
        let mut outcome = apply(record, op, now, notify);
        if let (Outcome::Granted { first }, Some(last)) = (&mut outcome, record.last_token) {
            *first = Token::new(last.get() + 1).unwrap();
        }
        outcome
    });
}

#[test]
fn mutations_of_replies_are_noticed() {
    // A refusal of a free lock.
    assert_noticed_only(&[Promise::Refusal], |record, op, now, notify| {
        let expired = record.hold.is_some() && record.holder(now).is_none();
        match op {
            Op::Acquire { .. } if expired => Outcome::Refused {
                time_left: Duration::ZERO,
                queue_position: None,
            },
            _ => apply(record, op, now, notify),
        }
    });
    // A wrong time left.
    assert_noticed_only(&[Promise::Refusal], |record, op, now, notify| {
        let mut outcome = apply(record, op, now, notify);
        if let Outcome::Refused { time_left, .. } = &mut outcome {
            *time_left += Duration::from_millis(5);
        }
        outcome
    });
    // A loss of a held lease.
    assert_noticed(Promise::Loss, |record, op, now, notify| {
        match apply(record, op, now, notify) {
            Outcome::Kept => Outcome::Lost(Loss::Free),
            outcome => outcome,
        }
    });
    // A reply to another request.
    assert_noticed_only(&[Promise::Reply], |record, op, now, notify| {
        match apply(record, op, now, notify) {
            Outcome::Kept => Outcome::Released,
            outcome => outcome,
        }
    });
}
