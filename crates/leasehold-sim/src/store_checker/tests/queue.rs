//! The checker notices every mutation of the queue.

use leasehold_core::Waiter;

use super::*;

/// The waiters in a record, and when its queue ends.
fn queue(record: &Rows) -> (Vec<Waiter>, StoreTime) {
    let waiters = record.waiters(&NEVER_ENDED).cloned();
    (waiters.collect(), record.head().queue.until)
}

fn set_queue(record: &mut Rows, waiters: Vec<Waiter>, until: StoreTime) {
    let len = waiters.len() as u32;
    if len > 0 && record.head().body == Body::Free {
        set_holder(record, None);
    }
    set_head(record, |head| {
        head.queue = QueueHead {
            len,
            next_place: head.queue.next_place.max(len.into()),
            until,
        };
    });
    let mut rows = vec![Change::Clear(Class::Waiters)];
    rows.extend((0..).zip(waiters).map(|(place, waiter)| {
        let part = Part::Waiter(waiter.lease);
        Change::Put(part, Row::Waiter(Waiter { place, ..waiter }))
    }));
    record.store(Changes { head: None, rows });
}

fn edit_queue(record: &mut Rows, edit: impl FnOnce(&mut Vec<Waiter>)) {
    let (mut waiters, until) = queue(record);
    edit(&mut waiters);
    set_queue(record, waiters, until);
}

fn remove_waiter(record: &mut Rows, lease: LeaseId) {
    edit_queue(record, |waiters| {
        waiters.retain(|waiter| waiter.lease != lease);
    });
}

/// The rule, as if nobody waited.
fn apply_without_queue(record: &mut Rows, call: &Call<'_>) -> Applied {
    let (waiters, until) = queue(record);
    set_queue(record, Vec::new(), StoreTime::default());
    let applied = call.apply(record);
    set_queue(record, waiters, until);
    applied
}

/// The rule with other grants: in their notices, in the record, or in both.
fn apply_with_grants(
    record: &mut Rows,
    call: &Call<'_>,
    change_notice: impl Fn(&mut Grant),
    change_record: impl Fn(&mut Rows, &Grant),
) -> Applied {
    let mut applied = call.apply(record);
    for notice in &mut applied.notices {
        if let Notice::Granted(grant) = notice {
            change_notice(grant);
            change_record(record, grant);
        }
    }
    applied
}

fn set_end(record: &mut Rows, end: StoreTime) {
    change_holder(record, |holder| holder.end = End::At(end));
}

#[test]
fn mutations_of_the_order_of_the_queue_are_noticed() {
    // A grant to the last instead of the first.
    assert_noticed(Promise::Order, |record, call| {
        let before = record.clone();
        edit_queue(record, |waiters| waiters.reverse());
        let applied = call.apply(record);
        if applied.notices.iter().any(is_grant) {
            edit_queue(record, |waiters| waiters.reverse());
            return applied;
        }
        *record = before;
        call.apply(record)
    });
    // A request that overtakes waiters.
    assert_noticed(Promise::Order, |record, call| match call.op {
        Op::Acquire(request) if call.holder(record).is_none() => {
            let applied = apply_without_queue(record, call);
            remove_waiter(record, request.lease);
            applied
        }
        _ => call.apply(record),
    });
    // A dead head that stays in the queue.
    assert_noticed(Promise::Order, |record, call| {
        let (before, until) = queue(record);
        let applied = call.apply(record);
        let (after, _) = queue(record);
        if applied.notices.iter().any(is_grant) {
            let dead = before
                .into_iter()
                .take_while(|waiter| !(call.reaches)(waiter.lease.client));
            let after = after.into_iter();
            let after = after.filter(|waiter| (call.reaches)(waiter.lease.client));
            set_queue(record, dead.chain(after).collect(), until);
        }
        applied
    });
    // A waiter that loses its place by a repeated request.
    assert_noticed(Promise::Order, |record, call| {
        if let Op::Acquire(request) = call.op {
            remove_waiter(record, request.lease);
        }
        call.apply(record)
    });
    // A wrong queue position.
    assert_noticed_only(&[Promise::Order], |record, call| {
        let mut applied = call.apply(record);
        if let Outcome::Refused {
            queue_position: Some(position),
            ..
        } = &mut applied.outcome
        {
            *position = position.saturating_sub(1);
        }
        applied
    });
}

#[test]
fn mutations_of_passing_on_are_noticed() {
    // A free lock that is not granted.
    assert_noticed(Promise::Wake, |record, call| match call.op {
        Op::Acquire(_) => call.apply(record),
        _ => apply_without_queue(record, call),
    });
    // A dead head that is not passed over.
    assert_noticed(Promise::Wake, |record, call| {
        let (waiters, until) = queue(record);
        let is_first_dead = Cell::new(None);
        let applied = record.apply(call.op, &call.environment, |client| {
            let is_dead = is_first_dead.get().unwrap_or(!(call.reaches)(client));
            is_first_dead.set(Some(is_dead));
            !is_dead && (call.reaches)(client)
        });
        if is_first_dead.get() == Some(true) && holder(record).is_none() {
            set_queue(record, waiters, until);
        }
        applied
    });
    // A grant without a notice.
    assert_noticed(Promise::Refusal, |record, call| {
        record.apply(call.op, &call.environment, |_| true)
    });
    // Two grants at once.
    assert_noticed(Promise::Exclusion, |record, call| {
        let mut applied = call.apply(record);
        let held = holder(record);
        if matches!(call.op, Op::Release { rest: None, .. } | Op::Revoke(_)) && held.is_some() {
            let again = call.apply_op(record, &Op::Revoke(Whom::All));
            applied
                .notices
                .extend(again.notices.into_iter().filter(is_grant));
            if holder(record).is_none() {
                set_holder(record, held);
            }
        }
        applied
    });
    // A grant that is notified twice.
    assert_noticed_only(&[Promise::Exclusion], |record, call| {
        let mut applied = call.apply(record);
        let grant = applied.notices.iter().position(is_grant);
        if let Some(grant) = grant {
            applied
                .notices
                .insert(grant, applied.notices[grant].clone());
        }
        applied
    });
    // A notified grant that is not stored.
    assert_noticed(Promise::HoldCount, |record, call| {
        let undo = |record: &mut Rows, _: &Grant| set_holder(record, None);
        apply_with_grants(record, call, |_| {}, undo)
    });
}

