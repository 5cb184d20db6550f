//! The liveness of one client as a node sees it, and the actions for its leases.
//!
//! ```text
//!           silent for a silence timeout        silent for max_pause
//!   Alive ----------------------------> Silent ----------------------> Abandoned
//!     ^--------- a message -------------'----------- a message ---------'
//!
//!   proof of death, in any of them: Dead, and every lease is released
//!   no more evidence of life:       Unknown, and there are no actions
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use super::terms::{Terms, back};
use crate::time::{Instant, Ttl};

/// The evidence that a node has of a client's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The node watches the processes themselves: their end is noticed immediately, and proves the death.
    Processes,
    /// The connection exists: the machine at its other end responds. Its end proves nothing.
    Connection,
}

/// The liveness of a client, as a node sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It renews its leases itself.
    Alive,
    /// It lives and is silent: the node renews its leases.
    Silent {
        /// When its last message was received.
        since: Instant,
    },
    /// It has been silent for so long that its leases are no longer renewed.
    Abandoned,
    /// There is no evidence of its life: there are no actions for its leases.
    Unknown,
    /// It is dead: its leases are released.
    Dead,
}

/// An operation that a node sends to the store for a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WatchdogAction {
    /// Renew it for this ttl.
    Renew(Ttl),
    /// Release it. The ttl is the registered one.
    Release(Ttl),
}

/// The result of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionResult {
    /// The store has renewed the lease.
    Renewed,
    /// The lease no longer holds its lock, by this action or before.
    NotHeld,
    /// The store did not apply it, or its effect is unknown.
    Failed,
}

/// A node's view of one client. `T` is what the caller needs for an action: which lock it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientMonitor<T> {
    evidence: Evidence,
    max_pause: Duration,
    /// When its last message was received.
    last_received: Instant,
    connected: bool,
    /// When its death was proven.
    died: Option<Instant>,
    leases: BTreeMap<u64, Watched<T>>,
    /// The shortest silence timeout of its leases, or less.
    silence_timeout: Duration,
    /// No lease can be due before this instant while the client is silent.
    idle_until: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Watched<T> {
    subject: T,
    terms: Terms,
    /// When the last renewal was sent that the store confirmed.
    renewed: Option<Instant>,
    /// When the next action may be sent, after one that failed.
    retry_at: Instant,
    in_flight: Option<WatchdogAction>,
}

impl<T> Watched<T> {
    /// When it is renewed if the last message of the client was received at `received`. `None`: never.
    fn due(&self, received: Instant) -> Option<Instant> {
        let last = self
            .renewed
            .map_or(received, |renewed| renewed.max(received));
        let due = last.after(self.terms.silence_timeout).max(self.retry_at);
        (due < self.terms.keep_until).then_some(due)
    }
}

impl<T> ClientMonitor<T> {
    /// A client that has just connected.
    #[must_use]
    pub fn new(evidence: Evidence, max_pause: Duration, now: Instant) -> Self {
        Self {
            evidence,
            max_pause,
            last_received: now,
            connected: true,
            died: None,
            leases: BTreeMap::new(),
            silence_timeout: Duration::MAX,
            idle_until: now,
        }
    }

    /// A message was received.
    pub fn message_received(&mut self, now: Instant) {
        self.last_received = self.last_received.max(now);
    }

    /// It has connected again, and registers its leases anew.
    pub fn connected(&mut self, now: Instant) {
        self.connected = true;
        self.message_received(now);
    }

    /// Its connection ended. That proves nothing of a process, and is the end of the evidence otherwise.
    pub fn disconnected(&mut self) {
        self.connected = false;
    }

    /// All its processes have ended. A connection cannot prove that.
    pub fn died(&mut self, now: Instant) {
        if self.evidence == Evidence::Processes {
            self.died.get_or_insert(now);
        }
    }

    /// It has registered a lease, or changed the terms of one.
    pub fn register(&mut self, number: u64, terms: Terms, subject: T, now: Instant) {
        self.message_received(now);
        let before = self.leases.get(&number);
        let watched = Watched {
            subject,
            terms,
            renewed: before.and_then(|before| before.renewed),
            retry_at: Instant::default(),
            in_flight: before.and_then(|before| before.in_flight),
        };
        self.leases.insert(number, watched);
        self.silence_timeout = self.silence_timeout.min(terms.silence_timeout);
        self.idle_until = now;
    }

