//! What holds after each operation of a random history, for semaphores, readers and writers, and jobs. Each operation is also applied
//! in parts, and many are repeated.

use std::collections::BTreeMap;
use std::time::Duration;

use super::parts::apply_in_parts;
use super::shares;
use super::*;
use crate::job::{Completion, JobSchedule, Period, Slots};
use crate::token::{self, Token};

const HISTORIES: u64 = 4_000;
const OPERATIONS: usize = 60;

/// A history of one name, and what is known of its past.
struct History {
    seed: u64,
    random: Random,
    world: World,
    held: Contents,
    last_token: Option<Token>,
    /// When the runs that were granted were asked for, and when they were granted.
    runs: BTreeMap<LeaseId, (StoreTime, StoreTime)>,
    /// The slot of the last completion of a periodic job.
    last_slot: Option<i64>,
    log: Vec<(StoreTime, Op)>,
}

/// What the leases of a history hold.
#[derive(Clone, Copy, PartialEq)]
enum Contents {
    /// Permits of a semaphore with so many.
    Permits(u32),
    /// A read-write lock.
    Access,
    /// A mutex, for the run of a job.
    Job(Job),
}

/// What the leases of a job wait for.
#[derive(Clone, Copy, PartialEq)]
enum Job {
    Keys,
    Periods,
}

/// The state before an operation.
pub(super) struct Before {
    pub(super) holders: Vec<Holder>,
    pub(super) waiters: Vec<Waiter>,
    limit: u64,
    notes: Vec<Option<Note>>,
}

impl History {
    fn new(seed: u64, held: Contents) -> Self {
        Self {
            seed,
            world: World::new(),
            random: Random(seed),
            held,
            last_token: None,
            runs: BTreeMap::new(),
            last_slot: None,
            log: Vec::new(),
        }
    }

    fn run(mut self) {
        for _ in 0..OPERATIONS {
            self.world.pass(&mut self.random);
            if self.random.one_in(5) {
                self.world.alive = [(); 4].map(|()| self.random.below(3) > 0);
            }
            let op = self.op();
            let outcome = self.apply(&op).outcome;
            // A client that cannot be reached may lose its place to its own request.
            let is_dead = |lease: LeaseId| !self.world.is_alive(lease.client);
            if !lease_of(&op).is_some_and(is_dead) && self.random.one_in(3) {
                self.repeat(&op, &outcome);
            }
        }
    }

    fn claim(&self, lease: LeaseId) -> Claim {
        let number = lease.number as u32;
        match self.held {
            Contents::Job(_) => Claim::Mutex,
            Contents::Permits(limit) => match permits(1 + number % limit, limit) {
                Claim::Permits { weight, limit, .. } => Claim::Permits {
                    weight,
                    limit,
                    numbered: number.is_multiple_of(2),
                },
                claim => claim,
            },
            Contents::Access => Claim::Access(match number % 4 {
                0 => Access::Write,
                1 => Access::Upgradable,
                _ => Access::Read,
            }),
        }
    }

    fn job(&self) -> Option<Job> {
        match self.held {
            Contents::Job(job) => Some(job),
            _ => None,
        }
    }

    /// The number of permits that there are.
    fn limit(&self) -> u64 {
        match (self.world.rows.head().body, self.held) {
            (Body::Leases(leases), _) => leases.limit,
            (_, Contents::Permits(limit)) => u64::from(limit),
            _ => 0,
        }
    }

