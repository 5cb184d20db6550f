//! The rule of a record equals the rules of mutexes, annotations and latches.
//!
//! [`Reference`] holds those, and says their results in the words of the record. It also has all differences that are
//! intended:
//!
//! * A minimum hold is a mark on the row of its lease. Before, the record named the lease 0 of its client.
//! * A late request of a lease in its minimum hold is refused, and does not wait.
//! * A waiter that is dropped takes no tokens.
//! * A name with waiters is a lock even without a holder: a latch cannot take it.
//! * A note whose lease holds no more ends its waiting and serves the queue, as a renewal does.
//! * Of two notes of one lease in one slot, the one with the smaller number does not replace the other.
//! * A release whose note is stored may be repeated.
//! * One lease can be revoked.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::annotation::{self, Annotation};
use crate::latch::{self, Arrival, ArrivalId, LatchCount, LatchRecord, LatchRefusal};
use crate::lock_event::REVOCATION_RETENTION;
use crate::mutex;
use crate::token::{self, Token};

const HISTORIES: u64 = 100_000;
const OPERATIONS: usize = 30;
const LOCK: Outcome = Outcome::Mismatch(Mismatch::Kind(Kind::Leases(LeaseKind::Mutex)));
const LATCH: Outcome = Outcome::Mismatch(Mismatch::Kind(Kind::Latch));

/// The rules of a name before it had one record.
#[derive(Default)]
struct Reference {
    lock: mutex::Record,
    /// The lease in its minimum hold, if the lock is held by lease 0.
    reserved: Option<LeaseId>,
    notes: BTreeMap<Slot, (Annotation, u64, StoreTime)>,
    latch: Option<LatchRecord>,
    revoked: Option<(LeaseId, StoreTime)>,
    /// The first tokens that were granted last, by their leases.
    firsts: BTreeMap<LeaseId, Token>,
}

/// What the rule is to return.
struct Expected {
    outcome: Outcome,
    notices: Vec<Notice>,
}

impl From<Outcome> for Expected {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            notices: Vec::new(),
        }
    }
}

impl Reference {
    fn apply(&mut self, op: &Op, world: &World) -> Expected {
        let is_latch = self
            .latch
            .as_ref()
            .is_some_and(|latch| latch.is_kept(world.now));
        let is_lock = self.lock.holder(world.now).is_some() || self.waits(world.now);
        match op {
            Op::Arrive { .. } | Op::Remove(Removal::Latch) if is_lock => LOCK.into(),
            Op::Arrive { id, count, keep } => self.arrive(id, *count, *keep, world.now).into(),
            Op::Remove(Removal::Latch) => {
                let removed = latch::reset(&self.lock, &mut self.latch, world.now);
                Outcome::Removed(removed.unwrap()).into()
            }
            Op::Remove(Removal::Note(slot)) => {
                let note = self.notes.remove(slot);
                Outcome::Removed(note.is_some_and(|(_, _, until)| world.now < until)).into()
            }
            _ if is_latch => LATCH.into(),
            Op::Acquire(request) => self.acquire(request, world),
            Op::Renew { lease, ttl, count } => {
                let (lease, ttl, count) = (*lease, *ttl, *count);
                let op = mutex::Op::Renew { lease, ttl, count };
                self.lock(&op, world)
            }
            Op::Release { lease, rest, note } => self.release(*lease, *rest, note.as_ref(), world),
            Op::WriteNote { lease, note } => match self.annotate(*lease, note, world.now) {
                Some(outcome) => outcome.into(),
                None => self.renew(*lease, world),
            },
            Op::SetToken {
                lease,
                first,
                tokens,
            } => {
                let op = mutex::Op::SetToken {
                    lease: *lease,
                    first: *first,
                    tokens: *tokens,
                };
                let expected = self.lock(&op, world);
                if expected.outcome == Outcome::Stored {
                    self.firsts.insert(*lease, *first);
                }
                expected
            }
            Op::Revoke(whom) => self.revoke(*whom, world),
        }
    }

    fn acquire(&mut self, request: &Acquire, world: &World) -> Expected {
        let hold = self.lock.holder(world.now);
        let reserved = hold.filter(|hold| hold.lease.is_min_hold());
        let is_reserved = reserved.is_some_and(|hold| self.name(hold.lease) == request.lease);
        let op = mutex::Op::Acquire {
            lease: request.lease,
            count: request.count,
            ttl: request.ttl,
            tokens: request.tokens,
            proposal: request.proposal,
            wait: request.wait && !is_reserved,
        };
        self.lock(&op, world)
    }

