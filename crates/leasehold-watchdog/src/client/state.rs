//! The mutable state of a client.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use leasehold::__private::wire::{Refusal, Registration};
use leasehold_core::watchdog::{ClientMonitor, Liveness, Terms};
use leasehold_core::{Instant, Name, Ttl};
use tokio::sync::Notify;

use super::members::Members;
use super::{About, Client, Program};
use crate::journal::{Entry, Lease};
use crate::monitors::Tally;

/// The mutable state of a client.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) charge: ClientMonitor<Name>,
    pub(super) members: Members,
    /// The program that sent the last hello.
    pub(super) program: Program,
    /// The active connection, which is notified when another replaces it.
    pub(super) speaker: Option<Arc<Notify>>,
    pub(super) tallies: Vec<Arc<Tally>>,
    /// The liveness that was logged last.
    pub(super) noted: Liveness,
}

/// The locked state of a client. Updates the lease counts when it is dropped.
pub(crate) struct Lock<'a> {
    pub(super) client: &'a Client,
    pub(super) state: MutexGuard<'a, State>,
    pub(super) leases_before: usize,
}

impl Deref for Lock<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Lock<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let leases = self.state.charge.len();
        for tally in &self.state.tallies {
            tally.change(self.leases_before, leases);
        }
    }
}

impl State {
    /// Whether this connection is the active one.
    pub(crate) fn speaks(&self, connection: &Arc<Notify>) -> bool {
        let speaker = self.speaker.as_ref();
        speaker.is_some_and(|speaker| Arc::ptr_eq(speaker, connection))
    }

    /// The number of processes that must end before it is dead.
    pub(crate) fn processes(&self) -> usize {
        self.members.alive()
    }

    /// The likely reason for its silence, for people.
    pub(crate) fn why(&self) -> String {
        self.members.why()
    }
}

impl Lock<'_> {
    /// Handles a sign of life.
    pub(super) fn heard(&mut self, now: Instant) {
        self.charge.heard(now);
        self.note(now);
    }

    /// Logs a change of its liveness.
    pub(crate) fn note(&mut self, now: Instant) {
        let condition = self.charge.condition(now);
        let before = std::mem::replace(&mut self.noted, condition);
        if std::mem::discriminant(&before) == std::mem::discriminant(&condition) {
            return;
        }
        let (client, leases) = (self.client, self.charge.len());
        let About {
            host,
            pid,
            program,
            label,
        } = &client.about;
        let id = client.id;
        match condition {
            Liveness::Alive => {
                client.write(Entry::Heard);
                tracing::info!(client = %id, host, pid, program, label, "a client renews its leases itself again");
            }
            Liveness::Silent { since } => {
                client.write(|id| Entry::Silent(id, since.as_nanos()));
                let why = self.why();
                tracing::warn!(client = %id, host, pid, program, label, leases, why, "a client is silent, renewing its leases");
            }
            Liveness::Abandoned => {
                tracing::warn!(client = %id, host, pid, program, label, leases, "a client is silent for too long, its leases are not renewed any more");
            }
            Liveness::Unknown => {
                tracing::info!(client = %id, host, pid, program, label, leases, "a client is not connected any more");
            }
            Liveness::Dead => {
                metrics::counter!("leasehold_watchdog_deaths_total").increment(1);
                tracing::info!(client = %id, host, pid, program, label, leases, "a client is dead, releasing its leases");
            }
        }
    }

    pub(super) fn register(
        &mut self,
        registration: &Registration,
        leases_max: usize,
        now: Instant,
    ) -> Result<(), Refusal> {
        let number = registration.number;
        let name = Name::parse(&registration.name).map_err(|_| Refusal::Value)?;
        let terms = terms(registration, now).ok_or(Refusal::Value)?;
        match self.charge.lease(number) {
            // A lease holds one lock.
            Some((known, _)) if *known != name => return Err(Refusal::Value),
            Some(_) => {}
            None => {
                let leases = self.charge.len();
                // The registrations of this batch are not counted yet.
                let full = |tally: &Arc<Tally>| !tally.has_room(self.leases_before, leases);
                if leases >= leases_max || self.tallies.iter().any(full) {
                    return Err(Refusal::Leases);
                }
            }
        }
        self.client
            .write(|id| Entry::Lease(id, number, saved(&name, terms)));
        self.charge.register(number, terms, name, now);
        Ok(())
    }

    pub(super) fn unregister(&mut self, number: u64) {
        if self.charge.lease(number).is_some() {
            self.client.write(|id| Entry::Left(id, number));
            self.charge.unregister(number);
        }
    }
}

/// A lease as a record of the journal.
pub(super) fn saved(name: &Name, terms: Terms) -> Lease {
    Lease {
        name: name.to_string(),
        ttl_ms: terms.ttl.as_millis(),
        patience_ms: u64::try_from(terms.patience.as_millis()).unwrap_or(u64::MAX),
        keep_until: terms.keep_until.as_nanos(),
    }
}

/// A lease from a record of the journal. `None`: the record is invalid.
pub(super) fn restored(lease: &Lease) -> Option<(Name, Terms)> {
    let terms = Terms {
        ttl: Ttl::from_millis(lease.ttl_ms)?,
        patience: Duration::from_millis(lease.patience_ms).max(Terms::PATIENCE_MIN),
        keep_until: Instant::from_nanos(lease.keep_until),
    };
    Some((Name::parse(&lease.name).ok()?, terms))
}

/// The terms of a registration. `None`: a value is out of range.
fn terms(registration: &Registration, now: Instant) -> Option<Terms> {
    let ttl = Ttl::checked(Duration::from_millis(registration.ttl_ms.into()))?;
    let patience = Duration::from_millis(registration.patience_ms.into());
    let can_be = Terms::PATIENCE_MIN <= patience && patience <= ttl.as_duration();
    let keep_until = match registration.keep_ms {
        Some(span) => now.after(Duration::from_millis(span)),
        None => Terms::NO_END,
    };
    can_be.then_some(Terms {
        ttl,
        patience,
        keep_until,
    })
}
