//! Plays random histories to a store and to the rule, and compares replies and notices.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leasehold::__private::store::{Key, Reply, Request, Store, WakeupMode};
use leasehold::ErrorKind;
use leasehold_core::record::{Applied, Kind, Latch};
use leasehold_core::{
    Acquire, Annotation, ClientId, Environment, LeaseId, Name, Notice, Op, Outcome, Removal, Rows,
    Slot, StoreTime, Ttl, Whom,
};
use leasehold_sim::history::{Histories, Shape, timed};
use leasehold_sim::seed;

use super::event_logs::EventLogs;
use super::replies::{alike, in_order, refused, time};
use super::shares;
use crate::store_client::keyspace;
use crate::store_ext::{HeldLock, StoreExt as _};

/// How many names share a batch at most.
const NAMES_MAX: usize = 32;

/// How much longer than the step a store's clock may run between two batches. Ends of leases and requests are a second
/// apart, so more would change replies.
const PACE_MAX: Duration = Duration::from_millis(20);

/// A store to compare with the rule.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) store: &'a dyn Store,
    /// Moves the store's clock by so many milliseconds.
    pub(super) step: &'a dyn Fn(i64),
    /// What its clock can do.
    pub(super) shape: Shape,
    /// By how much it may round the time that a lease has left.
    pub(super) slack: Duration,
    /// How long after a reply its notices may be under way.
    pub(super) timeout: Duration,
    /// How many histories to play.
    pub(super) histories: usize,
    /// Which part of them, of how many.
    pub(super) part: (usize, usize),
}

/// A store whose replies are not those of the rule.
#[derive(Debug)]
pub(super) struct Difference {
    /// The history of the name that differed.
    history: Histories,
    name: usize,
    what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (variable, seed) = (seed::VARIABLE, self.history.seed);
        writeln!(f, "{}{}: {}", self.history, self.name, self.what)?;
        write!(f, "{variable}={seed} plays this again")
    }
}

/// Plays half of the histories from seeds that are always the same and half from fresh ones, or
/// those of the one seed that `LEASEHOLD_SEED` names.
pub(super) async fn compare(target: Target<'_>) -> Result<(), Difference> {
    if std::env::var_os(seed::VARIABLE).is_some() {
        let histories = target.histories_of(seed::from_environment());
        return play(target, &histories).await;
    }
    let (part, parts) = target.part;
    let count = target.histories / parts;
    let mut played = 0;
    let mut fixed = (0..).skip(part).step_by(parts);
    let mut fresh = (seed::from_environment()..).skip(part).step_by(parts);
    while played < count {
        let seeds = if played < count / 2 {
            &mut fixed
        } else {
            &mut fresh
        };
        let histories = target.histories_of(seeds.next().unwrap());
        play(target, &histories).await?;
        played += histories.names;
    }
    Ok(())
}

/// Plays the histories of a seed.
async fn play(target: Target<'_>, histories: &Histories) -> Result<(), Difference> {
    let played = Player::new(target, histories).play(histories).await;
    played.map_err(|(name, what)| Difference {
        history: histories.of(name),
        name,
        what,
    })
}

impl<'a> Target<'a> {
    /// A store whose clock stands still, with exact replies.
    pub(super) fn new(store: &'a dyn Store) -> Self {
        Self {
            store,
            step: &|_| {},
            shape: Shape::Standing,
            slack: Duration::ZERO,
            timeout: Duration::ZERO,
            histories: super::histories(super::HISTORIES),
            part: (0, 1),
        }
    }

    fn histories_of(&self, seed: u64) -> Histories {
        shares::added(Histories::random(seed, self.shape, NAMES_MAX))
    }
}

/// The histories of one seed, as they are played.
struct Player<'a> {
    target: Target<'a>,
    names: Vec<Played>,
    event_logs: EventLogs,
    now: Option<StoreTime>,
    /// How far the clock was moved since the last reply, in microseconds.
    moved: i64,
}

/// A name: its key in the store, and its record by the rule.
struct Played {
    key: Key,
    record: Rows,
}