    fn release(
        &mut self,
        lease: LeaseId,
        rest: Option<Ttl>,
        note: Option<&NewNote>,
        world: &World,
    ) -> Expected {
        let mut was_written = false;
        if let Some(note) = note {
            let is_held = self.annotate(lease, note, world.now).is_some();
            was_written =
                !is_held && self.stored_number(lease, &note.slot, world.now) >= Some(note.number);
        }
        let mut expected = self.lock(&mutex::Op::Release { lease, rest }, world);
        if expected.outcome == Outcome::Released && rest.is_some() {
            self.reserved = Some(lease);
        }
        if was_written {
            expected.outcome = Outcome::Released;
        }
        expected
    }

    fn revoke(&mut self, whom: Whom, world: &World) -> Expected {
        let held = self
            .lock
            .holder(world.now)
            .map(|hold| self.name(hold.lease));
        match whom {
            Whom::One(lease) if held != Some(lease) => {
                let mut expected = self.renew(self::lease(u64::MAX), world);
                expected.outcome = Outcome::Revoked(Vec::new());
                expected
            }
            _ => {
                let until = world.now.after_span(REVOCATION_RETENTION);
                self.revoked = held.map(|lease| (lease, until)).or(self.revoked);
                self.lock(&mutex::Op::Revoke, world)
            }
        }
    }

    fn renew(&mut self, lease: LeaseId, world: &World) -> Expected {
        let (ttl, count) = (Ttl::MAX, None);
        self.lock(&mutex::Op::Renew { lease, ttl, count }, world)
    }

    /// Applies an operation to the lock, which grants it once at most.
    fn lock(&mut self, op: &mutex::Op, world: &World) -> Expected {
        let before = self.lock.last_token;
        let (mut notices, mut has_dropped) = (Vec::new(), false);
        let (mut granted, mut proposal) = (None, Token::at(world.now));
        let reserved = self.reserved;
        let outcome = mutex::apply(&mut self.lock, op, world.now, |notice| {
            let lease = notice.lease();
            let is_alive = world.is_alive(lease.client);
            match *notice {
                mutex::Notice::Granted(_) if !is_alive => has_dropped = true,
                mutex::Notice::Granted(grant) => granted = Some((lease, grant.first)),
                _ => {}
            }
            if is_alive || matches!(notice, mutex::Notice::Revoked { .. }) {
                notices.push(translated(notice, reserved));
            }
            is_alive
        });
        if let (mutex::Op::Acquire { lease, .. }, mutex::Outcome::Granted { first }) = (op, outcome)
        {
            granted = Some((*lease, first));
            proposal = proposal.max(op.proposal());
        }
        if has_dropped {
            self.lock.last_token = before;
        }
        if let Some((lease, first)) = &mut granted {
            if has_dropped {
                *first = token::next_block(before, proposal.unwrap(), tokens_of(*lease)).unwrap();
                self.lock.last_token = token::block_last(*first, tokens_of(*lease));
            }
            self.firsts.insert(*lease, *first);
        }
        let first = granted.map(|(_, first)| first);
        for notice in &mut notices {
            if let Notice::Granted(grant) = notice {
                grant.first = first.unwrap();
            }
        }
        let outcome = self.translated(outcome, first);
        Expected { outcome, notices }
    }

    fn translated(&self, outcome: mutex::Outcome, first: Option<Token>) -> Outcome {
        match outcome {
            mutex::Outcome::Granted { .. } => Outcome::Granted {
                first: first.unwrap(),
                run: None,
            },
            mutex::Outcome::Refused {
                time_left,
                queue_position,
            } => Outcome::Refused {
                time_left: Some(time_left),
                queue_position,
            },
            mutex::Outcome::Released => Outcome::Released,
            mutex::Outcome::Kept => Outcome::Kept,
            mutex::Outcome::Lost(loss) => Outcome::Lost(loss),
            mutex::Outcome::Stored => Outcome::Stored,
            mutex::Outcome::Outdated => Outcome::Outdated,
            mutex::Outcome::Exhausted => Outcome::Exhausted,
            mutex::Outcome::Revoked { lease } => {
                let lease = lease.map(|lease| self.name(lease));
                Outcome::Revoked(lease.into_iter().collect())
            }
        }
    }

    /// `None`: the lease does not hold the lock.
    fn annotate(&mut self, lease: LeaseId, note: &NewNote, now: StoreTime) -> Option<Outcome> {
        let annotation = Annotation {
            lease,
            token: self.firsts.get(&lease).copied().unwrap_or(Token::MAX),
            text: note.text.clone(),
        };
        let mut stored = None;
        annotation::annotate(&self.lock, &mut stored, annotation, now).ok()?;
        if self.stored_number(lease, &note.slot, now) > Some(note.number) {
            return Some(Outcome::Outdated);
        }
        let stored = stored.map(|stored| (stored, note.number, now.after_span(note.keep)));
        self.notes.insert(note.slot.clone(), stored.unwrap());
        Some(Outcome::Stored)
    }