    /// A change of what a lease holds, or of how many permits there are.
    fn change(&mut self, lease: LeaseId) -> Op {
        let other = LeaseId {
            number: self.random.below(12),
            ..lease
        };
        let limit = match self.held {
            Contents::Permits(limit) if self.random.one_in(4) => limit,
            _ => {
                let held = self
                    .world
                    .holders()
                    .into_iter()
                    .find(|it| it.lease == lease);
                let first = held.map_or(Token::MAX, |holder| holder.first);
                let is_late = self.random.one_in(8);
                return Op::Convert {
                    lease,
                    first: if is_late { Token::MAX } else { first },
                    claim: self.claim(other),
                    ttl: millis(1 + self.random.below(20)),
                    tokens: tokens_of(lease),
                    wait: self.random.below(4) > 0,
                };
            }
        };
        let version = match self.world.rows.head().body {
            Body::Leases(leases) => leases.setting.map_or(0, |setting| setting.version),
            _ => 0,
        };
        Op::SetLimit {
            permits: number(1 + self.random.small(limit + 1)),
            if_version: self.random.one_in(2).then_some(version),
            keep: Duration::from_micros(self.random.below(20_000)),
        }
    }

    fn op(&mut self) -> Op {
        let mut lease = lease(1 + self.random.below(12));
        let holders = self.world.holders();
        if self.random.one_in(2) && !holders.is_empty() {
            lease = self.random.pick(&holders).lease;
        }
        let ttl = millis(1 + self.random.below(20));
        match self.random.below(20) {
            0..4 if self.job().is_none() && self.random.one_in(2) => self.change(lease),
            0..10 => Op::Acquire(Acquire {
                unless: self.unless(lease),
                ..acquire(
                    lease,
                    self.claim(lease),
                    ttl.as_millis(),
                    self.random.below(5) > 0,
                )
            }),
            10..13 => Op::Renew {
                lease,
                ttl,
                count: None,
            },
            13..18 => Op::Release {
                lease,
                rest: self.random.one_in(4).then_some(ttl),
                note: self.note(lease),
            },
            18 => match self.note(lease) {
                Some(note) => Op::WriteNote { lease, note },
                None => Op::Revoke(Whom::One(lease)),
            },
            _ if self.random.one_in(3) => Op::Revoke(Whom::All),
            _ => examples::arrival(1, 2),
        }
    }

    fn unless(&mut self, lease: LeaseId) -> Option<Unless> {
        let random = Duration::from_micros(self.random.below(2_000_000));
        // A lease asks for one run: a repeated request names the same time.
        let waiters = self.world.waiters();
        let waiter = waiters.into_iter().find(|waiter| waiter.lease == lease);
        let asked_at = waiter.and_then(|waiter| Some(waiter.condition?.requested_at));
        let asked = asked_at.map_or(random, |at| at.until(self.world.now));
        Some(match self.job()? {
            Job::Keys => Unless::Key {
                key: job_key(lease),
                asked,
            },
            Job::Periods => Unless::Period {
                schedule: JobSchedule {
                    period: slots().period,
                    anchor: Some(slots().anchor),
                },
                asked,
            },
        })
    }

    /// A completion of a job, or the value of a leader.
    fn note(&mut self, lease: LeaseId) -> Option<NewNote> {
        let Some(job) = self.job() else {
            return Some(NewNote {
                slot: Slot::Value,
                token: Token::MAX,
                number: self.random.below(4),
                text: "value".into(),
                keep: Duration::from_micros(self.random.below(40_000)),
            });
        };
        let (requested_at, started_at) = *self.runs.get(&lease)?;
        let completion = Completion {
            slots: (job == Job::Periods).then(slots),
            requested_at,
            started_at,
            finished_at: self.world.now,
            keep: None,
            exit_code: 0,
            host: String::new(),
            program: String::new(),
            path: None,
            label: String::new(),
        };
        let slot = match job {
            Job::Keys => Slot::Key(job_key(lease)),
            Job::Periods => Slot::Period,
        };
        self.random.one_in(2).then(|| NewNote {
            slot,
            token: Token::MAX,
            number: 1,
            text: completion.to_text().into(),
            keep: Duration::from_secs(3_600),
        })
    }

