//! The judges acquit the rule and convict every broken copy of it.

mod waiting;

use std::num::NonZeroU32;

use leasehold_core::mutex::{self, Record};
use leasehold_core::{Loss, Token};

use super::*;
use crate::history::{Histories, Shape};

/// How many histories a broken rule may survive. Most are caught by the first three.
const HISTORIES_MAX: u64 = 200;

const START: u64 = 1_700_000_000_000_000;

type Tell<'a> = &'a mut dyn FnMut(&Notice) -> bool;

type Rule = fn(&mut Record, &Op, StoreTime, Tell<'_>) -> Outcome;

fn apply(record: &mut Record, op: &Op, now: StoreTime, tell: Tell<'_>) -> Outcome {
    mutex::apply(record, op, now, tell)
}

/// How often something happened that the judges are to judge.
#[derive(Debug, Default)]
struct Happened {
    told: u64,
    next: u64,
    passed_over: u64,
    behind: u64,
}

/// Plays the histories of a seed to a rule and lets a judge per name read along.
fn play(seed: u64, shape: Shape, rule: Rule) -> Result<Happened, Violation> {
    let histories = Histories::random(seed, shape, 4);
    let reaches = |client| histories.reaches(client);
    let mut names: Vec<_> = (0..histories.names)
        .map(|_| (Record::default(), Judge::new(Duration::ZERO)))
        .collect();
    let mut happened = Happened::default();
    let mut now = START;
    for round in &histories.rounds {
        now = now.saturating_add_signed(round.step_ms * 1_000);
        let time = StoreTime::from_micros(now);
        for (name, op) in round.batches.iter().flatten() {
            let (record, judge) = &mut names[*name];
            let mut told = Vec::new();
            let outcome = rule(record, op, time, &mut |notice| {
                let granted = matches!(notice, Notice::Granted(_));
                let reached = reaches(notice.lease().client);
                if reached {
                    told.push(*notice);
                }
                happened.told += u64::from(granted && reached);
                happened.next += u64::from(!granted && reached);
                happened.passed_over += u64::from(granted && !reached);
                reached
            });
            if let Outcome::Refused {
                queue_position: place,
                ..
            } = outcome
            {
                happened.behind += u64::from(place > Some(0));
            }
            let seen = Seen {
                op,
                outcome: &outcome,
                told: &told,
                now: time,
            };
            judge.see(seen, reaches)?;
            let holder = record.holder(time);
            judge.look(holder.map(|hold| (hold.lease, hold.count.get())), time)?;
        }
    }
    Ok(happened)
}

/// Which promises a broken rule is found to break.
fn convict(rule: Rule) -> Vec<Promise> {
    let mut broken: Vec<_> = (0..HISTORIES_MAX)
        .filter_map(|seed| play(seed, Shape::RunningBack, rule).err())
        .map(|violation| violation.promise)
        .collect();
    broken.sort();
    broken.dedup();
    broken
}

#[test]
fn the_rule_keeps_every_promise() {
    for shape in [Shape::Standing, Shape::Running, Shape::RunningBack] {
        let mut total = Happened::default();
        for seed in 0..1_000 {
            match play(seed, shape, apply) {
                Ok(happened) => {
                    total.told += happened.told;
                    total.next += happened.next;
                    total.passed_over += happened.passed_over;
                    total.behind += happened.behind;
                }
                Err(violation) => panic!("{violation}\n{}", Histories::random(seed, shape, 4)),
            }
        }
        let Happened {
            told,
            next,
            passed_over,
            behind,
        } = total;
        for times in [told, next, passed_over, behind] {
            assert!(times > 300, "{shape:?}: {total:?}");
        }
    }
}

#[test]
fn a_grant_while_another_holds_is_seen() {
    let broken = convict(|record, op, now, tell| {
        if matches!(op, Op::Acquire { .. }) {
            record.hold = None;
        }
        apply(record, op, now, tell)
    });
    assert!(broken.contains(&Promise::Exclusion), "{broken:?}");
}

#[test]
fn a_release_by_a_stranger_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let mut op = *op;
        if let (Op::Release { lease, .. }, Some(hold)) = (&mut op, record.hold) {
            *lease = hold.lease;
        }
        apply(record, &op, now, tell)
    });
    assert!(broken.contains(&Promise::Exclusion), "{broken:?}");
}