    /// The number of the note that a lease has stored in a slot.
    fn stored_number(&self, lease: LeaseId, slot: &Slot, now: StoreTime) -> Option<u64> {
        let (annotation, number, until) = self.notes.get(slot)?;
        (annotation.lease == lease && now < *until).then_some(*number)
    }

    fn arrive(
        &mut self,
        id: &ArrivalId,
        count: LatchCount,
        ttl: Duration,
        now: StoreTime,
    ) -> Outcome {
        let id = id.clone();
        let arrival = Arrival { id, count, ttl };
        match latch::arrive(&self.lock, &mut self.latch, &arrival, now) {
            Ok(status) => Outcome::Arrived(status),
            Err(LatchRefusal::Lock) => LOCK,
            Err(LatchRefusal::Count { stored, requested }) => {
                Outcome::Mismatch(Mismatch::Count { stored, requested })
            }
        }
    }

    fn waits(&self, now: StoreTime) -> bool {
        now < self.lock.queue.until() && !self.lock.queue.is_empty()
    }

    /// The lease of a holder, also in its minimum hold.
    fn name(&self, lease: LeaseId) -> LeaseId {
        named(lease, self.reserved)
    }

    /// What readers see of the lock, the notes and the latch.
    fn visible(&self, now: StoreTime) -> impl PartialEq + use<> {
        let queue = self.lock.queue.waiters();
        let waiters = if self.waits(now) { queue.len() } else { 0 };
        let holder = self.lock.holder(now).map(|hold| hold.lease);
        let notes = self.notes.values().filter(|(_, _, until)| now < *until);
        let notes: Vec<_> = notes.map(|(note, ..)| note.clone()).collect();
        let latch = self.latch.as_ref().filter(|latch| latch.is_kept(now));
        (holder, waiters, notes, latch.map(LatchRecord::status))
    }

    /// Compares all that readers can see.
    fn compare(&self, world: &World) {
        let (now, environment) = (world.now, world.environment());
        let hold = self.lock.holder(now).map(|hold| {
            let end = End::At(hold.expires_at);
            (
                self.name(hold.lease),
                hold.lease.is_min_hold(),
                hold.count,
                end,
            )
        });
        let holders = world.holders();
        let holders = holders.iter().map(|holder| {
            assert_eq!(holder.weight, 1);
            (holder.lease, holder.is_reserved, holder.count, holder.end)
        });
        assert_eq!(
            holders.collect::<Vec<_>>(),
            hold.into_iter().collect::<Vec<_>>()
        );
        assert_eq!(world.rows.head().counter, self.lock.last_token);

        let waits = self.waits(now);
        let expected = self.lock.queue.waiters().filter(|_| waits);
        let expected = expected.map(|waiter| (waiter.lease, waiter.ttl, waiter.tokens));
        let waiters = world.waiters();
        let waiters = waiters
            .iter()
            .map(|waiter| (waiter.lease, waiter.ttl, waiter.tokens));
        assert!(waiters.eq(expected));
        if waits {
            assert_eq!(world.rows.head().queue.until, self.lock.queue.until());
        }

        for slot in slots() {
            let note = world.rows.note(&slot, &environment);
            let expected = self.notes.get(&slot).filter(|(_, _, until)| now < *until);
            let note =
                note.map(|note| (note.lease, note.token, &note.text, note.number, note.until));
            let expected = expected
                .map(|(note, number, until)| (note.lease, note.token, &note.text, *number, *until));
            assert_eq!(note, expected);
        }

        let latch = match world.rows.head().body {
            Body::Latch(latch) if now < latch.until => Some((latch.status(), latch.until)),
            _ => None,
        };
        let expected = self.latch.as_ref().filter(|latch| latch.is_kept(now));
        assert_eq!(
            latch,
            expected.map(|latch| (latch.status(), latch.expires_at))
        );

        let is_recent = |(_, until): &(LeaseId, StoreTime)| now < *until;
        let revoked = world.rows.head().revoked.filter(is_recent);
        assert_eq!(revoked, self.revoked.filter(is_recent));
    }
}

fn named(lease: LeaseId, reserved: Option<LeaseId>) -> LeaseId {
    match lease.is_min_hold() {
        true => reserved.unwrap(),
        false => lease,
    }
}

fn translated(notice: &mutex::Notice, reserved: Option<LeaseId>) -> Notice {
    match *notice {
        mutex::Notice::Granted(grant) => Notice::Granted(Grant {
            lease: grant.lease,
            ttl: grant.ttl,
            first: grant.first,
            now: grant.now,
            run: None,
        }),
        mutex::Notice::Next { lease, ttl } => Notice::Next { lease, ttl },
        mutex::Notice::Revoked { lease } => Notice::Revoked {
            lease: named(lease, reserved),
        },
    }
}