    /// It has unregistered a lease.
    pub fn unregister(&mut self, number: u64) {
        self.leases.remove(&number);
    }

    /// The lease of a number.
    #[must_use]
    pub fn lease(&self, number: u64) -> Option<(&T, Terms)> {
        let watched = self.leases.get(&number)?;
        Some((&watched.subject, watched.terms))
    }

    /// The instant until which the store certainly keeps a lease, because the node renewed it.
    #[must_use]
    pub fn kept_until(&self, number: u64) -> Option<Instant> {
        let watched = self.leases.get(&number)?;
        let sent = watched.renewed?;
        Some(crate::time::deadline(sent, watched.terms.ttl))
    }

    /// Its leases.
    pub fn leases(&self) -> impl Iterator<Item = (u64, &T, Terms)> {
        let leases = self.leases.iter();
        leases.map(|(number, watched)| (*number, &watched.subject, watched.terms))
    }

    /// How many leases it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.leases.len()
    }

    /// Whether it has no leases.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.leases.is_empty()
    }

    /// Whether it is connected.
    #[must_use]
    pub const fn is_connected(&self) -> bool {
        self.connected
    }

    /// When its last message was received.
    #[must_use]
    pub const fn last_received(&self) -> Instant {
        self.last_received
    }

    /// The liveness of the client.
    #[must_use]
    pub fn liveness(&self, now: Instant) -> Liveness {
        let silent = now.since(self.last_received);
        if self.died.is_some() {
            Liveness::Dead
        } else if !self.has_evidence() {
            Liveness::Unknown
        } else if silent >= self.max_pause {
            Liveness::Abandoned
        } else if silent >= self.silence_timeout && !self.leases.is_empty() {
            Liveness::Silent {
                since: self.last_received,
            }
        } else {
            Liveness::Alive
        }
    }

    /// Whether there is evidence that it lives, as long as its death is not proven.
    fn has_evidence(&self) -> bool {
        self.evidence == Evidence::Processes || self.connected
    }

    /// Whether there will be no more actions. Its remaining leases expire by themselves.
    #[must_use]
    pub fn is_finished(&self, now: Instant) -> bool {
        match self.liveness(now) {
            Liveness::Dead => self.leases.is_empty(),
            Liveness::Unknown => true,
            Liveness::Abandoned => !self.connected && now >= self.expiry(),
            // Its processes may end at any time, and it may connect again.
            Liveness::Alive | Liveness::Silent { .. } => !self.connected && self.leases.is_empty(),
        }
    }

    /// When the leases of an abandoned client have expired. A longer one is released if its processes end before.
    fn expiry(&self) -> Instant {
        let ttls = self.leases.values().map(|it| it.terms.ttl.as_duration());
        let last_renewal = self.last_received.after(self.max_pause);
        last_renewal.after(ttls.max().unwrap_or_default())
    }

    /// The actions that are due. The result of each must be passed to [`ClientMonitor::handle_result`].
    pub fn poll(&mut self, now: Instant) -> Vec<(u64, WatchdogAction)> {
        match self.liveness(now) {
            Liveness::Dead => self.releases(now),
            Liveness::Silent { .. } if now >= self.idle_until => self.renewals(now),
            _ => Vec::new(),
        }
    }

    /// A release is sent although a renewal is in flight: their order does not matter.
    fn releases(&mut self, now: Instant) -> Vec<(u64, WatchdogAction)> {
        let died = self.died.unwrap_or(now);
        // By then it has expired, whoever renewed it last.
        self.leases
            .retain(|_, watched| now < died.after(watched.terms.ttl.as_duration()));
        let mut actions = Vec::new();
        for (number, watched) in &mut self.leases {
            let action = WatchdogAction::Release(watched.terms.ttl);
            if watched.in_flight != Some(action) && now >= watched.retry_at {
                watched.in_flight = Some(action);
                actions.push((*number, action));
            }
        }
        actions
    }

    fn renewals(&mut self, now: Instant) -> Vec<(u64, WatchdogAction)> {
        let mut actions = Vec::new();
        let mut next = Instant::from_nanos(u64::MAX);
        let mut silence_timeout = Duration::MAX;
        for (number, watched) in &mut self.leases {
            silence_timeout = silence_timeout.min(watched.terms.silence_timeout);
            let Some(due) = watched.due(self.last_received) else {
                continue;
            };
            // It may have been due for long: a node can also be stopped.
            if watched.in_flight.is_some() || now >= watched.terms.keep_until {
                continue;
            }
            if now < due {
                next = next.min(due);
                continue;
            }
            let action = WatchdogAction::Renew(watched.terms.ttl);
            watched.in_flight = Some(action);
            actions.push((*number, action));
        }
        self.silence_timeout = silence_timeout;
        self.idle_until = next;
        actions
    }

    /// The actions before the node stops: the leases that it keeps alive are renewed once more, so that other nodes
    /// have as much time as possible to take over. The result of each must be passed to [`ClientMonitor::handle_result`].
    pub fn hand_over(&mut self, now: Instant) -> Vec<(u64, WatchdogAction)> {
        if !matches!(self.liveness(now), Liveness::Silent { .. }) {
            return Vec::new();
        }
        let mut actions = Vec::new();
        for (number, watched) in &mut self.leases {
            if watched.in_flight.is_none() && now < watched.terms.keep_until {
                let action = WatchdogAction::Renew(watched.terms.ttl);
                watched.in_flight = Some(action);
                actions.push((*number, action));
            }
        }
        actions
    }

    /// Whether an action that was delayed is still wanted. If not, it must not be sent, and has failed.
    #[must_use]
    pub fn is_wanted(&self, number: u64, action: WatchdogAction, now: Instant) -> bool {
        let Some(watched) = self.leases.get(&number) else {
            return false;
        };
        let alive = matches!(
            self.liveness(now),
            Liveness::Alive | Liveness::Silent { .. }
        );
        match action {
            WatchdogAction::Renew(_) => alive && now < watched.terms.keep_until,
            WatchdogAction::Release(_) => self.died.is_some(),
        }
    }

    /// The result of an action that was sent at `sent`.
    pub fn handle_result(
        &mut self,
        number: u64,
        action: WatchdogAction,
        result: ActionResult,
        sent: Instant,
        now: Instant,
    ) {
        if result == ActionResult::NotHeld {
            self.leases.remove(&number);
            return;
        }
        let Some(watched) = self.leases.get_mut(&number) else {
            return;
        };
        if watched.in_flight == Some(action) {
            watched.in_flight = None;
        }
        match result {
            ActionResult::Renewed => watched.renewed = watched.renewed.max(Some(sent)),
            ActionResult::Failed | ActionResult::NotHeld => {
                watched.retry_at = now.after(watched.terms.retry());
            }
        }
        self.idle_until = now;
    }

    /// When to call [`ClientMonitor::poll`] next if nothing happens until then. `None`: never.
    #[must_use]
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let given_up = self.last_received.after(self.max_pause);
        match self.liveness(now) {
            Liveness::Dead => {
                let idle = self.leases.values().filter(|watched| {
                    watched.in_flight != Some(WatchdogAction::Release(watched.terms.ttl))
                });
                idle.map(|watched| watched.retry_at.max(now)).min()
            }
            Liveness::Silent { .. } => Some(self.idle_until.max(now).min(given_up)),
            Liveness::Alive if !self.leases.is_empty() => {
                Some(self.last_received.after(self.silence_timeout).min(given_up))
            }
            Liveness::Abandoned if !self.connected => {
                // From then on it is finished.
                Some(self.expiry()).filter(|expiry| now < *expiry)
            }
            Liveness::Alive | Liveness::Abandoned | Liveness::Unknown => None,
        }
    }

    /// The same by a clock that is `span` behind and shows `now`. Only durations matter here, so a model that
    /// visits all states lets the clock stand still and this pass.
    #[doc(hidden)]
    pub fn back(&mut self, span: Duration, now: Instant) {
        // When a wait ended makes no difference.
        let wait = |until: &mut Instant| {
            back(until, span);
            if *until <= now {
                *until = Instant::default();
            }
        };
        back(&mut self.last_received, span);
        wait(&mut self.idle_until);
        self.died.iter_mut().for_each(|at| back(at, span));
        for watched in self.leases.values_mut() {
            watched.terms.back(span);
            watched.renewed.iter_mut().for_each(|at| back(at, span));
            wait(&mut watched.retry_at);
        }
    }
}

#[cfg(test)]
mod tests;