impl<'a> Player<'a> {
    fn new(target: Target<'a>, histories: &Histories) -> Self {
        let space = keyspace("differential", "default");
        // A name that no earlier run has used, also when a seed is played again.
        let run = fastrand::u64(..);
        let event_logs = EventLogs::new(target.store, &space, histories, target.timeout);
        // The last ones are for the final requests.
        let names = histories.names + event_logs.clients().count();
        let names = (0..names).map(|name| Played {
            key: space.key(Name::parse(&format!("{run:x}/{name}")).unwrap()),
            record: Rows::default(),
        });
        Self {
            target,
            names: names.collect(),
            event_logs,
            now: None,
            moved: 0,
        }
    }

    /// Plays all, and returns which name differed, and how.
    async fn play(&mut self, histories: &Histories) -> Result<(), (usize, String)> {
        for round in &histories.rounds {
            if round.step_ms < 0 {
                self.remove_ended().await?;
            }
            (self.target.step)(round.step_ms);
            self.moved += round.step_ms * 1_000;
            for batch in &round.batches {
                self.batch(batch).await?;
            }
        }
        let last = self.final_requests(histories.names);
        self.batch(&last).await?;
        for name in 0..self.names.len() {
            self.inspect(name).await.map_err(|what| (name, what))?;
        }
        Ok(())
    }

    /// The store's time, by a request for a name that is not compared.
    async fn read_clock(&self) -> Option<StoreTime> {
        let lease = LeaseId {
            client: ClientId::from_random([0; 16]),
            number: 0,
        };
        let stranger = Op::renew(lease, Ttl::USER_MIN);
        let space = &self.names[0].key.space;
        let request = Request::new(space.key(Name::parse("clock").unwrap()), stranger);
        match self.target.store.apply(vec![request]).await[..] {
            [Reply::Applied { now, .. }] => now,
            _ => None,
        }
    }

    /// Requests that notify each client once more: notices that should not have been sent arrive before.
    fn final_requests(&self, names: usize) -> Vec<(usize, Op)> {
        let acquire = |client, wait| {
            let lease = LeaseId {
                client,
                number: u64::MAX,
            };
            let acquire = Acquire::mutex(lease, Ttl::MAX);
            Op::Acquire(Acquire { wait, ..acquire })
        };
        let stranger = ClientId::from_random([0; 16]);
        let clients = self.event_logs.clients().zip(names..);
        let all = clients.map(|(client, name)| {
            let revoke = Op::Revoke(Whom::All);
            let ops = [acquire(stranger, false), acquire(client, true), revoke];
            ops.map(|op| (name, op))
        });
        all.flatten().collect()
    }

    /// Plays a batch, and compares its replies and notices.
    async fn batch(&mut self, batch: &[(usize, Op)]) -> Result<(), (usize, String)> {
        if self.now.is_none() {
            self.now = self.read_clock().await;
            self.moved = 0;
        }
        let now = self.time();
        let batch: Vec<_> = batch
            .iter()
            .map(|(name, op)| (*name, self.with_token(*name, timed(op, now))))
            .collect();
        let requests = batch
            .iter()
            .map(|(name, op)| Request::new(self.names[*name].key.clone(), op.clone()));
        let replies = self.target.store.apply(requests.collect()).await;
        if replies.len() != batch.len() {
            let what = format!("{} replies to {batch:?}", replies.len());
            return Err((batch[0].0, what));
        }
        let mut played: Vec<_> = batch.iter().zip(replies).collect();
        let mut times: Vec<Option<StoreTime>> = Vec::with_capacity(played.len());
        // The records after the replies so far, as long as none of them has a time.
        let mut records = BTreeMap::new();
        for ((name, op), reply) in &played {
            let mut earlier = played.iter().zip(&times);
            let is_first = !earlier.any(|(((other, _), _), time)| other == name && time.is_some());
            let granted = match reply {
                // The reply has no time, but the grant has it.
                Reply::Rejected(_) if is_first => {
                    let record = records.entry(*name);
                    let record = record.or_insert_with(|| self.names[*name].record.clone());
                    self.granted(record, op, self.time())
                }
                _ => None,
            };
            times.push(match granted {
                Some(lease) => self.event_logs.granted_at(lease).await,
                None => time(reply),
            });
        }
        in_order(&mut played, times);
        for ((name, op), reply) in played {
            let compared = self.reply(*name, op, reply).await;
            compared.map_err(|what| (*name, what))?;
        }
        let wakes = self.target.store.capabilities().wakeup;
        if wakes != WakeupMode::Grants {
            return Err((batch[0].0, format!("the wakeup of waiters: {wakes}")));
        }
        let compared = self.event_logs.compare(self.target.timeout).await;
        compared.map_err(|(key, what)| {
            let name = self.names.iter().position(|played| played.key == key);
            (name.unwrap_or_default(), what)
        })?;
        for (name, op) in &batch {
            let observed = self.observe(*name, op).await;
            observed.map_err(|what| (*name, what))?;
        }
        Ok(())
    }

