//! The judge of waiting convicts every broken copy of the rule.

use leasehold_core::{Queue, Ttl, Waiter};

use super::*;

/// The queue of a record, to change it.
fn line(record: &Record) -> (Vec<Waiter>, StoreTime) {
    let queue = &record.queue;
    (queue.waiters().copied().collect(), queue.until())
}

fn is_free(record: &Record, now: StoreTime) -> bool {
    record.holder(now).is_none()
}

const fn is_grant(notice: &Notice) -> bool {
    matches!(notice, Notice::Granted(_))
}

/// The rule with other grants: what is told and what is done are changed alike, or one of them.
fn apply_changed(
    record: &mut Record,
    op: &Op,
    now: StoreTime,
    tell: Tell<'_>,
    told: impl Fn(&mut Grant),
    done: impl Fn(&mut Record, &Grant),
) -> Outcome {
    let mut last = None;
    let outcome = apply(record, op, now, &mut |notice| {
        let mut notice = *notice;
        if let Notice::Granted(grant) = &mut notice {
            told(grant);
            last = Some(*grant);
        }
        tell(&notice)
    });
    let granted = |grant: &Grant| {
        let held = record.hold.as_ref();
        held.is_some_and(|hold| hold.lease == grant.lease)
    };
    if let Some(grant) = last.filter(granted) {
        done(record, &grant);
    }
    outcome
}

fn set_end(record: &mut Record, end: StoreTime) {
    if let Some(hold) = &mut record.hold {
        hold.expires_at = end;
    }
}

#[test]
fn a_grant_to_the_last_instead_of_the_first_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let before = record.clone();
        let (waiters, until) = line(record);
        record.queue = Queue::restored(waiters.into_iter().rev(), until);
        let mut granted = false;
        let outcome = apply(record, op, now, &mut |notice| {
            granted |= is_grant(notice);
            tell(notice)
        });
        if granted {
            let (rest, until) = line(record);
            record.queue = Queue::restored(rest.into_iter().rev(), until);
            return outcome;
        }
        *record = before;
        apply(record, op, now, tell)
    });
    assert!(broken.contains(&Promise::Order), "{broken:?}");
}

#[test]
fn an_asker_that_overtakes_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let Op::Acquire { lease, .. } = *op else {
            return apply(record, op, now, tell);
        };
        if !is_free(record, now) {
            return apply(record, op, now, tell);
        }
        let (waiters, until) = line(record);
        record.queue = Queue::default();
        let outcome = apply(record, op, now, tell);
        let others = waiters.into_iter().filter(|waiter| waiter.lease != lease);
        record.queue = Queue::restored(others, until);
        outcome
    });
    assert!(broken.contains(&Promise::Order), "{broken:?}");
}

#[test]
fn a_free_lock_that_nobody_is_granted_is_seen() {
    let broken = convict(|record, op, now, tell| {
        if matches!(op, Op::Acquire { .. }) {
            return apply(record, op, now, tell);
        }
        let queue = std::mem::take(&mut record.queue);
        let outcome = apply(record, op, now, tell);
        record.queue = queue;
        outcome
    });
    assert!(broken.contains(&Promise::Wake), "{broken:?}");
}

#[test]
fn a_first_one_that_cannot_be_told_and_is_not_passed_over_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let (waiters, until) = line(record);
        let mut tried = 0;
        let outcome = apply(record, op, now, &mut |notice| {
            tried += usize::from(is_grant(notice));
            tried == 1 && tell(notice)
        });
        if tried > 1 && record.hold.is_none() {
            record.queue = Queue::restored(waiters, until);
        }
        outcome
    });
    assert!(broken.contains(&Promise::Wake), "{broken:?}");
}

#[test]
fn one_that_was_passed_over_and_stays_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let (waiters, until) = line(record);
        let mut deaf = Vec::new();
        let outcome = apply(record, op, now, &mut |notice| {
            let reached = tell(notice);
            let own = |waiter: &&Waiter| waiter.lease == notice.lease();
            if !reached && is_grant(notice) {
                deaf.extend(waiters.iter().find(own));
            }
            reached
        });
        let (rest, _) = line(record);
        record.queue = Queue::restored(deaf.into_iter().chain(rest), until);
        outcome
    });
    assert!(broken.contains(&Promise::Order), "{broken:?}");
}

#[test]
fn a_grant_that_nobody_is_told_is_seen() {
    let broken = convict(|record, op, now, tell| {
        apply(record, op, now, &mut |notice| {
            tell(notice);
            true
        })
    });
    assert!(broken.contains(&Promise::Refusal), "{broken:?}");
}

#[test]
fn two_grants_at_once_are_seen() {
    let broken = convict(|record, op, now, tell| {
        let outcome = apply(record, op, now, tell);
        let held = record.hold;
        if matches!(op, Op::Release { count: 0, .. } | Op::Revoke) && held.is_some() {
            apply(record, &Op::Revoke, now, tell);
            record.hold = record.hold.or(held);
        }
        outcome
    });
    assert!(broken.contains(&Promise::Exclusion), "{broken:?}");
}

#[test]
fn a_grant_that_is_told_twice_is_seen() {
    let broken = convict(|record, op, now, tell| {
        apply(record, op, now, &mut |notice| {
            tell(notice) && (!is_grant(notice) || tell(notice))
        })
    });
    assert_eq!(broken, [Promise::Exclusion]);
}

#[test]
fn a_grant_that_is_told_and_not_done_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let undo = |record: &mut Record, _: &Grant| record.hold = None;
        apply_changed(record, op, now, tell, |_| {}, undo)
    });
    assert!(broken.contains(&Promise::HoldCount), "{broken:?}");
}

