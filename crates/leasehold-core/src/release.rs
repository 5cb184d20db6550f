//! Releases that the store has not confirmed.
//!
//! A release that failed is repeated until the store confirms it, or until the lease has expired by
//! itself. The releases of one shard are repeated together, at intervals that grow as long as the shard
//! confirms none of them.
//!
//! A request without a reply can still be applied, late and with a full ttl. So its lease id is
//! [released once more](LateRelease) after that time.
//!
//! [`PendingReleases`] is a state machine without I/O: its host sends the releases that it
//! [begins](PendingReleases::begin), and those that [`PendingReleases::poll`] returns.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::contention;
use crate::id::LeaseId;
use crate::time::{Instant, Ttl};

/// The shortest interval between two attempts to release the same lease.
const REPEAT_MIN: Duration = Duration::from_millis(200);

/// A second release of a lease id, after a request without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateRelease {
    /// From when on that request can have no lasting effect.
    pub at: Instant,
    /// Whether there was only one such request. Then a first release that found its grant is enough.
    pub single: bool,
}

/// What a release must not overtake on its way to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOrder {
    /// The requests that were sent before it: the acquire may be among them.
    Behind,
    /// Nothing: all requests of the lease have a reply, or were given up.
    Any,
}

/// An abandoned lease id that the store may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbandonedLease {
    /// The lease id.
    pub lease: LeaseId,
    /// The longest ttl with which the store may have granted it.
    pub ttl: Ttl,
    /// The second release, if one is needed.
    pub late: Option<LateRelease>,
    /// What its release must not overtake.
    pub order: ReleaseOrder,
}

/// The reply to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseReply<S> {
    /// The store applied it, and the lease did or did not hold the lock.
    Applied {
        /// Whether it held the lock.
        held: bool,
    },
    /// The store did not apply it, or did not reply. The releases of this shard are repeated together.
    Failed(S),
}

/// The releases of a client: `R` is a release, `S` a shard.
#[derive(Debug)]
pub struct PendingReleases<R, S> {
    /// The releases that the store has not confirmed, in the order in which they were begun.
    releases: BTreeMap<u64, Pending<R, S>>,
    shards: BTreeMap<S, Repetition>,
    late: BTreeMap<(Instant, u64), R>,
    begun: u64,
}

#[derive(Debug)]
struct Pending<R, S> {
    release: R,
    /// When the lease has expired in the store at the latest.
    expires: Instant,
    late: Option<LateRelease>,
    state: PendingState<S>,
}

#[derive(Clone, Copy, Debug)]
enum PendingState<S> {
    /// Sent and without a reply. A repeated one names the shard at which it failed.
    InFlight(Option<S>),
    /// To be repeated.
    Failed(S),
}

/// The failed releases of one shard.
#[derive(Debug)]
struct Repetition {
    /// Since when the shard has confirmed none.
    since: Instant,
    /// How many this poll sends again.
    sending: usize,
    /// How many are sent again and without a reply.
    in_flight: usize,
    /// When to send them again, once all have a reply.
    at: Instant,
}

impl<R, S> Default for PendingReleases<R, S> {
    fn default() -> Self {
        Self {
            releases: BTreeMap::new(),
            shards: BTreeMap::new(),
            late: BTreeMap::new(),
            begun: 0,
        }
    }
}

/// The progress of a release after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseProgress {
    /// The store confirmed it.
    Confirmed,
    /// It failed, and is repeated.
    Repeated,
    /// It failed, and is not repeated: the lease has expired by itself.
    GivenUp,
}

impl<R: Clone, S: Copy + Ord> PendingReleases<R, S> {
    /// Adds a release that the host sends now, and returns its number. `expires` is when the lease expires in
    /// the store at the latest.
    pub fn begin(&mut self, release: R, expires: Instant, late: Option<LateRelease>) -> u64 {
        let number = self.begun;
        self.begun += 1;
        let pending = Pending {
            release,
            expires,
            late,
            state: PendingState::InFlight(None),
        };
        self.releases.insert(number, pending);
        number
    }

