//! The rule keeps every promise, and the checker notices every mutation of it.

use std::cell::Cell;
use std::time::Duration;

use leasehold_core::record::{
    Body, Change, Changes, Class, End, Head, LeaseKind, Leases, Note, Part, QueueHead, Row,
};
use leasehold_core::{Applied, Environment, Holder, Loss, Rows, Token};

use super::*;
use crate::history::{Histories, Shape, timed};

/// How many histories a mutation may survive. Most are noticed in the first three.
const HISTORIES_MAX: u64 = 200;

const TICK: Duration = Duration::from_micros(1);

/// Before the end of every lease and queue.
const NEVER_ENDED: Environment = Environment::at(StoreTime::from_micros(0));

type Rule = fn(&mut Call<'_>) -> Applied;

/// The waiters in a record, and when its queue ends.
type Waiters = (Vec<leasehold_core::Waiter>, StoreTime);

/// A request to a store, and the record that it may change.
struct Call<'a> {
    record: &'a mut Rows,
    op: Op,
    environment: Environment,
    reaches: &'a dyn Fn(ClientId) -> bool,
}

impl Call<'_> {
    fn apply(&mut self) -> Applied {
        self.record.apply(&self.op, &self.environment, self.reaches)
    }

    fn now(&self) -> StoreTime {
        self.environment.now
    }

    fn by(&mut self, rule: Rule) -> Applied {
        rule(self)
    }

    /// Changes the request or the record first.
    fn before(&mut self, change: impl FnOnce(&mut Self)) -> Applied {
        change(self);
        self.apply()
    }

    /// Changes what the rule did to a record.
    fn after(&mut self, change: impl FnOnce(&mut Self, &Rows, &mut Applied)) -> Applied {
        let before = self.record.clone();
        let mut applied = self.apply();
        change(self, &before, &mut applied);
        applied
    }

    fn reply(&mut self, change: impl FnOnce(&mut Outcome)) -> Applied {
        self.after(|_, _, applied| change(&mut applied.outcome))
    }

    fn notices(&mut self, change: impl FnOnce(&mut Vec<Notice>)) -> Applied {
        self.after(|_, _, applied| change(&mut applied.notices))
    }

    /// Changes grants in their notices, in the record, or in both.
    fn grants(&mut self, change: impl Fn(&mut Self, &mut Grant)) -> Applied {
        self.after(|it, _, applied| {
            for notice in &mut applied.notices {
                if let Notice::Granted(grant) = notice {
                    change(it, grant);
                }
            }
        })
    }

    /// As if nobody waited.
    fn apply_without_queue(&mut self) -> Applied {
        let waiters = queue(self.record);
        self.set_queue((Vec::new(), StoreTime::default()));
        let applied = self.apply();
        self.set_queue(waiters);
        applied
    }

    /// The holder in a record, unless its lease has ended.
    fn holder(&self, record: &Rows) -> Option<Holder> {
        record.holders(&self.environment).next().copied()
    }

    fn set_head(&mut self, change: impl FnOnce(&mut Head)) {
        let mut head = *self.record.head();
        change(&mut head);
        let (head, rows) = (Some(head), Vec::new());
        self.record.store(Changes { head, rows });
    }

    fn set_holder(&mut self, holder: Option<Holder>) {
        self.set_head(|head| {
            if let Body::Leases(_) | Body::Free = head.body {
                head.body = Body::Leases(Leases {
                    used: u64::from(holder.is_some()),
                    earliest: holder.map(|holder| holder.end),
                    sole: holder,
                    ..Leases::new(LeaseKind::Mutex, 1)
                });
            }
        });
    }

    fn change_holder(&mut self, change: impl FnOnce(&mut Holder)) {
        if let Some(mut holder) = named(self.record) {
            change(&mut holder);
            self.set_holder(Some(holder));
        }
    }

    fn set_end(&mut self, end: StoreTime) {
        self.change_holder(|holder| holder.end = End::At(end));
    }

    fn keep_until(&mut self, end: StoreTime) {
        self.change_holder(|holder| holder.end = holder.end.max(End::At(end)));
    }

    fn set_queue(&mut self, (waiters, until): Waiters) {
        let len = waiters.len() as u32;
        if len > 0 && self.record.head().body == Body::Free {
            self.set_holder(None);
        }
        self.set_head(|head| {
            let next_place = head.queue.next_place.max(len.into());
            head.queue = QueueHead {
                len,
                next_place,
                until,
            };
        });
        let mut rows = vec![Change::Clear(Class::Waiters)];
        for (place, mut waiter) in (0..).zip(waiters) {
            waiter.place = place;
            rows.push(Change::Put(Part::Waiter(waiter.lease), Row::Waiter(waiter)));
        }
        self.record.store(Changes { head: None, rows });
    }

    fn edit_queue(&mut self, edit: impl FnOnce(&mut Waiters)) {
        let mut waiters = queue(self.record);
        edit(&mut waiters);
        self.set_queue(waiters);
    }

    fn remove_waiter(&mut self, lease: LeaseId) {
        self.edit_queue(|(waiters, _)| waiters.retain(|waiter| waiter.lease != lease));
    }
}

