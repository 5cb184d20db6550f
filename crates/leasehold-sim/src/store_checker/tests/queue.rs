//! The checker notices every mutation of the queue.

use leasehold_core::{Queue, Ttl, Waiter};

use super::*;

/// The waiters of a record, and until when its queue is kept.
fn queue(record: &Record) -> (Vec<Waiter>, StoreTime) {
    let queue = &record.queue;
    (queue.waiters().copied().collect(), queue.until())
}

fn is_free(record: &Record, now: StoreTime) -> bool {
    record.holder(now).is_none()
}

const fn is_grant(notice: &Notice) -> bool {
    matches!(notice, Notice::Granted(_))
}

/// The rule with other grants: in their notices, in the record, or in both.
fn apply_changed(
    record: &mut Record,
    op: &Op,
    now: StoreTime,
    notify: Notify<'_>,
    change_notice: impl Fn(&mut Grant),
    change_record: impl Fn(&mut Record, &Grant),
) -> Outcome {
    let mut last = None;
    let outcome = apply(record, op, now, &mut |notice| {
        let mut notice = *notice;
        if let Notice::Granted(grant) = &mut notice {
            change_notice(grant);
            last = Some(*grant);
        }
        notify(&notice)
    });
    let granted = |grant: &Grant| {
        let held = record.hold.as_ref();
        held.is_some_and(|hold| hold.lease == grant.lease)
    };
    if let Some(grant) = last.filter(granted) {
        change_record(record, &grant);
    }
    outcome
}

fn set_end(record: &mut Record, end: StoreTime) {
    if let Some(hold) = &mut record.hold {
        hold.expires_at = end;
    }
}

#[test]
fn a_grant_to_the_last_instead_of_the_first_is_noticed() {
    assert_noticed(Promise::Order, |record, op, now, notify| {
        let before = record.clone();
        let (waiters, until) = queue(record);
        record.queue = Queue::restored(waiters.into_iter().rev(), until);
        let mut granted = false;
        let outcome = apply(record, op, now, &mut |notice| {
            granted |= is_grant(notice);
            notify(notice)
        });
        if granted {
            let (rest, until) = queue(record);
            record.queue = Queue::restored(rest.into_iter().rev(), until);
            return outcome;
        }
        *record = before;
        apply(record, op, now, notify)
    });
}

#[test]
fn a_request_that_overtakes_waiters_is_noticed() {
    assert_noticed(Promise::Order, |record, op, now, notify| {
        let Op::Acquire { lease, .. } = *op else {
            return apply(record, op, now, notify);
        };
        if !is_free(record, now) {
            return apply(record, op, now, notify);
        }
        let (waiters, until) = queue(record);
        record.queue = Queue::default();
        let outcome = apply(record, op, now, notify);
        let others = waiters.into_iter().filter(|waiter| waiter.lease != lease);
        record.queue = Queue::restored(others, until);
        outcome
    });
}

#[test]
fn a_free_lock_that_is_not_granted_is_noticed() {
    assert_noticed(Promise::Wake, |record, op, now, notify| {
        if matches!(op, Op::Acquire { .. }) {
            return apply(record, op, now, notify);
        }
        let queue = std::mem::take(&mut record.queue);
        let outcome = apply(record, op, now, notify);
        record.queue = queue;
        outcome
    });
}

#[test]
fn a_dead_head_that_is_not_passed_over_is_noticed() {
    assert_noticed(Promise::Wake, |record, op, now, notify| {
        let (waiters, until) = queue(record);
        let mut tried = 0;
        let outcome = apply(record, op, now, &mut |notice| {
            tried += usize::from(is_grant(notice));
            tried == 1 && notify(notice)
        });
        if tried > 1 && record.hold.is_none() {
            record.queue = Queue::restored(waiters, until);
        }
        outcome
    });
}