fn slots() -> [Slot; 4] {
    let [a, b] = ["a", "b"].map(|text| Slot::Key(key(text)));
    [Slot::Value, Slot::Period, a, b]
}

/// The operations of a history.
struct Generator {
    random: Random,
    /// Whether there are few tokens left. Then all clients are alive, because a dead one took tokens before.
    is_near_the_end: bool,
}

impl Generator {
    fn op(&mut self, world: &World) -> Op {
        let random = &mut self.random;
        let mut lease = lease(1 + random.below(8));
        if random.below(3) > 0
            && let Some(holder) = world.holders().first()
        {
            lease = holder.lease;
        }
        let ttl = match random.one_in(16) {
            // Longer than the grant of a waiter.
            true => millis(4_000),
            false => millis(1 + random.below(20)),
        };
        match random.below(32) {
            0..12 => Op::Acquire(Acquire {
                count: number(1 + random.small(3)),
                proposal: random.one_in(8).then(|| self.token(lease, world)),
                ..acquire(
                    lease,
                    Claim::Mutex,
                    ttl.as_millis(),
                    self.random.below(4) > 0,
                )
            }),
            12..16 => Op::Renew {
                lease,
                ttl,
                count: NonZeroU32::new(random.small(4)),
            },
            16..22 => {
                let rest = random.one_in(3).then_some(ttl);
                let note = random.one_in(3).then(|| self.note());
                Op::Release { lease, rest, note }
            }
            22..25 => {
                let note = self.note();
                Op::WriteNote { lease, note }
            }
            25 => Op::SetToken {
                lease,
                first: self.token(lease, world),
                tokens: tokens_of(lease),
            },
            26 if random.one_in(2) => Op::Revoke(Whom::One(lease)),
            26 => Op::Revoke(Whom::All),
            27..30 => Op::Arrive {
                id: ArrivalId::parse(random.pick(&["a", "b", "c"])).unwrap(),
                count: LatchCount::new(random.pick(&[2, 2, 2, 3])).unwrap(),
                keep: Duration::from_micros(random.below(10_000)),
            },
            30 => Op::Remove(Removal::Latch),
            _ => Op::Remove(Removal::Note(slots()[random.below(4) as usize].clone())),
        }
    }

    fn token(&mut self, lease: LeaseId, world: &World) -> Token {
        // The last block leaves none. Otherwise a request for few tokens would have overtaken a waiter for more.
        let last = token::block_first(Token::MAX, tokens_of(lease)).unwrap();
        if self.is_near_the_end && self.random.one_in(2) {
            return last;
        }
        let near = world.rows.head().counter.map_or(START, Token::get);
        let distance = self.random.pick(&[8, 20_000]);
        Token::new(near - 4 + self.random.below(distance)).unwrap_or(last)
    }

    fn note(&mut self) -> NewNote {
        let random = &mut self.random;
        NewNote {
            slot: slots()[random.below(4) as usize].clone(),
            number: random.below(3),
            text: random.pick(&["x", "y", "z"]).into(),
            keep: Duration::from_micros(random.below(50_000)),
        }
    }
}

fn compare_history(seed: u64) {
    let mut generator = Generator {
        random: Random(seed),
        is_near_the_end: seed.is_multiple_of(16),
    };
    let (mut world, mut reference) = (World::new(), Reference::default());
    let mut history = Vec::new();
    for _ in 0..OPERATIONS {
        world.pass(&mut generator.random);
        if !generator.is_near_the_end && generator.random.one_in(6) {
            world.alive = [(); 4].map(|()| generator.random.below(3) > 0);
        }
        let op = generator.op(&world);
        history.push((world.now, op.clone()));
        let before = reference.visible(world.now);
        let expected = reference.apply(&op, &world);
        let is_changed = reference.visible(world.now) != before;
        let applied = world.apply(&op);
        let context = || format!("seed {seed}: {history:#?}");
        assert_eq!(applied.outcome, expected.outcome, "{}", context());
        assert_eq!(applied.notices, expected.notices, "{}", context());
        assert!(applied.changed || !is_changed, "{}", context());
        reference.compare(&world);
    }
}

/// A part of the histories, so that the parts run at the same time.
fn compare_part(part: u64) {
    for seed in (part..HISTORIES).step_by(4) {
        compare_history(seed);
    }
}

#[test]
fn the_record_equals_the_rules_before_it_part_1() {
    compare_part(0);
}

#[test]
fn the_record_equals_the_rules_before_it_part_2() {
    compare_part(1);
}

#[test]
fn the_record_equals_the_rules_before_it_part_3() {
    compare_part(2);
}

#[test]
fn the_record_equals_the_rules_before_it_part_4() {
    compare_part(3);
}