    fn apply(&mut self, op: &Op) -> Applied {
        self.log.push((self.world.now, op.clone()));
        let before = self.state();
        let in_parts = apply_in_parts(&self.world, op).0;
        let applied = self.world.apply(op);
        self.check(in_parts == applied, "in parts it is the same");
        let after = self.state();
        self.check_holders(op, &before, &after, &applied);
        self.check_queue(op, &before, &after, &applied);
        if self.job().is_none() {
            let checked = shares::check(&self.world, op, &before, &after, &applied);
            self.check(checked.is_ok(), checked.err().unwrap_or_default());
        }
        self.check_tokens(op, &before, &applied);
        self.check_notes(op, &before, &after, &applied);
        applied
    }

    fn check_holders(&self, op: &Op, before: &Before, after: &Before, applied: &Applied) {
        let used: u64 = after.holders.iter().map(|holder| holder.weight).sum();
        let was_used: u64 = before.holders.iter().map(|holder| holder.weight).sum();
        let is_kept = used <= self.limit().max(was_used);
        // What a waiter is granted in the same step is still under the old limit.
        let is_set = matches!(op, Op::SetLimit { .. });
        self.check(is_set || used == 0 || is_kept, "the limit is kept");
        let counted = match self.world.rows.head().body {
            Body::Leases(leases) => leases.used,
            _ => 0,
        };
        self.check(counted == used, "the sum of the weights is known");
        let is_own =
            |holder: &Holder| Some(holder.lease) == lease_of(op) || *op == Op::Revoke(Whom::All);
        for holder in &before.holders {
            let stays = after.holders.contains(holder);
            let is_changed = is_own(holder) && !holder.is_reserved;
            let is_converted = applied.notices.iter().any(
                |notice| matches!(notice, Notice::Granted(grant) if grant.lease == holder.lease),
            );
            let is_revoked = matches!(&applied.outcome, Outcome::Revoked(leases) if leases.contains(&holder.lease));
            self.check(
                stays || is_changed || is_converted || is_revoked,
                "other holders stay",
            );
            let is_lost = matches!(applied.outcome, Outcome::Lost(_));
            self.check(
                stays || is_converted || !is_lost,
                "a lost request changes no holder",
            );
        }
    }

    /// First in, first out, and nobody waits for what is free.
    fn check_queue(&self, op: &Op, before: &Before, after: &Before, applied: &Applied) {
        let own = lease_of(op);
        let was_granted = |lease| {
            applied
                .notices
                .iter()
                .any(|notice| matches!(notice, Notice::Granted(grant) if grant.lease == lease))
        };
        let is_granted_now = matches!(applied.outcome, Outcome::Granted { .. })
            && before
                .holders
                .iter()
                .all(|holder| Some(holder.lease) != own);
        let stays = |waiter| after.waiters.contains(waiter);
        let mut is_kept_back = false;
        for waiter in &before.waiters {
            let lease = waiter.lease;
            let is_granted = was_granted(lease) || is_granted_now && own == Some(lease);
            self.check(!(is_granted && is_kept_back), "nobody is overtaken");
            let was_notified = applied.notices.iter().any(
                |notice| matches!(notice, Notice::Complete { lease: waiter, .. } if *waiter == lease),
            );
            let is_dead = !self.world.is_alive(lease.client);
            let mut holders = after.holders.iter();
            let has_ended = waiter.is_conversion() && holders.all(|it| it.lease != lease);
            let never_fits = waiter.claim.weight() > self.limit().min(before.limit);
            let has_left = own == Some(lease) || is_granted || was_notified || is_dead;
            let has_left = has_left || has_ended || never_fits;
            self.check(stays(waiter) || has_left, "a waiter has a reason to leave");
            is_kept_back |= stays(waiter);
        }
        let was_waiting = before
            .waiters
            .iter()
            .any(|waiter| Some(waiter.lease) == own);
        self.check(
            !(is_granted_now && !was_waiting && is_kept_back),
            "a new request overtakes nobody",
        );
        self.check(
            after.waiters.is_sorted_by_key(|waiter| waiter.place),
            "places grow",
        );
        let used: u64 = after.holders.iter().map(|holder| holder.weight).sum();
        let room = self.limit().saturating_sub(used);
        if let Some(first) = after.waiters.first().filter(|_| room > 0) {
            let mut holders = after.holders.iter();
            let holder = holders.find(|it| it.lease == first.lease && first.is_conversion());
            let more = first.claim.weight() - holder.map_or(0, |holder| holder.weight);
            // A dead client may have lost its place to its own request, and have joined anew.
            let is_new = own == Some(first.lease) && !before.waiters.contains(first);
            self.check(more > room || is_new, "no waiter is left that fits");
            let is_known = self.world.is_alive(first.lease.client) || own == Some(first.lease);
            self.check(is_known, "no dead waiter keeps others back");
        }
    }

