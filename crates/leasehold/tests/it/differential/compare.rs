//! Plays random histories to a store and to the rule, and compares replies and notices.

mod latches;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leasehold::store::{Key, Reply, Request, Store, WakeupMode};
use leasehold_core::annotation::{self, Annotation, AnnotationKind};
use leasehold_core::mutex::{self, Record};
use leasehold_core::{
    ClientId, LatchRecord, LeaseId, Name, Op, Outcome, StoreTime, TokenCount, Ttl,
};
use leasehold_sim::history::{AnnotationOp, Histories, Shape};
use leasehold_sim::seed;
use leasehold_sim::store_checker::{Observation, StoreChecker};

use super::event_logs::EventLogs;
use crate::readings::{HeldLock, Readings as _};
use crate::store_client::keyspace;

/// How many names share a batch at most.
const NAMES_MAX: usize = 32;

/// How much longer than the step a store's clock may run between two batches. Far more than any
/// takes; it only shows that the clock was moved, and by how much.
const PACE_MAX: Duration = Duration::from_secs(20);

/// How long a history may take by the store's clock, without its steps. Ends of leases
/// and requests are a second apart, so a history that took longer proves nothing.
const PLAY_MAX: Duration = Duration::from_millis(800);

/// How long one reply may take. A server that is stopped inside a script reads two times.
const REPLY_MAX: Duration = Duration::from_millis(20);

/// How often a history is played that took too long.
const PLAYS_MAX: usize = 20;

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
    let mut played = 0;
    let mut fixed = 0..;
    let mut fresh = seed::from_environment()..;
    while played < target.histories {
        let seeds = if played < target.histories / 2 {
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

/// Plays the histories of a seed, and again if the machine was too busy for them.
async fn play(target: Target<'_>, histories: &Histories) -> Result<(), Difference> {
    for plays in 1.. {
        let mut player = Player::new(target, histories);
        let Err((name, what)) = player.play(histories).await else {
            break;
        };
        if plays == PLAYS_MAX || !player.was_slow().await {
            return Err(Difference {
                history: histories.of(name),
                name,
                what,
            });
        }
    }
    Ok(())
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
            histories: super::HISTORIES,
        }
    }

    fn histories_of(&self, seed: u64) -> Histories {
        Histories::random(seed, self.shape, NAMES_MAX)
    }
}

/// The histories of one seed, as they are played.
struct Player<'a> {
    target: Target<'a>,
    names: Vec<Played>,
    event_logs: EventLogs<'a>,
    now: Option<StoreTime>,
    /// How far the clock was moved since the last reply, in microseconds.
    moved: i64,
    /// How far it advanced in addition, in all.
    took: Duration,
    longest: Duration,
}