    /// A conversion names the token that its lease has by the rule.
    fn with_token(&self, name: usize, mut op: Op) -> Op {
        if let Op::Convert { lease, first, .. } = &mut op {
            let environment = Environment::at(self.time());
            let mut holders = self.names[name].record.holders(&environment);
            if let Some(holder) = holders.find(|holder| holder.lease == *lease) {
                *first = holder.first;
            }
        }
        op
    }

    async fn reply(&mut self, name: usize, op: &Op, reply: Reply) -> Result<(), String> {
        // That of the reply before has the same effect on one without a time.
        let mut now = match &reply {
            Reply::Applied { now: Some(now), .. } => *now,
            _ => self.time(),
        };
        if let Reply::Rejected(_) = &reply
            && let Some(lease) = self.granted(&mut self.names[name].record.clone(), op, now)
        {
            // The reply has no time, but the grant has it.
            now = self.event_logs.granted_at(lease).await.unwrap_or(now);
        }
        self.pace(now)?;
        let environment = Environment::at(now);
        let played = &mut self.names[name];
        let reaches = |client| self.event_logs.clients().any(|other| other == client);
        let Applied {
            outcome: expected,
            notices,
            unfinished,
            ..
        } = played.record.apply(op, &environment, reaches);
        assert!(!unfinished, "a history has few waiters");
        for notice in notices {
            self.event_logs.expect(&played.key, notice);
        }
        let alike = match (&reply, &expected) {
            (Reply::Rejected(error), Outcome::Mismatch(mismatch)) => {
                error.kind() == ErrorKind::Conflict
                    && error.to_string().ends_with(&mismatch.to_string())
            }
            (Reply::Applied { outcome, .. }, expected) => {
                alike(outcome.clone(), expected, self.target.slack)
            }
            _ => false,
        };
        match alike {
            true => Ok(()),
            false => Err(format!(
                "{op:?} at {now:?} had the reply {reply:?}, not {expected:?}"
            )),
        }
    }

    /// Applies an operation to a record, and returns the waiter to whom it grants the lock.
    fn granted(&self, record: &mut Rows, op: &Op, now: StoreTime) -> Option<LeaseId> {
        let reaches = |client| self.event_logs.clients().any(|other| other == client);
        let applied = record.apply(op, &Environment::at(now), reaches);
        let mut notices = applied.notices.into_iter();
        notices.find_map(|notice| match notice {
            Notice::Granted(grant) => Some(grant.lease),
            _ => None,
        })
    }

    /// Compares what an observer reads after an operation on a note or on a latch.
    async fn observe(&self, name: usize, op: &Op) -> Result<(), String> {
        match op {
            Op::WriteNote { note, .. }
            | Op::Release {
                note: Some(note), ..
            } => self.observe_note(name, &note.slot).await,
            Op::Remove(Removal::Note(slot)) => self.observe_note(name, slot).await,
            Op::Arrive { .. } | Op::Remove(Removal::Latch) => self.observe_latch(name).await,
            _ => Ok(()),
        }
    }

    async fn observe_note(&self, name: usize, slot: &Slot) -> Result<(), String> {
        let Played { key, record } = &self.names[name];
        let (now, environment) = (self.time(), Environment::at(self.time()));
        let observed = self.target.store.observe(key, slot).await;
        let observed = match (observed, record.kind(&environment)) {
            (observed, Some(kind @ Kind::Latch)) => return refused(kind, observed.map(drop)),
            (observed, _) => observed.map_err(|error| error.to_string())?,
        };
        let holder = record.holders(&environment).next();
        let holder = holder.filter(|holder| !holder.is_reserved);
        let expected = (
            holder.map(|holder| holder.lease),
            record.note(slot, &environment).map(Annotation::from),
        );
        let lease = observed.holder.map(|(lease, _)| lease);
        let found = (lease, observed.annotation);
        if found != expected {
            return Err(format!(
                "an observer reads {found:?} at {now:?}, not {expected:?}"
            ));
        }
        if self.target.shape != Shape::Standing {
            // The clock runs on, and a store need not expire a queue while the lock is held.
            return Ok(());
        }
        let time_left = holder.map(|holder| environment.time_left(holder.end));
        let expected = (now, time_left, record.waiters(&environment).count());
        let time_left = observed.holder.map(|(_, time_left)| time_left);
        let found = (observed.now, time_left, observed.waiters);
        match found == expected {
            true => Ok(()),
            false => Err(format!("an observer reads {found:?}, not {expected:?}")),
        }
    }

