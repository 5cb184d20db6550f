//! The mutable state of a client.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use leasehold::__private::wire::{ClientInfo, Refusal, Registration};
use leasehold_core::watchdog::{ClientMonitor, Liveness, Terms};
use leasehold_core::{Instant, Name, Ttl};
use tokio::sync::Notify;

use super::processes::Processes;
use super::{Program, WatchedClient};
use crate::journal::{Change, Lease};
use crate::limits::LeaseCount;

/// The mutable state of a client.
#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) monitor: ClientMonitor<Name>,
    pub(crate) processes: Processes,
    /// The program that sent the last hello.
    pub(super) program: Program,
    /// The active connection, which is notified when another replaces it.
    pub(super) active_connection: Option<Arc<Notify>>,
    pub(super) lease_counts: Vec<Arc<LeaseCount>>,
    /// The liveness that was logged last.
    pub(super) logged_liveness: Liveness,
}

/// The locked state of a client. Updates the lease counts when it is dropped.
pub(crate) struct StateGuard<'a> {
    pub(super) client: &'a WatchedClient,
    pub(super) state: MutexGuard<'a, ClientState>,
    pub(super) leases_before: usize,
}

impl Deref for StateGuard<'_> {
    type Target = ClientState;

    fn deref(&self) -> &ClientState {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut ClientState {
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        let leases = self.state.monitor.len();
        for count in &self.state.lease_counts {
            count.change(self.leases_before, leases);
        }
    }
}

impl ClientState {
    /// Whether this connection is the active one.
    pub(crate) fn is_active(&self, connection: &Arc<Notify>) -> bool {
        let active = self.active_connection.as_ref();
        active.is_some_and(|active| Arc::ptr_eq(active, connection))
    }
}

impl StateGuard<'_> {
    /// Handles a message of the client, which proves that it is alive.
    pub(crate) fn message_received(&mut self, now: Instant) {
        self.monitor.message_received(now);
        self.log_liveness(now);
    }

    /// Logs a change of its liveness.
    pub(crate) fn log_liveness(&mut self, now: Instant) {
        let liveness = self.monitor.liveness(now);
        if liveness == Liveness::Dead && self.monitor.is_empty() {
            // An ordinary end: see `WatchedClient::log_end`.
            return;
        }
        let before = std::mem::replace(&mut self.logged_liveness, liveness);
        if std::mem::discriminant(&before) == std::mem::discriminant(&liveness) {
            return;
        }
        let (client, leases) = (self.client, self.monitor.len());
        let ClientInfo {
            host,
            pid,
            program,
            label,
            ..
        } = &client.info;
        let id = client.id;
        match liveness {
            Liveness::Alive => {
                client.write(Change::Alive);
                tracing::info!(client = %id, host, pid, program, label, "a client renews its leases itself again");
            }
            Liveness::Silent { since } => {
                client.write(Change::Silent(since.as_nanos()));
                let reason = self.processes.silence_reason();
                tracing::warn!(client = %id, host, pid, program, label, leases, reason, "a client is silent, renewing its leases");
            }
            Liveness::Abandoned => {
                tracing::warn!(client = %id, host, pid, program, label, leases, "a client is silent for too long, its leases are no longer renewed");
            }
            Liveness::Unknown => {
                tracing::info!(client = %id, host, pid, program, label, leases, "a client is no longer connected");
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
        match self.monitor.lease(number) {
            // A lease holds one lock.
            Some((registered, _)) if *registered != name => return Err(Refusal::Value),
            Some(_) => {}
            None => {
                let leases = self.monitor.len();
                // The registrations of this batch are not counted yet.
                let has_room = |count: &Arc<LeaseCount>| count.has_room(self.leases_before, leases);
                if leases >= leases_max || !self.lease_counts.iter().all(has_room) {
                    return Err(Refusal::Leases);
                }
            }
        }
        self.client
            .write(Change::Lease(number, to_record(&name, terms)));
        self.monitor.register(number, terms, name, now);
        Ok(())
    }

    pub(super) fn unregister(&mut self, number: u64) {
        if self.monitor.lease(number).is_some() {
            self.client.write(Change::Unregistered(number));
            self.monitor.unregister(number);
        }
    }
}

/// A lease as a record of the journal.
pub(super) fn to_record(name: &Name, terms: Terms) -> Lease {
    let silence_timeout_ms = terms.silence_timeout.as_millis();
    Lease {
        name: name.to_string(),
        ttl_ms: terms.ttl.as_millis(),
        silence_timeout_ms: u64::try_from(silence_timeout_ms).unwrap_or(u64::MAX),
        keep_until: terms.keep_until.as_nanos(),
    }
}

/// A lease from a record of the journal. `None`: the record is invalid.
pub(super) fn from_record(lease: &Lease) -> Option<(Name, Terms)> {
    let silence_timeout = Duration::from_millis(lease.silence_timeout_ms);
    let terms = Terms {
        ttl: Ttl::from_millis(lease.ttl_ms)?,
        silence_timeout: silence_timeout.max(Terms::SILENCE_TIMEOUT_MIN),
        keep_until: Instant::from_nanos(lease.keep_until),
    };
    Some((Name::parse(&lease.name).ok()?, terms))
}

/// The terms of a registration. `None`: a value is out of range.
fn terms(registration: &Registration, now: Instant) -> Option<Terms> {
    let ttl = Ttl::checked(Duration::from_millis(registration.ttl_ms.into()))?;
    let silence_timeout = Duration::from_millis(registration.silence_timeout_ms.into());
    let keep = registration.keep_ms.map(Duration::from_millis);
    let is_valid = (Terms::SILENCE_TIMEOUT_MIN..=ttl.as_duration()).contains(&silence_timeout);
    is_valid.then_some(Terms {
        ttl,
        silence_timeout,
        keep_until: keep.map_or(Terms::NO_END, |keep| now.after(keep)),
    })
}