#[test]
fn a_dead_head_that_stays_in_the_queue_is_noticed() {
    assert_noticed(Promise::Order, |record, op, now, notify| {
        let (waiters, until) = queue(record);
        let mut dead = Vec::new();
        let outcome = apply(record, op, now, &mut |notice| {
            let reached = notify(notice);
            let own = |waiter: &&Waiter| waiter.lease == notice.lease();
            if !reached && is_grant(notice) {
                dead.extend(waiters.iter().find(own));
            }
            reached
        });
        let (rest, _) = queue(record);
        record.queue = Queue::restored(dead.into_iter().chain(rest), until);
        outcome
    });
}

#[test]
fn a_grant_without_a_notice_is_noticed() {
    assert_noticed(Promise::Refusal, |record, op, now, notify| {
        apply(record, op, now, &mut |notice| {
            notify(notice);
            true
        })
    });
}

#[test]
fn two_grants_at_once_are_noticed() {
    assert_noticed(Promise::Exclusion, |record, op, now, notify| {
        let outcome = apply(record, op, now, notify);
        let held = record.hold;
        if matches!(op, Op::Release { count: 0, .. } | Op::Revoke) && held.is_some() {
            apply(record, &Op::Revoke, now, notify);
            record.hold = record.hold.or(held);
        }
        outcome
    });
}

#[test]
fn a_grant_that_is_notified_twice_is_noticed() {
    assert_noticed_only(&[Promise::Exclusion], |record, op, now, notify| {
        apply(record, op, now, &mut |notice| {
            notify(notice) && (!is_grant(notice) || notify(notice))
        })
    });
}

#[test]
fn a_notified_grant_that_is_not_stored_is_noticed() {
    assert_noticed(Promise::HoldCount, |record, op, now, notify| {
        let undo = |record: &mut Record, _: &Grant| record.hold = None;
        apply_changed(record, op, now, notify, |_| {}, undo)
    });
}

#[test]
fn a_waiter_that_is_kept_after_its_release_is_noticed() {
    assert_noticed_only(
        &[Promise::Order, Promise::Wake],
        |record, op, now, notify| {
            let before = record.clone();
            let outcome = apply(record, op, now, notify);
            if matches!(outcome, Outcome::Lost(_)) && record.hold == before.hold {
                record.queue = before.queue;
            }
            outcome
        },
    );
}

#[test]
fn a_waiter_that_loses_its_place_by_a_repeated_request_is_noticed() {
    assert_noticed(Promise::Order, |record, op, now, notify| {
        if let Op::Acquire { lease, .. } = *op {
            let (waiters, until) = queue(record);
            let others = waiters.into_iter().filter(|waiter| waiter.lease != lease);
            record.queue = Queue::restored(others, until);
        }
        apply(record, op, now, notify)
    });
}

#[test]
fn a_wrong_queue_position_is_noticed() {
    assert_noticed_only(&[Promise::Order], |record, op, now, notify| {
        let mut outcome = apply(record, op, now, notify);
        if let Outcome::Refused {
            queue_position: Some(position),
            ..
        } = &mut outcome
        {
            *position = position.saturating_sub(1);
        }
        outcome
    });
}

#[test]
fn a_queue_for_clients_that_do_not_wait_is_noticed() {
    assert_noticed(Promise::Wake, |record, op, now, notify| {
        let mut op = *op;
        let Op::Acquire { wait, .. } = &mut op else {
            return apply(record, &op, now, notify);
        };
        let wanted = std::mem::replace(wait, true);
        let mut outcome = apply(record, &op, now, notify);
        if let Outcome::Refused { queue_position, .. } = &mut outcome {
            *queue_position = queue_position.filter(|_| wanted);
        }
        outcome
    });
}