/// The holder that a record names. Its lease may have ended.
fn named(record: &Rows) -> Option<Holder> {
    record.holders(&NEVER_ENDED).next().copied()
}

fn is_reserved(holder: Option<Holder>) -> bool {
    holder.is_some_and(|holder| holder.is_reserved)
}

fn queue(record: &Rows) -> Waiters {
    let waiters = record.waiters(&NEVER_ENDED).cloned();
    (waiters.collect(), record.head().queue.until)
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
    let mut names = vec![(Rows::default(), StoreChecker::default()); histories.names];
    let mut counts = Counts::default();
    let mut now: u64 = 1_700_000_000_000_000;
    for round in &histories.rounds {
        now = now.saturating_add_signed(round.step_ms * 1_000);
        let now = StoreTime::from_micros(now);
        for (name, op) in round.batches.iter().flatten() {
            let (record, checker) = &mut names[*name];
            let op = &timed(op, now);
            let mut call = Call {
                record,
                op: op.clone(),
                environment: Environment::at(now),
                reaches: &counted,
            };
            let mut applied = rule(&mut call);
            let holder = call.holder(call.record);
            let notices = &mut applied.notices;
            notices.retain(|notice| reaches(notice.lease().client));
            for notice in &*notices {
                counts[match notice {
                    Notice::Granted(_) => 0,
                    Notice::Complete { .. } => 1,
                    _ => 2,
                }] += 1;
            }
            let nth = match &applied.outcome {
                Outcome::Refused { queue_position, .. } if *queue_position > Some(0) => Some(4),
                Outcome::Stored => Some(5),
                Outcome::Complete(_) => Some(6),
                Outcome::Granted { run: Some(run), .. } => run.last.as_ref().map(|_| 7),
                Outcome::Arrived(_) => Some(8),
                _ => None,
            };
            nth.into_iter().for_each(|nth: usize| counts[nth] += 1);
            checker.observe(op, &applied.outcome, notices, now, reaches)?;
            let holder = holder.map(|it| (it.lease, it.count.get(), it.is_reserved));
            checker.inspect(holder, now)?;
        }
    }
    counts[3] = passed_over.get();
    Ok(counts)
}

const fn is_grant(notice: &Notice) -> bool {
    matches!(notice, Notice::Granted(_))
}

/// The promises that a mutation violates.
fn violated(rule: Rule) -> BTreeSet<Promise> {
    let played = (0..HISTORIES_MAX).map(|seed| play(seed, Shape::RunningBack, rule));
    let violations = played.filter_map(Result::err);
    violations.map(|violation| violation.promise).collect()
}

/// Asserts that a mutation violates this promise.
fn at_least(promises: [Promise; 1], what: &str, rule: Rule) {
    let violated = violated(rule);
    assert!(violated.contains(&promises[0]), "{what}: {violated:?}");
}

/// Asserts that a mutation violates these promises and no others.
fn only<const N: usize>(promises: [Promise; N], what: &str, rule: Rule) {
    assert_eq!(violated(rule), BTreeSet::from(promises), "{what}");
}

#[test]
fn the_rule_keeps_every_promise() {
    for shape in [Shape::Standing, Shape::Running, Shape::RunningBack] {
        let mut total = Counts::default();
        for seed in 0..1_000 {
            let history = || Histories::random(seed, shape, 4);
            let counts = play(seed, shape, |it| it.apply())
                .unwrap_or_else(|violation| panic!("{violation}\n{}", history()));
            for (total, count) in total.iter_mut().zip(counts) {
                *total += count;
            }
        }
        let is_often = |count: &u64| *count > 90;
        assert!(total.iter().all(is_often), "{shape:?}: {total:?}");
    }
}