#[test]
fn mutations_of_waiters_are_noticed() {
    // A holder that still waits.
    assert_noticed(Promise::Order, |record, call| {
        let (before, until) = queue(record);
        let applied = call.apply(record);
        if let (Op::Acquire(request), Outcome::Granted { .. }) = (call.op, &applied.outcome) {
            let mut own = before.into_iter();
            let own = own.find(|waiter| waiter.lease == request.lease);
            let (after, _) = queue(record);
            set_queue(record, own.into_iter().chain(after).collect(), until);
        }
        applied
    });
    // A waiter that is kept after its release.
    assert_noticed_only(
        &[Promise::Order, Promise::Wake, Promise::Run],
        |record, call| {
            let ((waiters, until), held) = (queue(record), holder(record));
            let applied = call.apply(record);
            if matches!(applied.outcome, Outcome::Lost(_)) && holder(record) == held {
                set_queue(record, waiters, until);
            }
            applied
        },
    );
    // A queue for clients that do not wait.
    assert_noticed(Promise::Wake, |record, call| {
        let mut wanted = true;
        let mut applied = call.apply_changed(record, |op| {
            if let Op::Acquire(request) = op {
                wanted = std::mem::replace(&mut request.wait, true);
            }
        });
        if let Outcome::Refused { queue_position, .. } = &mut applied.outcome {
            *queue_position = queue_position.filter(|_| wanted);
        }
        applied
    });
    // A queue that expires too soon.
    assert_noticed(Promise::Wake, |record, call| {
        let applied = call.apply(record);
        let (waiters, until) = queue(record);
        set_queue(record, waiters, until.before_span(Duration::from_secs(1)));
        applied
    });
    // A queue that never expires.
    assert_noticed(Promise::Wake, |record, call| {
        let (waiters, _) = queue(record);
        set_queue(record, waiters, call.environment.now.after(Ttl::MAX));
        call.apply(record)
    });
}

#[test]
fn mutations_of_notified_grants_are_noticed() {
    // A grant for too long.
    assert_noticed_only(&[Promise::Acceptance], |record, call| {
        let longer = |grant: &mut Grant| grant.ttl = Ttl::MAX;
        apply_with_grants(record, call, longer, |record, grant| {
            set_end(record, call.environment.now.after(grant.ttl));
        })
    });
    // A grant for too short a time.
    assert_noticed_only(&[Promise::Acceptance], |record, call| {
        let shorter = |grant: &mut Grant| {
            let less = Ttl::from_millis(grant.ttl.as_millis() - 1);
            grant.ttl = less.unwrap_or(grant.ttl);
        };
        apply_with_grants(record, call, shorter, |record, grant| {
            set_end(record, call.environment.now.after(grant.ttl));
        })
    });
    // A grant that lasts longer than its notice.
    assert_noticed(Promise::Refusal, |record, call| {
        let longer =
            |record: &mut Rows, _: &Grant| set_end(record, call.environment.now.after(Ttl::MAX));
        apply_with_grants(record, call, |_| {}, longer)
    });
    // A grant that ends before its notice.
    assert_noticed(Promise::HoldCount, |record, call| {
        let shorter = |record: &mut Rows, _: &Grant| set_end(record, call.environment.now);
        apply_with_grants(record, call, |_| {}, shorter)
    });
    // A grant with the token of the last one.
    assert_noticed_only(&[Promise::TokenOrder], |record, call| {
        let last = record.head().counter;
        let again = |grant: &mut Grant| grant.first = last.unwrap_or(grant.first);
        apply_with_grants(record, call, again, |_, _| {})
    });
    // A grant with fewer tokens than requested.
    assert_noticed(Promise::TokenOrder, |record, call| {
        let one = |record: &mut Rows, grant: &Grant| {
            set_head(record, |head| head.counter = Some(grant.first));
        };
        apply_with_grants(record, call, |_| {}, one)
    });
    // A missing notice to the next waiter.
    assert_noticed_only(&[Promise::Wake], |record, call| {
        let mut applied = call.apply(record);
        let is_next = |notice: &Notice| matches!(notice, Notice::Next { .. });
        applied.notices.retain(|notice| !is_next(notice));
        applied
    });
    // A wrong ttl for the next waiter.
    assert_noticed_only(&[Promise::Wake], |record, call| {
        let mut applied = call.apply(record);
        for notice in &mut applied.notices {
            if let Notice::Next { ttl, .. } = notice {
                *ttl = Ttl::MAX;
            }
        }
        applied
    });
}