    fn check_tokens(&mut self, op: &Op, before: &Before, applied: &Applied) {
        let is_held = |lease| {
            let mut holders = before.holders.iter();
            holders.any(|holder| holder.lease == lease && !holder.is_reserved)
        };
        if matches!(op, Op::Acquire(request) if is_held(request.lease)) {
            let is_granted = matches!(applied.outcome, Outcome::Granted { .. });
            self.check(is_granted, "a holder gets its grant again");
        }
        let mut grants = Vec::new();
        for notice in &applied.notices {
            if let Notice::Granted(grant) = notice {
                grants.push((grant.lease, grant.first, grant.run.clone()));
            }
        }
        if let (Op::Acquire(request), Outcome::Granted { first, run, .. }) = (op, &applied.outcome)
        {
            let held = before
                .holders
                .iter()
                .find(|holder| holder.lease == request.lease);
            match held {
                Some(holder) => {
                    // Unless it was converted in this step.
                    let is_same = holder.first == *first;
                    let granted = grants
                        .iter()
                        .any(|grant| (grant.0, grant.1) == (request.lease, *first));
                    self.check(is_same || granted, "a grant is repeated");
                    let requested_at = run.as_ref().map(|run| run.requested_at);
                    let known = self.runs.get(&request.lease).map(|(run, _)| *run);
                    self.check(run.is_none() || requested_at == known, "a run is repeated");
                }
                None => grants.push((request.lease, *first, run.clone())),
            }
        }
        grants.sort_by_key(|(_, first, _)| *first);
        let is_lock = self.held == Contents::Access;
        for (lease, first, run) in grants {
            if !is_lock {
                self.check(Some(first) > self.last_token, "tokens grow");
                self.last_token = token::block_last(first, tokens_of(lease));
            }
            self.check(run.is_some() == self.job().is_some(), "a grant has its run");
            self.runs
                .extend(run.map(|run| (lease, (run.requested_at, self.world.now))));
        }
    }

    fn check_notes(&mut self, op: &Op, before: &Before, after: &Before, applied: &Applied) {
        for (old, new) in before.notes.iter().zip(&after.notes) {
            let (Some(old), Some(new)) = (old, new) else {
                continue;
            };
            let is_late = old.lease == new.lease && new.number < old.number;
            self.check(!is_late, "no old value comes back");
            let is_lost = matches!(applied.outcome, Outcome::Lost(_));
            self.check(!is_lost || old == new, "a lost request writes no note");
        }
        let (Some(job), true) = (self.job(), before.notes != after.notes) else {
            return;
        };
        match job {
            Job::Keys => {
                let is_new = |(old, new): (&Option<Note>, &Option<Note>)| match old {
                    Some(old) => new.as_ref().is_some_and(|new| new.lease == old.lease),
                    None => true,
                };
                let is_once = before.notes.iter().zip(&after.notes).all(is_new);
                self.check(is_once, "a key is completed once");
            }
            Job::Periods => {
                let note = self
                    .world
                    .rows
                    .note(&Slot::Period, &self.world.environment());
                let run = Completion::parse(&note.unwrap().text).unwrap();
                let slot = Some(run.slots.unwrap().slot_of(&run));
                let lease = note.map(|note| note.lease);
                let is_same = before.notes[1].as_ref().map(|note| note.lease) == lease;
                self.check(is_same || slot > self.last_slot, "a slot is completed once");
                self.last_slot = slot;
            }
        }
        // All that stood at the head of the queue and waited for it are notified in the same step.
        let first = after
            .waiters
            .first()
            .filter(|first| Some(first.lease) != lease_of(op));
        if let (Job::Keys, Some(first)) = (job, first) {
            let slot = Slot::Key(job_key(first.lease));
            let note = self.world.rows.note(&slot, &self.world.environment());
            let is_alive = self.world.is_alive(first.lease.client);
            self.check(note.is_none() || !is_alive, "its waiters are notified");
        }
    }