#[test]
fn an_operation_that_is_sent_twice_has_the_effect_and_the_reply_of_one() {
    for seed in 0..300 {
        let played = play(seed, Shape::RunningBack, |it| {
            let applied = it.apply();
            // It would revoke the lease that it let in.
            if matches!(it.op, Op::Revoke(_)) {
                return applied;
            }
            let mut twice = it.record.clone();
            let repeated = twice.apply(&it.op, &it.environment, it.reaches);
            match it.op {
                Op::Remove(_) => assert_ne!(repeated.outcome, Outcome::Removed(true)),
                // The lease no longer holds the lock.
                Op::Release { note: None, .. } if applied.outcome == Outcome::Released => {
                    assert!(matches!(repeated.outcome, Outcome::Lost(_)));
                }
                _ => assert_eq!(repeated.outcome, applied.outcome),
            }
            // No waiter is left to notify.
            assert_eq!(repeated.notices, []);
            assert_eq!(twice, *it.record);
            applied
        });
        played.unwrap();
    }
}

/// Tests of mutations, each with the promises that it violates: at least this one, or only these.
macro_rules! mutations {
    ($($test:ident {
        $($noticed:ident($($promise:ident),+) $what:literal: $how:ident $change:expr;)+
    })+) => {
        $(
            #[test]
            fn $test() {
                $($noticed([$(Promise::$promise),+], $what, |it| it.$how($change));)+
            }
        )+
    };
}

