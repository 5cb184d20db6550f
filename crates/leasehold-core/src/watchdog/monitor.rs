//! The monitor of one client: its liveness, and the actions of a node for its leases.
//!
//! ```text
//!             silent for a patience            silent for max_pause
//!   Alive ----------------------------> Silent ----------------------> Abandoned
//!     ^--------- heard of --------------'--------- heard of ------------'
//!
//!   proof of death, in any of them: Dead, and every lease is released
//!   no evidence of life any more:   Unknown, and nothing is done
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use super::terms::{Terms, back};
use crate::time::{Instant, Ttl};

/// The evidence by which a node knows whether a client lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// The node watches the processes. It notices their end at once, and that proves the death.
    Processes,
    /// The connection is open: the machine at its other end replies. Its end proves nothing.
    Connection,
}

/// The liveness of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// It renews its leases itself.
    Alive,
    /// It lives and is silent: the node renews its leases.
    Silent {
        /// When its last message was received.
        since: Instant,
    },
    /// It is silent for so long that its leases are not renewed any more.
    Abandoned,
    /// It is unknown whether it lives: there are no actions for it.
    Unknown,
    /// It is dead: its leases are released.
    Dead,
}

/// An action in the store for a lease.
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
    /// The lease does not hold its lock any more, by this action or before.
    Over,
    /// The store did not do it, or the effect is unknown.
    Failed,
}

/// One client in the monitor of a node. `T` is what the caller needs for an action: which lock it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientMonitor<T> {
    evidence: Evidence,
    max_pause: Duration,
    /// When it was last heard of.
    heard: Instant,
    connected: bool,
    /// When its death was proven.
    died: Option<Instant>,
    leases: BTreeMap<u64, Watched<T>>,
    /// The shortest patience of its leases, or less.
    patience: Duration,
    /// No lease can be due before this instant while the client is silent.
    idle_until: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Watched<T> {
    subject: T,
    terms: Terms,
    /// When the last renewal was sent that the store confirmed.
    renewed: Option<Instant>,
    /// Not before this instant again: an action failed.
    pause_until: Instant,
    under_way: Option<WatchdogAction>,
}