    /// Sends an operation again at the same time.
    fn repeat(&mut self, op: &Op, outcome: &Outcome) {
        if let Op::Revoke(_)
        | Op::SetLimit {
            if_version: None, ..
        } = op
        {
            return;
        }
        let before = self.world.rows.clone();
        let again = self.apply(op).outcome;
        let is_release = matches!(op, Op::Release { note: None, .. });
        let is_harmless = match outcome {
            // Without a note, nothing shows that it was released.
            Outcome::Released if is_release => matches!(again, Outcome::Lost(_)),
            // Its note may have ended immediately.
            Outcome::Released if self.job().is_none() => {
                matches!(again, Outcome::Lost(_) | Outcome::Released)
            }
            // The waiter that has left kept the setting of the limit.
            Outcome::Mismatch(Mismatch::Weight) => return,
            _ => again == *outcome,
        };
        self.check(is_harmless, "the same outcome again");
        let is_note = matches!(op, Op::WriteNote { .. });
        self.check(
            before == self.world.rows || is_note,
            "nothing changes again",
        );
    }

    fn state(&self) -> Before {
        let environment = self.world.environment();
        let keys = (0..3).map(|number| Slot::Key(job_key(lease(number))));
        let slots = [Slot::Value, Slot::Period].into_iter().chain(keys);
        let note = |slot| self.world.rows.note(&slot, &environment).cloned();
        Before {
            holders: self.world.holders(),
            waiters: self.world.waiters(),
            limit: self.limit(),
            notes: slots.map(note).collect(),
        }
    }

    fn check(&self, holds: bool, property: &str) {
        assert!(holds, "seed {}: {property}: {:#?}", self.seed, self.log);
    }
}

/// The slots of the periodic job.
fn slots() -> Slots {
    Slots {
        anchor: StoreTime::from_micros(START),
        chosen: true,
        period: Period::checked(Period::MIN).unwrap(),
    }
}

/// Leases run for one of three keys.
fn job_key(lease: LeaseId) -> CompletionKey {
    key(["a", "b", "c"][lease.number as usize % 3])
}

fn lease_of(op: &Op) -> Option<LeaseId> {
    match op {
        Op::Revoke(Whom::One(lease)) => Some(*lease),
        op => op.lease(),
    }
}

#[test]
fn a_semaphore_keeps_its_limit_and_its_order() {
    for seed in 0..HISTORIES {
        let limit = 1 + Random(seed).small(5);
        History::new(seed, Contents::Permits(limit)).run();
    }
}

#[test]
fn readers_and_writers_keep_their_order_and_their_tokens() {
    for seed in 0..HISTORIES {
        History::new(seed, Contents::Access).run();
    }
}

#[test]
fn a_job_for_a_key_is_completed_once() {
    for seed in 0..HISTORIES {
        History::new(seed, Contents::Job(Job::Keys)).run();
    }
}

#[test]
fn a_periodic_job_is_completed_once_in_each_slot() {
    for seed in 0..HISTORIES {
        History::new(seed, Contents::Job(Job::Periods)).run();
    }
}
