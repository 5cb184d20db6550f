//! The checker notices every mutation of the queue.

use leasehold_core::{Queue, Ttl, Waiter};

use super::*;

fn edit_queue(record: &mut Record, edit: impl FnOnce(&mut Vec<Waiter>)) {
    let mut waiters = record.queue.waiters().copied().collect();
    edit(&mut waiters);
    record.queue = Queue::restored(waiters, record.queue.until());
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
fn mutations_of_the_order_of_the_queue_are_noticed() {
    // A grant to the last instead of the first.
    assert_noticed(Promise::Order, |record, op, now, notify| {
        let before = record.clone();
        edit_queue(record, |waiters| waiters.reverse());
        let mut granted = false;
        let outcome = apply(record, op, now, &mut |notice| {
            granted |= is_grant(notice);
            notify(notice)
        });
        if granted {
            edit_queue(record, |waiters| waiters.reverse());
            return outcome;
        }
        *record = before;
        apply(record, op, now, notify)
    });
    // A request that overtakes waiters.
    assert_noticed(Promise::Order, |record, op, now, notify| {
        let Op::Acquire { lease, .. } = *op else {
            return apply(record, op, now, notify);
        };
        if record.holder(now).is_some() {
            return apply(record, op, now, notify);
        }
        let queue = std::mem::take(&mut record.queue);
        let outcome = apply(record, op, now, notify);
        record.queue = queue;
        edit_queue(record, |all| all.retain(|waiter| waiter.lease != lease));
        outcome
    });
    // A dead head that stays in the queue.
    assert_noticed(Promise::Order, |record, op, now, notify| {
        let queue = record.queue.clone();
        let mut dead = Vec::new();
        let outcome = apply(record, op, now, &mut |notice| {
            let reached = notify(notice);
            if !reached && is_grant(notice) {
                let mut waiters = queue.waiters();
                dead.extend(waiters.find(|waiter| waiter.lease == notice.lease()));
            }
            reached
        });
        let waiters = dead.into_iter().chain(record.queue.waiters());
        record.queue = Queue::restored(waiters.copied(), queue.until());
        outcome
    });
    // A waiter that loses its place by a repeated request.
    assert_noticed(Promise::Order, |record, op, now, notify| {
        if let Op::Acquire { lease, .. } = *op {
            edit_queue(record, |all| all.retain(|waiter| waiter.lease != lease));
        }
        apply(record, op, now, notify)
    });
    // A wrong queue position.
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
fn mutations_of_passing_on_are_noticed() {
    // A free lock that is not granted.
    assert_noticed(Promise::Wake, |record, op, now, notify| {
        if matches!(op, Op::Acquire { .. }) {
            return apply(record, op, now, notify);
        }
        let queue = std::mem::take(&mut record.queue);
        let outcome = apply(record, op, now, notify);
        record.queue = queue;
        outcome
    });
    // A dead head that is not passed over.
    assert_noticed(Promise::Wake, |record, op, now, notify| {
        let queue = record.queue.clone();
        let mut tried = 0;
        let outcome = apply(record, op, now, &mut |notice| {
            tried += usize::from(is_grant(notice));
            tried == 1 && notify(notice)
        });
        if tried > 1 && record.hold.is_none() {
            record.queue = queue;
        }
        outcome
    });
    // A grant without a notice.
    assert_noticed(Promise::Refusal, |record, op, now, notify| {
        apply(record, op, now, &mut |notice| {
            notify(notice);
            true
        })
    });
    // Two grants at once.
    assert_noticed(Promise::Exclusion, |record, op, now, notify| {
        let outcome = apply(record, op, now, notify);
        let held = record.hold;
        if matches!(op, Op::Release { rest: None, .. } | Op::Revoke) && held.is_some() {
            apply(record, &Op::Revoke, now, notify);
            record.hold = record.hold.or(held);
        }
        outcome
    });
    // A grant that is notified twice.
    assert_noticed_only(&[Promise::Exclusion], |record, op, now, notify| {
        apply(record, op, now, &mut |notice| {
            notify(notice) && (!is_grant(notice) || notify(notice))
        })
    });
    // A notified grant that is not stored.
    assert_noticed(Promise::HoldCount, |record, op, now, notify| {
        let undo = |record: &mut Record, _: &Grant| record.hold = None;
        apply_changed(record, op, now, notify, |_| {}, undo)
    });
}

#[test]
fn mutations_of_waiters_are_noticed() {
    // A holder that still waits.
    assert_noticed(Promise::Order, |record, op, now, notify| {
        let queue = record.queue.clone();
        let outcome = apply(record, op, now, notify);
        if let (Op::Acquire { lease, .. }, Outcome::Granted { .. }) = (op, outcome) {
            let own = queue.waiters().filter(|waiter| waiter.lease == *lease);
            let waiters = own.chain(record.queue.waiters()).copied();
            record.queue = Queue::restored(waiters, queue.until());
        }
        outcome
    });
    // A waiter that is kept after its release.
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
    // A queue for clients that do not wait.
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
    // A queue that expires too soon.
    assert_noticed(Promise::Wake, |record, op, now, notify| {
        let outcome = apply(record, op, now, notify);
        let soon = record.queue.until().as_micros().saturating_sub(1_000_000);
        let waiters = record.queue.waiters().copied();
        record.queue = Queue::restored(waiters, StoreTime::from_micros(soon));
        outcome
    });
    // A queue that never expires.
    assert_noticed(Promise::Wake, |record, op, now, notify| {
        let waiters = record.queue.waiters().copied();
        record.queue = Queue::restored(waiters, now.after(Ttl::MAX));
        apply(record, op, now, notify)
    });
}

#[test]
fn mutations_of_notified_grants_are_noticed() {
    // A grant for too long.
    assert_noticed_only(&[Promise::Acceptance], |record, op, now, notify| {
        let longer = |grant: &mut Grant| grant.ttl = Ttl::MAX;
        apply_changed(record, op, now, notify, longer, |record, grant| {
            set_end(record, now.after(grant.ttl));
        })
    });
    // A grant for too short a time.
    assert_noticed_only(&[Promise::Acceptance], |record, op, now, notify| {
        let shorter = |grant: &mut Grant| {
            let less = Ttl::from_millis(grant.ttl.as_millis() - 1);
            grant.ttl = less.unwrap_or(grant.ttl);
        };
        apply_changed(record, op, now, notify, shorter, |record, grant| {
            set_end(record, now.after(grant.ttl));
        })
    });
    // A grant that lasts longer than its notice.
    assert_noticed(Promise::Refusal, |record, op, now, notify| {
        let longer = |record: &mut Record, _: &Grant| set_end(record, now.after(Ttl::MAX));
        apply_changed(record, op, now, notify, |_| {}, longer)
    });
    // A grant that ends before its notice.
    assert_noticed(Promise::HoldCount, |record, op, now, notify| {
        let shorter = |record: &mut Record, _: &Grant| set_end(record, now);
        apply_changed(record, op, now, notify, |_| {}, shorter)
    });
    // A grant with the token of the last one.
    assert_noticed_only(&[Promise::TokenOrder], |record, op, now, notify| {
        let last = record.last_token;
        let again = |grant: &mut Grant| grant.first = last.unwrap_or(grant.first);
        apply_changed(record, op, now, notify, again, |_, _| {})
    });
    // A grant with fewer tokens than requested.
    assert_noticed(Promise::TokenOrder, |record, op, now, notify| {
        let one = |record: &mut Record, grant: &Grant| record.last_token = Some(grant.first);
        apply_changed(record, op, now, notify, |_| {}, one)
    });
    // A missing notice to the next waiter.
    assert_noticed_only(&[Promise::Wake], |record, op, now, notify| {
        apply(record, op, now, &mut |notice| {
            is_grant(notice) && notify(notice)
        })
    });
    // A wrong ttl for the next waiter.
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