impl<T> Watched<T> {
    /// When it is to be renewed if the client was last heard of at `heard`. `None`: never.
    fn due(&self, heard: Instant) -> Option<Instant> {
        let last = self.renewed.map_or(heard, |renewed| renewed.max(heard));
        let due = last.after(self.terms.patience).max(self.pause_until);
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
            heard: now,
            connected: true,
            died: None,
            leases: BTreeMap::new(),
            patience: Duration::MAX,
            idle_until: now,
        }
    }

    /// Notes a message of the client.
    pub fn heard(&mut self, now: Instant) {
        self.heard = self.heard.max(now);
    }

    /// Notes a new connection: the client registers its leases anew.
    pub fn connected(&mut self, now: Instant) {
        self.connected = true;
        self.heard(now);
    }

    /// Notes the end of the connection. It proves nothing about a watched process. Without such a process it
    /// is unknown whether the client lives.
    pub fn disconnected(&mut self) {
        self.connected = false;
    }

    /// Notes the end of all its processes, which the end of a connection does not prove.
    pub fn died(&mut self, now: Instant) {
        if self.evidence == Evidence::Processes {
            self.died.get_or_insert(now);
        }
    }

    /// Adds a lease, or changes its terms.
    pub fn register(&mut self, number: u64, terms: Terms, subject: T, now: Instant) {
        self.heard(now);
        let before = self.leases.get(&number);
        let watched = Watched {
            subject,
            terms,
            renewed: before.and_then(|before| before.renewed),
            pause_until: Instant::default(),
            under_way: before.and_then(|before| before.under_way),
        };
        self.leases.insert(number, watched);
        self.patience = self.patience.min(terms.patience);
        self.idle_until = now;
    }

    /// Removes a lease.
    pub fn unregister(&mut self, number: u64) {
        self.leases.remove(&number);
    }

    /// The lease of a number.
    #[must_use]
    pub fn lease(&self, number: u64) -> Option<(&T, Terms)> {
        let watched = self.leases.get(&number)?;
        Some((&watched.subject, watched.terms))
    }

    /// The instant until which the store is sure to keep a lease, because the node renewed it.
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

    /// When it was last heard of.
    #[must_use]
    pub const fn last_heard(&self) -> Instant {
        self.heard
    }

    /// The liveness of the client.
    #[must_use]
    pub fn condition(&self, now: Instant) -> Liveness {
        let silent = now.since(self.heard);
        if self.died.is_some() {
            Liveness::Dead
        } else if !self.is_seen() {
            Liveness::Unknown
        } else if silent >= self.max_pause {
            Liveness::Abandoned
        } else if silent >= self.patience && !self.leases.is_empty() {
            Liveness::Silent { since: self.heard }
        } else {
            Liveness::Alive
        }
    }

    /// Whether there is evidence that it lives, as long as its death is not proven.
    fn is_seen(&self) -> bool {
        self.evidence == Evidence::Processes || self.connected
    }

    /// Whether there are no more actions for it. Its remaining leases expire by themselves.
    #[must_use]
    pub fn is_over(&self, now: Instant) -> bool {
        match self.condition(now) {
            Liveness::Dead => self.leases.is_empty(),
            Liveness::Unknown => true,
            Liveness::Abandoned => !self.connected,
            // Its processes may end at any time, and it may come back.
            Liveness::Alive | Liveness::Silent { .. } => !self.connected && self.leases.is_empty(),
        }
    }

    /// Returns the actions that are due. The result of each must be passed to [`ClientMonitor::done`].
    pub fn poll(&mut self, now: Instant) -> Vec<(u64, WatchdogAction)> {
        match self.condition(now) {
            Liveness::Dead => self.releases(now),
            Liveness::Silent { .. } if now >= self.idle_until => self.renewals(now),
            _ => Vec::new(),
        }
    }

    /// A release is sent beside a renewal in flight: their order does not matter.
    fn releases(&mut self, now: Instant) -> Vec<(u64, WatchdogAction)> {
        let died = self.died.unwrap_or(now);
        // The lease has expired by then, whichever program renewed it last.
        self.leases
            .retain(|_, watched| now < died.after(watched.terms.ttl.as_duration()));
        let mut actions = Vec::new();
        for (number, watched) in &mut self.leases {
            let action = WatchdogAction::Release(watched.terms.ttl);
            if watched.under_way != Some(action) && now >= watched.pause_until {
                watched.under_way = Some(action);
                actions.push((*number, action));
            }
        }
        actions
    }

    fn renewals(&mut self, now: Instant) -> Vec<(u64, WatchdogAction)> {
        let mut actions = Vec::new();
        let mut next = Instant::from_nanos(u64::MAX);
        let mut patience = Duration::MAX;
        for (number, watched) in &mut self.leases {
            patience = patience.min(watched.terms.patience);
            let Some(due) = watched.due(self.heard) else {
                continue;
            };
            // It may have been due for long: a node can be stopped, too.
            if watched.under_way.is_some() || now >= watched.terms.keep_until {
                continue;
            }
            if now < due {
                next = next.min(due);
                continue;
            }
            let action = WatchdogAction::Renew(watched.terms.ttl);
            watched.under_way = Some(action);
            actions.push((*number, action));
        }
        self.patience = patience;
        self.idle_until = next;
        actions
    }

    /// Returns the last actions of a node that is about to stop: each lease that it keeps alive is renewed once
    /// more, whether due or not, so that others have as much time as possible to take over. The result of each
    /// must be passed to [`ClientMonitor::done`].
    pub fn hand_over(&mut self, now: Instant) -> Vec<(u64, WatchdogAction)> {
        if !matches!(self.condition(now), Liveness::Silent { .. }) {
            return Vec::new();
        }
        let mut actions = Vec::new();
        for (number, watched) in &mut self.leases {
            if watched.under_way.is_none() && now < watched.terms.keep_until {
                let action = WatchdogAction::Renew(watched.terms.ttl);
                watched.under_way = Some(action);
                actions.push((*number, action));
            }
        }
        actions
    }

    /// Whether an action that has waited is still wanted. If not, it must not be sent, and counts as failed.
    #[must_use]
    pub fn is_wanted(&self, number: u64, action: WatchdogAction, now: Instant) -> bool {
        let Some(watched) = self.leases.get(&number) else {
            return false;
        };
        let alive = matches!(
            self.condition(now),
            Liveness::Alive | Liveness::Silent { .. }
        );
        match action {
            WatchdogAction::Renew(_) => alive && now < watched.terms.keep_until,
            WatchdogAction::Release(_) => self.died.is_some(),
        }
    }

    /// Processes the result of an action that was sent at `sent`.
    pub fn done(
        &mut self,
        number: u64,
        action: WatchdogAction,
        end: ActionResult,
        sent: Instant,
        now: Instant,
    ) {
        if end == ActionResult::Over {
            self.leases.remove(&number);
            return;
        }
        let Some(watched) = self.leases.get_mut(&number) else {
            return;
        };
        if watched.under_way == Some(action) {
            watched.under_way = None;
        }
        match end {
            ActionResult::Renewed => watched.renewed = watched.renewed.max(Some(sent)),
            ActionResult::Failed | ActionResult::Over => {
                watched.pause_until = now.after(watched.terms.retry());
            }
        }
        self.idle_until = now;
    }

    /// When to call [`ClientMonitor::poll`] next if nothing happens until then. `None`: never.
    #[must_use]
    pub fn next_event(&self, now: Instant) -> Option<Instant> {
        let given_up = self.heard.after(self.max_pause);
        match self.condition(now) {
            Liveness::Dead => {
                let idle = self.leases.values().filter(|watched| {
                    watched.under_way != Some(WatchdogAction::Release(watched.terms.ttl))
                });
                idle.map(|watched| watched.pause_until.max(now)).min()
            }
            Liveness::Silent { .. } => Some(self.idle_until.max(now).min(given_up)),
            Liveness::Alive if !self.leases.is_empty() => {
                Some(self.heard.after(self.patience).min(given_up))
            }
            Liveness::Alive | Liveness::Abandoned | Liveness::Unknown => None,
        }
    }

    /// The same by a clock that is `span` behind and shows `now`. Only durations matter to a monitor, so a
    /// model that visits all states lets the clock stand still and this pass.
    #[doc(hidden)]
    pub fn back(&mut self, span: Duration, now: Instant) {
        // When a past wait ended makes no difference.
        let wait = |until: &mut Instant| {
            back(until, span);
            if *until <= now {
                *until = Instant::default();
            }
        };
        back(&mut self.heard, span);
        wait(&mut self.idle_until);
        self.died.iter_mut().for_each(|at| back(at, span));
        for watched in self.leases.values_mut() {
            watched.terms.back(span);
            watched.renewed.iter_mut().for_each(|at| back(at, span));
            wait(&mut watched.pause_until);
        }
    }
}

#[cfg(test)]
mod tests;