/// A name: its key in the store, its record, annotations and latch by the rule, and a checker.
struct Played {
    key: Key,
    record: Record,
    /// With the time until which they are kept.
    annotations: BTreeMap<AnnotationKind, (Annotation, StoreTime)>,
    latch: Option<LatchRecord>,
    checker: StoreChecker,
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
            record: Record::default(),
            annotations: BTreeMap::new(),
            latch: None,
            checker: StoreChecker::new(target.slack),
        });
        Self {
            target,
            names: names.collect(),
            event_logs,
            now: None,
            moved: 0,
            took: Duration::ZERO,
            longest: Duration::ZERO,
        }
    }

    /// Plays all, and returns which name differed, and how.
    async fn play(&mut self, histories: &Histories) -> Result<(), (usize, String)> {
        for round in &histories.rounds {
            if round.step_ms < 0 {
                self.remove_expired().await?;
            }
            (self.target.step)(round.step_ms);
            self.moved += round.step_ms * 1_000;
            for batch in &round.batches {
                self.batch(batch).await?;
            }
            for (name, op) in &round.annotations {
                let compared = match self.is_latch(*name) {
                    true => self.annotation_of_latch(*name, op).await,
                    false => self.annotation(*name, op).await,
                };
                compared.map_err(|what| (*name, what))?;
            }
            for (name, op) in &round.latches {
                let compared = self.latch(*name, op).await;
                compared.map_err(|what| (*name, what))?;
            }
        }
        let last = self.final_requests(histories.names);
        self.batch(&last).await?;
        for name in 0..self.names.len() {
            self.inspect(name).await.map_err(|what| (name, what))?;
        }
        Ok(())
    }

    /// Whether the machine was too busy for a comparison, up to this moment.
    async fn was_slow(&mut self) -> bool {
        if let Some(now) = self.read_clock().await
            && self.target.shape != Shape::Standing
        {
            let _ = self.pace(now);
        }
        self.took > PLAY_MAX || self.longest > REPLY_MAX
    }

    /// The store's time, by a request for a name that is not compared.
    async fn read_clock(&self) -> Option<StoreTime> {
        let stranger = Op::Renew {
            lease: LeaseId {
                client: ClientId::from_random([0; 16]),
                number: 0,
            },
            ttl: Ttl::USER_MIN,
            count: None,
        };
        let space = &self.names[0].key.space;
        let request = Request::new(space.key(Name::parse("clock").unwrap()), stranger);
        match self.target.store.apply(vec![request]).await[..] {
            [Reply::Applied { now, .. }] => now,
            _ => None,
        }
    }

    /// Requests that notify each client once more: notices that should not have been sent arrive before.
    fn final_requests(&self, names: usize) -> Vec<(usize, Op)> {
        let acquire = |client, wait| Op::Acquire {
            lease: LeaseId {
                client,
                number: u64::MAX,
            },
            count: TokenCount::MIN,
            ttl: Ttl::MAX,
            tokens: TokenCount::MIN,
            proposal: None,
            wait,
        };
        let stranger = ClientId::from_random([0; 16]);
        let clients = self.event_logs.clients().zip(names..);
        let all = clients.map(|(client, name)| {
            let ops = [acquire(stranger, false), acquire(client, true), Op::Revoke];
            ops.map(|op| (name, op))
        });
        all.flatten().collect()
    }

    /// Plays a batch, and compares its replies and notices.
    async fn batch(&mut self, batch: &[(usize, Op)]) -> Result<(), (usize, String)> {
        let requests = batch
            .iter()
            .map(|(name, op)| Request::new(self.names[*name].key.clone(), *op));
        let replies = self.target.store.apply(requests.collect()).await;
        if replies.len() != batch.len() {
            let what = format!("{} replies to {batch:?}", replies.len());
            return Err((batch[0].0, what));
        }
        let mut played: Vec<_> = batch.iter().zip(replies).collect();
        if batch
            .iter()
            .all(|(_, op)| matches!(op, Op::Renew { count: None, .. }))
        {
            // A store may apply them in any order, for none concerns another.
            played.sort_by_key(|(_, reply)| match reply {
                Reply::Applied { now, .. } => *now,
                Reply::Rejected(_) | Reply::Unknown(_) => None,
            });
        }
        // A release may come without the time. That of a moment later has the same effect on it.
        let timeless = |(_, reply): &_| matches!(reply, Reply::Applied { now: None, .. });
        let later = match played.iter().any(timeless) {
            true => self.read_clock().await,
            false => None,
        };
        for ((name, op), reply) in played {
            let compared = self.reply(*name, op, reply, later);
            compared.map_err(|what| (*name, what))?;
        }
        let wakes = self.target.store.capabilities().wakeup;
        if wakes != WakeupMode::Grants {
            return Err((batch[0].0, format!("the wakeup of waiters: {wakes}")));
        }
        self.event_logs.compare().await.map_err(|(key, what)| {
            let name = self.names.iter().position(|played| played.key == key);
            (name.unwrap_or_default(), what)
        })
    }

    fn reply(
        &mut self,
        name: usize,
        op: &Op,
        reply: Reply,
        later: Option<StoreTime>,
    ) -> Result<(), String> {
        if self.is_latch(name) {
            return latches::refused(op, &reply);
        }
        let Reply::Applied { outcome, now } = reply else {
            return Err(format!("{op:?} had the reply {reply:?}"));
        };
        let now = now.or(later).ok_or("no reply has the time")?;
        self.pace(now)?;
        let played = &mut self.names[name];
        let mut notified = Vec::new();
        let expected = mutex::apply(&mut played.record, op, now, |notice| {
            let reached = self.event_logs.expect(&played.key, notice);
            notified.extend(reached.then_some(*notice));
            reached
        });
        if !alike(outcome, expected, self.target.slack) {
            return Err(format!(
                "{op:?} at {now:?} had the reply {outcome:?}, not {expected:?}"
            ));
        }
        let observation = Observation {
            op,
            reply: &outcome,
            // Notices are compared with those of the rule elsewhere.
            notices: &notified,
            now,
        };
        let reaches = |client| self.event_logs.clients().any(|other| other == client);
        let checked = played.checker.observe(observation, reaches);
        checked.map_err(|violation| violation.to_string())
    }

    /// Plays an operation on an annotation, and compares its result and what an observer reads.
    async fn annotation(&mut self, name: usize, op: &AnnotationOp) -> Result<(), String> {
        let (now, store) = (self.time(), self.target.store);
        let Played {
            key,
            record,
            annotations,
            ..
        } = &mut self.names[name];
        let kind = op.kind();
        let (found, expected) = match op {
            AnnotationOp::Annotate {
                annotation, keep, ..
            } => {
                let found = store.annotate(key, kind, annotation, *keep).await;
                let mut stored = None;
                let expected = annotation::annotate(record, &mut stored, annotation.clone(), now);
                let stored = stored.map(|stored| (kind.clone(), (stored, now.after_span(*keep))));
                annotations.extend(stored);
                let found = found.map(|found| format!("{found:?}"));
                (found, format!("{expected:?}"))
            }
            AnnotationOp::Remove { .. } => {
                let found = store.remove_annotation(key, kind).await;
                let removed = annotations.remove(kind);
                let expected = removed.is_some_and(|(_, until)| now < until);
                let found = found.map(|found| format!("{found:?}"));
                (found, format!("{expected:?}"))
            }
        };
        let found = found.map_err(|error| error.to_string())?;
        if found != expected {
            return Err(format!(
                "{op:?} at {now:?} had the result {found}, not {expected}"
            ));
        }
        let observed = store.observe(key, kind).await;
        let observed = observed.map_err(|error| error.to_string())?;
        let kept = annotations.get(kind).filter(|(_, until)| now < *until);
        let expected = (
            record.holder(now).map(|hold| hold.lease),
            kept.map(|(annotation, _)| annotation),
        );
        let holder = observed.holder.map(|(lease, _)| lease);
        let found = (holder, observed.annotation.as_ref());
        if found != expected {
            return Err(format!(
                "an observer reads {found:?} at {now:?}, not {expected:?}"
            ));
        }
        if self.target.shape != Shape::Standing {
            // The clock runs on, and a store need not expire a queue while the lock is held.
            return Ok(());
        }
        let queued = record
            .queue
            .waiters()
            .filter(|_| now < record.queue.until());
        let time_left = record.holder(now).map(|hold| now.until(hold.expires_at));
        let expected = (now, time_left, queued.count());
        let time_left = observed.holder.map(|(_, time_left)| time_left);
        let found = (observed.now, time_left, observed.waiters);
        match found == expected {
            true => Ok(()),
            false => Err(format!("an observer reads {found:?}, not {expected:?}")),
        }
    }

    /// Lets the store remove expired annotations, before its clock is set back.
    async fn remove_expired(&mut self) -> Result<(), (usize, String)> {
        let now = self.time();
        self.expire_latches().await;
        for (name, played) in self.names.iter_mut().enumerate() {
            let annotations = std::mem::take(&mut played.annotations);
            let (kept, expired): (BTreeMap<_, _>, BTreeMap<_, _>) = annotations
                .into_iter()
                .partition(|(_, (_, until))| now < *until);
            played.annotations = kept;
            for kind in expired.into_keys() {
                let found = self
                    .target
                    .store
                    .remove_annotation(&played.key, &kind)
                    .await;
                if !matches!(found, Ok(false)) {
                    return Err((
                        name,
                        format!("{kind:?} is removed after its end: {found:?}"),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Compares the inspection of a name with its record by the rule.
    async fn inspect(&self, name: usize) -> Result<(), String> {
        let played = &self.names[name];
        let now = self.time();
        let found = self.target.store.inspect(&played.key).await;
        if self.is_latch(name) {
            return latches::refused(&"an inspection", &found.map(drop));
        }
        let found = found.map_err(|error| error.to_string())?;
        let record = &played.record;
        let running = self.target.shape != Shape::Standing;
        // The clock runs on until the store is inspected.
        let time_left = |time| if running { Duration::ZERO } else { time };
        let expected = record.holder(now).map(|hold| {
            let time_left = time_left(now.until(hold.expires_at));
            (hold.lease, hold.count.get(), time_left, record.last_token)
        });
        let compared = found.as_ref().map(|entry| {
            let time_left = time_left(entry.time_left);
            (entry.lease, entry.count, time_left, entry.token)
        });
        let foreign = |entry: &HeldLock| entry.key != played.key || entry.client.is_some();
        if compared != expected || found.as_ref().is_some_and(foreign) {
            return Err(format!("the store returns {compared:?}, not {expected:?}"));
        }
        let queue = &record.queue;
        let waiting = queue.waiters().filter(|_| now < queue.until());
        let waiting: Vec<_> = waiting.map(|waiter| waiter.lease).collect();
        if let Some(entry) = &found
            && !running
            && !entry
                .waiters
                .iter()
                .map(|waiter| waiter.lease)
                .eq(waiting.iter().copied())
        {
            let found = &entry.waiters;
            return Err(format!(
                "the store returns the waiters {found:?}, not {waiting:?}"
            ));
        }
        let found = found.map(|entry| (entry.lease, entry.count));
        let checked = played.checker.inspect(found, now);
        checked.map_err(|violation| violation.to_string())
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
            let ran = Duration::from_micros(u64::try_from(ran).unwrap_or_default());
            self.took += ran;
            self.longest = self.longest.max(ran);
        }
        self.now = Some(now);
        self.moved = 0;
        Ok(())
    }
}

fn alike(mut actual: Outcome, expected: Outcome, slack: Duration) -> bool {
    match (&mut actual, expected) {
        (
            Outcome::Refused { time_left, .. },
            Outcome::Refused {
                time_left: exact, ..
            },
        ) if time_left.abs_diff(exact) <= slack => {
            *time_left = exact;
        }
        _ => {}
    }
    actual == expected
}