    /// Processes the reply to a release. `spread` is a random number from 0 to 1, so that clients whose
    /// releases fail together do not repeat them together.
    pub fn handle_reply(
        &mut self,
        number: u64,
        reply: ReleaseReply<S>,
        now: Instant,
        spread: f64,
    ) -> ReleaseProgress {
        let Some(pending) = self.releases.get_mut(&number) else {
            return ReleaseProgress::Confirmed;
        };
        let confirmed = matches!(reply, ReleaseReply::Applied { .. });
        let repeated = std::mem::replace(&mut pending.state, PendingState::InFlight(None));
        let progress = match reply {
            ReleaseReply::Failed(shard) if now < pending.expires => {
                pending.state = PendingState::Failed(shard);
                self.shards
                    .entry(shard)
                    .or_insert_with(|| Repetition::new(now, spread));
                ReleaseProgress::Repeated
            }
            ReleaseReply::Failed(_) => ReleaseProgress::GivenUp,
            ReleaseReply::Applied { .. } => ReleaseProgress::Confirmed,
        };
        if progress != ReleaseProgress::Repeated
            && let Some(Pending { release, late, .. }) = self.releases.remove(&number)
        {
            let held = reply == ReleaseReply::Applied { held: true };
            if let Some(late) = late.filter(|late| !(late.single && held)) {
                self.late.insert((late.at, number), release);
            }
        }
        if let PendingState::InFlight(Some(shard)) = repeated {
            self.handle_repeated(shard, confirmed, now, spread);
        }
        progress
    }

    /// Returns the releases to send now: those to repeat, with their numbers, and the late ones, whose replies
    /// are ignored.
    #[must_use]
    pub fn poll(&mut self, now: Instant) -> Vec<(Option<u64>, R)> {
        let mut due = Vec::new();
        while let Some(first) = self.late.first_entry()
            && first.key().0 <= now
        {
            due.push((None, first.remove()));
        }
        for (number, pending) in &mut self.releases {
            if let PendingState::Failed(shard) = pending.state
                && let Some(repetition) = self.shards.get_mut(&shard)
                && repetition.is_due(now)
            {
                repetition.sending += 1;
                pending.state = PendingState::InFlight(Some(shard));
                due.push((Some(*number), pending.release.clone()));
            }
        }
        for repetition in self.shards.values_mut() {
            repetition.in_flight += std::mem::take(&mut repetition.sending);
        }
        due
    }

    /// When to poll next. `None`: only after the next reply.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let repetitions = self.shards.values();
        let repeated = repetitions.filter(|repetition| repetition.in_flight == 0);
        let late = self.late.keys().map(|(at, _)| *at).next();
        repeated.map(|repetition| repetition.at).chain(late).min()
    }

    /// A release that is not confirmed.
    pub fn release_mut(&mut self, number: u64) -> Option<&mut R> {
        self.releases
            .get_mut(&number)
            .map(|pending| &mut pending.release)
    }

    /// The releases that are not confirmed, in the order in which they were begun.
    pub fn unconfirmed(&self) -> impl ExactSizeIterator<Item = &R> {
        self.releases.values().map(|pending| &pending.release)
    }

    /// Whether failed releases wait for their repetition.
    #[cfg(test)]
    fn has_failed(&self) -> bool {
        let mut repetitions = self.shards.values();
        repetitions.any(|repetition| repetition.in_flight == 0)
    }

    /// Processes the reply to one of the repeated releases of a shard.
    fn handle_repeated(&mut self, shard: S, confirmed: bool, now: Instant, spread: f64) {
        let Some(repetition) = self.shards.get_mut(&shard) else {
            return;
        };
        repetition.in_flight -= 1;
        if confirmed {
            repetition.since = now;
        }
        if repetition.in_flight > 0 {
            return;
        }
        let mut pending = self.releases.values();
        if pending.any(|pending| matches!(pending.state, PendingState::Failed(s) if s == shard)) {
            repetition.repeat(now, spread);
        } else {
            self.shards.remove(&shard);
        }
    }
}

impl Repetition {
    fn new(now: Instant, spread: f64) -> Self {
        let mut repetition = Self {
            since: now,
            sending: 0,
            in_flight: 0,
            at: now,
        };
        repetition.repeat(now, spread);
        repetition
    }

    /// Schedules the next repetition, after an interval that grows with the time of the failure.
    fn repeat(&mut self, now: Instant, spread: f64) {
        let interval = contention::retry_after(now.since(self.since)).max(REPEAT_MIN);
        self.at = now.after(contention::upper_half(interval, spread));
    }

    fn is_due(&self, now: Instant) -> bool {
        self.in_flight == 0 && self.at <= now
    }
}

#[cfg(test)]
mod tests;