mutations! {
    mutations_of_holds_are_noticed {
        at_least(Exclusion) "a grant while another holds": before |it| {
            if matches!(it.op, Op::Acquire(_)) { it.set_holder(None); }
        };
        at_least(Exclusion) "a release by another lease": before |it| {
            if let (Op::Release { lease, .. }, Some(holder)) = (&mut it.op, named(it.record)) { *lease = holder.lease; }
        };
        at_least(Exclusion) "an expired lease that is renewed": before |it| {
            if let Op::Renew { .. } = it.op { it.keep_until(it.now().after_span(TICK)); }
        };
        at_least(Exclusion) "a late request that shortens a lease": after |it, _, applied| {
            if let (Outcome::Granted { .. } | Outcome::Kept, Some(ttl)) = (&applied.outcome, it.op.ttl()) {
                it.set_end(it.now().after(ttl));
            }
        };
        only(HoldCount) "a count that is not set": before |it| {
            if let Op::Renew { count, .. } = &mut it.op { *count = None; }
        };
    }
    mutations_of_minimum_holds_are_noticed {
        at_least(HoldCount) "a release that frees the lock before the end": before |it| {
            if let Op::Release { rest, .. } = &mut it.op { *rest = None; }
        };
        at_least(Exclusion) "an acquisition that ends it": before |it| {
            if matches!(it.op, Op::Acquire(_)) && is_reserved(named(it.record)) { it.set_holder(None); }
        };
        at_least(Refusal) "a renewal that lengthens it": before |it| {
            if let Op::Renew { ttl, .. } = it.op && is_reserved(it.holder(it.record)) {
                it.keep_until(it.now().after(ttl));
            }
        };
        at_least(HoldCount) "a lease that goes on holding": after |it, _, _| {
            it.change_holder(|holder| holder.is_reserved = false);
        };
        at_least(Refusal) "a lease that is longer than its minimum hold, and lasts to its end":
            after |it, before, applied| {
                if let (Op::Release { rest: Some(_), .. }, Outcome::Released, Some(before)) =
                    (&it.op, &applied.outcome, it.holder(before))
                {
                    it.change_holder(|holder| holder.end = holder.end.max(before.end));
                }
            };
        at_least(Order) "a late request that waits for its own end": by |it| {
            let (Op::Acquire(request), Some(own)) = (&it.op, named(it.record)) else { return it.apply() };
            if request.lease != own.lease || !own.is_reserved { return it.apply(); }
            it.change_holder(|holder| holder.lease.number = 0);
            let applied = it.apply();
            if is_reserved(named(it.record)) { it.change_holder(|holder| holder.lease = own.lease); }
            applied
        };
        only(Wake) "waiters that are not notified": after |it, _, applied| {
            if let Op::Release { rest: Some(_), .. } = it.op { applied.notices.clear(); }
        };
    }
    mutations_of_tokens_are_noticed {
        only(TokenOrder) "tokens of the clock alone": before |it| {
            if it.holder(it.record).is_none() { it.set_head(|head| head.counter = None); }
        };
        only(TokenOrder) "blocks of tokens that overlap": after |it, _, applied| {
            if let Outcome::Granted { first, .. } = applied.outcome { it.set_head(|head| head.counter = Some(first)); }
        };
        at_least(TokenOrder) "a new token for the same grant": after |it, _, applied| {
            if let (Outcome::Granted { first, .. }, Some(last)) = (&mut applied.outcome, it.record.head().counter) {
                *first = Token::new(last.get() + 1).unwrap();
            }
        };
    }
    mutations_of_replies_are_noticed {
        only(Refusal) "a refusal of a free lock": after |it, before, applied| {
            let has_ended = named(before).is_some() && it.holder(before).is_none();
            if matches!(it.op, Op::Acquire(_)) && has_ended {
                *it.record = before.clone();
                applied.notices.clear();
                applied.outcome = Outcome::Refused { time_left: Some(Duration::ZERO), queue_position: None };
            }
        };
        only(Refusal) "a wrong time left": reply |reply| {
            if let Outcome::Refused { time_left: Some(left), .. } = reply { *left += Duration::from_millis(5); }
        };
        at_least(Loss) "a loss of a held lease": reply |reply| {
            if *reply == Outcome::Kept { *reply = Outcome::Lost(Loss::Free); }
        };
        only(Reply) "a reply to another request": reply |reply| {
            if *reply == Outcome::Kept { *reply = Outcome::Released; }
        };
    }
    mutations_of_notes_and_latches_are_noticed {
        at_least(Exclusion) "a note of a lease that does not hold": before |it| {
            if let (Op::WriteNote { lease, .. }, Some(holder)) = (&mut it.op, named(it.record)) { *lease = holder.lease; }
        };
        at_least(Run) "the completion record is written whatever the holder": after |it, _, applied| {
            let Op::Release { lease, note: Some(new), .. } = &it.op else { return };
            if let Outcome::Lost(_) = applied.outcome {
                let (lease, token, number, text) = (*lease, new.token, new.number, new.text.clone());
                let note = Note { lease, token, number, text, until: it.now().after_span(new.keep) };
                let rows = vec![Change::Put(Part::Note(new.slot.clone()), Row::Note(note))];
                it.record.store(Changes { head: None, rows });
            }
        };
        only(Kind) "an arrival that takes a lock": by |it| match it.op {
            Op::Arrive { .. } => Rows::default().apply(&it.op, &it.environment, it.reaches),
            _ => it.apply(),
        };
        at_least(Arrivals) "each arrival counts a number down": before |it| {
            let arrived = it.record.latch(&it.environment).map_or(0, |latch| latch.arrived);
            if let Op::Arrive { id, .. } = &mut it.op { *id = ArrivalId::parse(&arrived.to_string()).unwrap(); }
        };
    }
    mutations_of_the_order_of_the_queue_are_noticed {
        at_least(Order) "a grant to the last instead of the first": by |it| {
            let before = it.record.clone();
            it.edit_queue(|(waiters, _)| waiters.reverse());
            let applied = it.apply();
            if applied.notices.iter().any(is_grant) {
                it.edit_queue(|(waiters, _)| waiters.reverse());
                return applied;
            }
            *it.record = before;
            it.apply()
        };
        at_least(Order) "a request that overtakes waiters": by |it| match it.op.clone() {
            Op::Acquire(request) if it.holder(it.record).is_none() => {
                let applied = it.apply_without_queue();
                it.remove_waiter(request.lease);
                applied
            }
            _ => it.apply(),
        };
        at_least(Order) "a dead head that stays in the queue": after |it, before, applied| {
            if applied.notices.iter().any(is_grant) {
                let reaches = |waiter: &leasehold_core::Waiter| (it.reaches)(waiter.lease.client);
                let (mut waiters, until) = queue(before);
                let living = waiters.iter().position(reaches);
                waiters.truncate(living.unwrap_or(waiters.len()));
                waiters.extend(queue(it.record).0.into_iter().filter(reaches));
                it.set_queue((waiters, until));
            }
        };
        at_least(Order) "a waiter that loses its place by a repeated request": before |it| {
            if let Op::Acquire(request) = &it.op { it.remove_waiter(request.lease); }
        };
        only(Order) "a wrong queue position": reply |reply| {
            if let Outcome::Refused { queue_position: Some(position), .. } = reply {
                *position = position.saturating_sub(1);
            }
        };
    }
    mutations_of_passing_on_are_noticed {
        at_least(Wake) "a free lock that is not granted": by |it| match it.op {
            Op::Acquire(_) => it.apply(),
            _ => it.apply_without_queue(),
        };
        at_least(Wake) "a dead head that is not passed over": by |it| {
            let waiters = queue(it.record);
            let is_first_dead = Cell::new(None);
            let applied = it.record.apply(&it.op, &it.environment, |client| {
                let is_dead = is_first_dead.get().unwrap_or(!(it.reaches)(client));
                is_first_dead.set(Some(is_dead));
                !is_dead && (it.reaches)(client)
            });
            if is_first_dead.get() == Some(true) && named(it.record).is_none() { it.set_queue(waiters); }
            applied
        };
        at_least(Refusal) "a grant without a notice": by |it| it.record.apply(&it.op, &it.environment, |_| true);
        at_least(Exclusion) "two grants at once": after |it, _, applied| {
            let held = named(it.record);
            if matches!(it.op, Op::Release { rest: None, .. } | Op::Revoke(_)) && held.is_some() {
                let again = it.record.apply(&Op::Revoke(Whom::All), &it.environment, it.reaches);
                applied.notices.extend(again.notices.into_iter().filter(is_grant));
                if named(it.record).is_none() { it.set_holder(held); }
            }
        };
        only(Exclusion) "a grant that is notified twice": notices |notices| {
            let grant = notices.iter().position(is_grant);
            if let Some(grant) = grant { notices.insert(grant, notices[grant].clone()); }
        };
        at_least(HoldCount) "a notified grant that is not stored": grants |it, _| it.set_holder(None);
    }
    mutations_of_waiters_are_noticed {
        at_least(Order) "a holder that still waits": after |it, before, applied| {
            if let (Op::Acquire(request), Outcome::Granted { .. }) = (&it.op, &applied.outcome) {
                let (mut waiters, until) = queue(before);
                waiters.retain(|waiter| waiter.lease == request.lease);
                waiters.extend(queue(it.record).0);
                it.set_queue((waiters, until));
            }
        };
        only(Order, Wake, Run, Kind) "a waiter that is kept after its release": after |it, before, applied| {
            if matches!(applied.outcome, Outcome::Lost(_)) && named(it.record) == named(before) {
                it.set_queue(queue(before));
            }
        };
        at_least(Wake) "a queue for clients that do not wait": by |it| {
            let mut wanted = true;
            if let Op::Acquire(request) = &mut it.op { wanted = std::mem::replace(&mut request.wait, true); }
            it.reply(|reply| {
                if let Outcome::Refused { queue_position, .. } = reply {
                    *queue_position = queue_position.filter(|_| wanted);
                }
            })
        };
        at_least(Wake) "a queue that expires too soon": after |it, _, _| {
            it.edit_queue(|(_, until)| *until = until.before_span(Duration::from_secs(1)));
        };
        at_least(Wake) "a queue that never expires": before |it| {
            let end = it.now().after(Ttl::MAX);
            it.edit_queue(|(_, until)| *until = end);
        };
    }
    mutations_of_notified_grants_are_noticed {
        only(Acceptance) "a grant for too long": grants |it, grant| {
            grant.ttl = Ttl::MAX;
            it.set_end(it.now().after(grant.ttl));
        };
        at_least(Refusal) "a grant that lasts longer than its notice":
            grants |it, _| it.set_end(it.now().after(Ttl::MAX));
        at_least(HoldCount) "a grant that ends before its notice": grants |it, _| it.set_end(it.now());
        only(TokenOrder) "a grant with the token of the last one": by |it| {
            let last = it.record.head().counter;
            it.grants(|_, grant| grant.first = last.unwrap_or(grant.first))
        };
        at_least(TokenOrder) "a grant with fewer tokens than requested":
            grants |it, grant| it.set_head(|head| head.counter = Some(grant.first));
        only(Wake) "a missing notice to the next waiter":
            notices |notices| notices.retain(|notice| !matches!(notice, Notice::Next { .. }));
        only(Wake) "a wrong ttl for the next waiter": notices |notices| for notice in notices {
            if let Notice::Next { ttl, .. } = notice { *ttl = Ttl::MAX; }
        };
    }
}