#[test]
fn a_holder_that_still_waits_is_noticed() {
    assert_noticed(Promise::Order, |record, op, now, notify| {
        let (waiters, until) = queue(record);
        let outcome = apply(record, op, now, notify);
        if let (Op::Acquire { lease, .. }, Outcome::Granted { .. }) = (op, outcome) {
            let own = waiters.into_iter().filter(|waiter| waiter.lease == *lease);
            let (rest, _) = queue(record);
            record.queue = Queue::restored(own.chain(rest), until);
        }
        outcome
    });
}

#[test]
fn a_grant_for_too_long_is_noticed() {
    assert_noticed_only(&[Promise::Acceptance], |record, op, now, notify| {
        let longer = |grant: &mut Grant| grant.ttl = Ttl::MAX;
        apply_changed(record, op, now, notify, longer, |record, grant| {
            set_end(record, now.after(grant.ttl));
        })
    });
}

#[test]
fn a_grant_for_too_short_a_time_is_noticed() {
    assert_noticed_only(&[Promise::Acceptance], |record, op, now, notify| {
        let shorter = |grant: &mut Grant| {
            let less = Ttl::from_millis(grant.ttl.as_millis() - 1);
            grant.ttl = less.unwrap_or(grant.ttl);
        };
        apply_changed(record, op, now, notify, shorter, |record, grant| {
            set_end(record, now.after(grant.ttl));
        })
    });
}

#[test]
fn a_grant_that_lasts_longer_than_its_notice_is_noticed() {
    assert_noticed(Promise::Refusal, |record, op, now, notify| {
        let longer = |record: &mut Record, _: &Grant| set_end(record, now.after(Ttl::MAX));
        apply_changed(record, op, now, notify, |_| {}, longer)
    });
}

#[test]
fn a_grant_that_ends_before_its_notice_is_noticed() {
    assert_noticed(Promise::HoldCount, |record, op, now, notify| {
        let shorter = |record: &mut Record, _: &Grant| set_end(record, now);
        apply_changed(record, op, now, notify, |_| {}, shorter)
    });
}

#[test]
fn a_grant_with_the_token_of_the_last_one_is_noticed() {
    assert_noticed_only(&[Promise::TokenOrder], |record, op, now, notify| {
        let last = record.last_token;
        let again = |grant: &mut Grant| grant.first = last.unwrap_or(grant.first);
        apply_changed(record, op, now, notify, again, |_, _| {})
    });
}

#[test]
fn a_grant_with_fewer_tokens_than_requested_is_noticed() {
    assert_noticed(Promise::TokenOrder, |record, op, now, notify| {
        let one = |record: &mut Record, grant: &Grant| record.last_token = Some(grant.first);
        apply_changed(record, op, now, notify, |_| {}, one)
    });
}

#[test]
fn a_missing_notice_to_the_next_waiter_is_noticed() {
    assert_noticed_only(&[Promise::Wake], |record, op, now, notify| {
        apply(record, op, now, &mut |notice| {
            is_grant(notice) && notify(notice)
        })
    });
}

#[test]
fn a_wrong_ttl_for_the_next_waiter_is_noticed() {
    assert_noticed_only(&[Promise::Wake], |record, op, now, notify| {
        apply(record, op, now, &mut |notice| {
            let mut notice = *notice;
            if let Notice::Next { ttl, .. } = &mut notice {
                *ttl = Ttl::MAX;
            }
            notify(&notice)
        })
    });
}

#[test]
fn a_queue_that_expires_too_soon_is_noticed() {
    assert_noticed(Promise::Wake, |record, op, now, notify| {
        let outcome = apply(record, op, now, notify);
        let (waiters, until) = queue(record);
        let soon = StoreTime::from_micros(until.as_micros().saturating_sub(1_000_000));
        record.queue = Queue::restored(waiters, soon);
        outcome
    });
}

#[test]
fn a_queue_that_never_expires_is_noticed() {
    assert_noticed(Promise::Wake, |record, op, now, notify| {
        let (waiters, _) = queue(record);
        record.queue = Queue::restored(waiters, now.after(Ttl::MAX));
        apply(record, op, now, notify)
    });
}