    async fn observe_latch(&self, name: usize) -> Result<(), String> {
        let Played { key, record } = &self.names[name];
        let environment = Environment::at(self.time());
        let observed = self.target.store.watch_latch(key).await;
        if let Some(kind @ Kind::Leases(_)) = record.kind(&environment) {
            // A store may not see waiters without a holder.
            return match record.holders(&environment).next() {
                Some(_) => refused(kind, observed.map(drop)),
                None => Ok(()),
            };
        }
        let expected = record.latch(&environment).map(Latch::status);
        match observed {
            Ok(found) if found == expected => Ok(()),
            found => Err(format!(
                "an observer of the latch reads {found:?}, not {expected:?}"
            )),
        }
    }

    /// Lets the store remove notes that have ended, before its clock is set back.
    async fn remove_ended(&mut self) -> Result<(), (usize, String)> {
        let environment = Environment::at(self.time());
        for (name, played) in self.names.iter_mut().enumerate() {
            for slot in played.record.remove_ended_notes(&environment) {
                let found = self
                    .target
                    .store
                    .remove_annotation(&played.key, &slot)
                    .await;
                if !matches!(found, Ok(false)) {
                    let what = format!("{slot:?} is removed after its end: {found:?}");
                    return Err((name, what));
                }
            }
        }
        Ok(())
    }

    /// Compares the inspection of a name with its record by the rule.
    async fn inspect(&self, name: usize) -> Result<(), String> {
        let Played { key, record } = &self.names[name];
        let environment = Environment::at(self.time());
        let found = self.target.store.inspect(key).await;
        if let Some(kind @ Kind::Latch) = record.kind(&environment) {
            return refused(kind, found.map(drop));
        }
        let found = found.map_err(|error| error.to_string())?;
        let running = self.target.shape != Shape::Standing;
        // The clock runs on until the store is inspected.
        let time_left = |time| if running { Duration::ZERO } else { time };
        let expected = record.holders(&environment).next().map(|holder| HeldLock {
            key: key.clone(),
            lease: holder.lease,
            is_reserved: holder.is_reserved,
            count: holder.count.get(),
            time_left: time_left(environment.time_left(holder.end)),
            token: record.head().counter,
            client: None,
            waiters: Vec::new(),
        });
        let compared = found.clone().map(|held| HeldLock {
            time_left: time_left(held.time_left),
            waiters: Vec::new(),
            ..held
        });
        if compared != expected {
            return Err(format!("the store returns {compared:?}, not {expected:?}"));
        }
        if let Some(held) = &found
            && !running
        {
            let waiting = record.waiters(&environment).map(|waiter| waiter.lease);
            let found = held.waiters.iter().map(|waiter| waiter.lease);
            if !found.clone().eq(waiting) {
                let found: Vec<_> = found.collect();
                return Err(format!("the store returns the waiters {found:?}"));
            }
        }
        Ok(())
    }

    /// The store's time, from its last reply and the steps since then.
    fn time(&self) -> StoreTime {
        let now = self.now.unwrap_or_default().as_micros();
        StoreTime::from_micros(now.saturating_add_signed(self.moved))
    }

    /// Checks that the store's clock went as far as it was moved.
    fn pace(&mut self, now: StoreTime) -> Result<(), String> {
        let micros = |time: StoreTime| i128::from(time.as_micros());
        if let Some(before) = self.now {
            let ran = micros(now) - micros(before) - i128::from(self.moved);
            let ran_max = match self.target.shape {
                Shape::Standing => 0,
                _ => PACE_MAX.as_micros().cast_signed(),
            };
            if !(0..=ran_max).contains(&ran) {
                let moved = self.moved;
                return Err(format!(
                    "the clock went from {before:?} to {now:?} when it was moved by {moved} us"
                ));
            }
        }
        self.now = Some(now);
        self.moved = 0;
        Ok(())
    }
}