#[test]
fn an_expired_lease_that_is_renewed_is_seen() {
    let broken = convict(|record, op, now, tell| {
        if let (Op::Renew { .. }, Some(hold)) = (op, &mut record.hold) {
            hold.expires_at = hold
                .expires_at
                .max(StoreTime::from_micros(now.as_micros() + 1));
        }
        apply(record, op, now, tell)
    });
    assert!(broken.contains(&Promise::Exclusion), "{broken:?}");
}

#[test]
fn tokens_of_the_clock_alone_are_seen() {
    let broken = convict(|record, op, now, tell| {
        if record.holder(now).is_none() {
            record.last_token = None;
        }
        apply(record, op, now, tell)
    });
    assert_eq!(broken, [Promise::TokenOrder]);
}

#[test]
fn blocks_of_tokens_that_overlap_are_seen() {
    let broken = convict(|record, op, now, tell| {
        let outcome = apply(record, op, now, tell);
        if let Outcome::Granted { first } = outcome {
            record.last_token = Some(first);
        }
        outcome
    });
    assert_eq!(broken, [Promise::TokenOrder]);
}

#[test]
fn a_new_token_for_the_same_grant_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let outcome = apply(record, op, now, tell);
        match (outcome, record.last_token) {
            (Outcome::Granted { .. }, Some(last)) => Outcome::Granted {
                first: Token::new(last.get() + 1).unwrap(),
            },
            _ => outcome,
        }
    });
    assert!(broken.contains(&Promise::TokenOrder), "{broken:?}");
}

#[test]
fn counts_that_add_up_are_seen() {
    let broken = convict(|record, op, now, tell| {
        let before = record.holder(now).copied();
        let outcome = apply(record, op, now, tell);
        if let (Op::Acquire { count, .. }, Some(before), Some(hold)) =
            (op, before, &mut record.hold)
            && before.lease == hold.lease
        {
            hold.count = before.count.saturating_add(count.get());
        }
        outcome
    });
    assert_eq!(broken, [Promise::HoldCount]);
}

#[test]
fn a_count_that_is_not_set_is_seen() {
    let broken = convict(
        |record, op, now, tell| match (op, apply(record, op, now, tell)) {
            (Op::Release { .. }, Outcome::Released { count }) if count > 0 => {
                if let Some(hold) = &mut record.hold {
                    hold.count = NonZeroU32::MIN;
                }
                Outcome::Released { count: 1 }
            }
            (_, outcome) => outcome,
        },
    );
    assert_eq!(broken, [Promise::HoldCount]);
}

#[test]
fn a_refusal_of_a_free_lock_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let expired = record.hold.is_some() && record.holder(now).is_none();
        match op {
            Op::Acquire { .. } if expired => Outcome::Refused {
                time_left: Duration::ZERO,
                queue_position: None,
            },
            _ => apply(record, op, now, tell),
        }
    });
    assert_eq!(broken, [Promise::Refusal]);
}

#[test]
fn a_wrong_time_left_is_seen() {
    let broken = convict(|record, op, now, tell| match apply(record, op, now, tell) {
        Outcome::Refused {
            time_left: left,
            queue_position: place,
        } => Outcome::Refused {
            time_left: left + Duration::from_millis(5),
            queue_position: place,
        },
        outcome => outcome,
    });
    assert_eq!(broken, [Promise::Refusal]);
}

#[test]
fn a_held_lease_that_is_called_lost_is_seen() {
    let broken = convict(|record, op, now, tell| match apply(record, op, now, tell) {
        Outcome::Renewed => Outcome::Lost(Loss::Gone),
        outcome => outcome,
    });
    assert!(broken.contains(&Promise::Loss), "{broken:?}");
}

#[test]
fn an_answer_to_another_question_is_seen() {
    let broken = convict(|record, op, now, tell| match apply(record, op, now, tell) {
        Outcome::Renewed => Outcome::Released { count: 0 },
        outcome => outcome,
    });
    assert_eq!(broken, [Promise::Answer]);
}