#[test]
fn a_waiter_that_left_and_is_kept_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let before = record.clone();
        let outcome = apply(record, op, now, tell);
        if matches!(outcome, Outcome::Lost(_)) && record.hold == before.hold {
            record.queue = before.queue;
        }
        outcome
    });
    assert_eq!(broken, [Promise::Order, Promise::Wake]);
}

#[test]
fn a_waiter_that_loses_its_place_by_asking_again_is_seen() {
    let broken = convict(|record, op, now, tell| {
        if let Op::Acquire { lease, .. } = *op {
            let (waiters, until) = line(record);
            let others = waiters.into_iter().filter(|waiter| waiter.lease != lease);
            record.queue = Queue::restored(others, until);
        }
        apply(record, op, now, tell)
    });
    assert!(broken.contains(&Promise::Order), "{broken:?}");
}

#[test]
fn a_wrong_place_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let mut outcome = apply(record, op, now, tell);
        if let Outcome::Refused {
            queue_position: Some(place),
            ..
        } = &mut outcome
        {
            *place = place.saturating_sub(1);
        }
        outcome
    });
    assert_eq!(broken, [Promise::Order]);
}

#[test]
fn a_queue_for_those_who_do_not_want_to_wait_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let mut op = *op;
        let Op::Acquire { wait, .. } = &mut op else {
            return apply(record, &op, now, tell);
        };
        let wanted = std::mem::replace(wait, true);
        let mut outcome = apply(record, &op, now, tell);
        if let Outcome::Refused {
            queue_position: place,
            ..
        } = &mut outcome
        {
            *place = place.filter(|_| wanted);
        }
        outcome
    });
    assert!(broken.contains(&Promise::Wake), "{broken:?}");
}

#[test]
fn a_holder_that_still_waits_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let (waiters, until) = line(record);
        let outcome = apply(record, op, now, tell);
        if let (Op::Acquire { lease, .. }, Outcome::Granted { .. }) = (op, outcome) {
            let own = waiters.into_iter().filter(|waiter| waiter.lease == *lease);
            let (rest, _) = line(record);
            record.queue = Queue::restored(own.chain(rest), until);
        }
        outcome
    });
    assert!(broken.contains(&Promise::Order), "{broken:?}");
}

#[test]
fn a_grant_for_too_long_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let longer = |grant: &mut Grant| grant.ttl = Ttl::MAX;
        apply_changed(record, op, now, tell, longer, |record, grant| {
            set_end(record, now.after(grant.ttl));
        })
    });
    assert_eq!(broken, [Promise::Acceptance]);
}

#[test]
fn a_grant_for_too_short_a_time_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let shorter = |grant: &mut Grant| {
            let less = Ttl::from_millis(grant.ttl.as_millis() - 1);
            grant.ttl = less.unwrap_or(grant.ttl);
        };
        apply_changed(record, op, now, tell, shorter, |record, grant| {
            set_end(record, now.after(grant.ttl));
        })
    });
    assert_eq!(broken, [Promise::Acceptance]);
}

#[test]
fn a_grant_that_lasts_longer_than_it_says_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let longer = |record: &mut Record, _: &Grant| set_end(record, now.after(Ttl::MAX));
        apply_changed(record, op, now, tell, |_| {}, longer)
    });
    assert!(broken.contains(&Promise::Refusal), "{broken:?}");
}

#[test]
fn a_grant_that_ends_before_it_says_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let shorter = |record: &mut Record, _: &Grant| set_end(record, now);
        apply_changed(record, op, now, tell, |_| {}, shorter)
    });
    assert!(broken.contains(&Promise::HoldCount), "{broken:?}");
}

#[test]
fn a_grant_with_a_token_of_the_one_before_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let last = record.last_token;
        let again = |grant: &mut Grant| grant.first = last.unwrap_or(grant.first);
        apply_changed(record, op, now, tell, again, |_, _| {})
    });
    assert_eq!(broken, [Promise::TokenOrder]);
}

#[test]
fn a_grant_with_fewer_tokens_than_asked_for_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let one = |record: &mut Record, grant: &Grant| record.last_token = Some(grant.first);
        apply_changed(record, op, now, tell, |_| {}, one)
    });
    assert!(broken.contains(&Promise::TokenOrder), "{broken:?}");
}

#[test]
fn a_next_one_that_is_not_told_is_seen() {
    let broken = convict(|record, op, now, tell| {
        apply(record, op, now, &mut |notice| {
            is_grant(notice) && tell(notice)
        })
    });
    assert_eq!(broken, [Promise::Wake]);
}

#[test]
fn a_next_one_that_is_told_a_wrong_time_is_seen() {
    let broken = convict(|record, op, now, tell| {
        apply(record, op, now, &mut |notice| {
            let mut notice = *notice;
            if let Notice::Next { ttl, .. } = &mut notice {
                *ttl = Ttl::MAX;
            }
            tell(&notice)
        })
    });
    assert_eq!(broken, [Promise::Wake]);
}

#[test]
fn a_queue_that_is_forgotten_too_soon_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let outcome = apply(record, op, now, tell);
        let (waiters, until) = line(record);
        let soon = StoreTime::from_micros(until.as_micros().saturating_sub(1_000_000));
        record.queue = Queue::restored(waiters, soon);
        outcome
    });
    assert!(broken.contains(&Promise::Wake), "{broken:?}");
}

#[test]
fn a_queue_that_is_never_forgotten_is_seen() {
    let broken = convict(|record, op, now, tell| {
        let (waiters, _) = line(record);
        record.queue = Queue::restored(waiters, now.after(Ttl::MAX));
        apply(record, op, now, tell)
    });
    assert!(broken.contains(&Promise::Wake), "{broken:?}");
}
