//! Locks that are kept until they are lost or released.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Client, ErrorKind, Guard};
use leasehold_testkit::helper::{self, Commands};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::Shared;
use crate::clock::{self, MILLI, Nanos};
use crate::history::{HoldEvent, LeaseState, ObservationKind};

/// How often a state is read.
const INTERVAL: Duration = Duration::from_millis(50);

/// After a longer time without a reading the state is recorded, changed or not.
const GAP: Nanos = 500 * MILLI;

/// Which locks are kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct KeepConfig {
    pub(crate) clients: usize,
    /// The locks of each client. Their names are that of the process, the number of the client and that of the lock.
    pub(crate) locks: usize,
    /// Whether a lost lock is acquired again.
    pub(crate) again: bool,
    /// Whether leases are only counted. The command `count` is replied with the numbers of leases that are held, in
    /// jeopardy and lost.
    pub(crate) quiet: bool,
}

/// The state of each hold.
type HoldStates = Mutex<BTreeMap<u64, LeaseState>>;

/// A lock, its client, and what all of them share.
struct Keeping {
    shared: Arc<Shared>,
    client: Client,
    name: String,
    hold_states: Arc<HoldStates>,
    release: watch::Receiver<bool>,
    again: bool,
}

/// Keeps all locks until they are lost or released. The end of the commands ends the process immediately.
pub(super) async fn run(shared: &Arc<Shared>, config: &KeepConfig, mut commands: Commands) {
    let (release, released) = watch::channel(false);
    let hold_states = Arc::<HoldStates>::default();
    let mut locks = JoinSet::new();
    for client in 0..config.clients {
        let connected = shared.connect().await;
        for lock in 0..config.locks {
            let keeping = Keeping {
                shared: Arc::clone(shared),
                client: connected.clone(),
                name: format!("{}-{client}-{lock}", shared.config.process),
                hold_states: Arc::clone(&hold_states),
                release: released.clone(),
                again: config.again,
            };
            locks.spawn(keeping.run());
        }
    }
    let all_end = async { while locks.join_next().await.is_some() {} };
    let obey = async {
        while let Some(command) = commands.next().await {
            match &*command {
                "release" => drop(release.send_replace(true)),
                _ => {
                    let (mut held, mut jeopardy, mut lost) = (0, 0, 0);
                    for state in hold_states.lock().unwrap().values() {
                        match state {
                            LeaseState::Held(_) => held += 1,
                            LeaseState::Jeopardy(..) | LeaseState::Paused => jeopardy += 1,
                            LeaseState::Lost(_) => lost += 1,
                        }
                    }
                    helper::reply(format!("{held} {jeopardy} {lost}"));
                }
            }
        }
    };
    tokio::select! {
        () = all_end => {}
        () = obey => {}
    }
}

impl Keeping {
    async fn run(mut self) {
        loop {
            let hold = self.shared.request(&self.name, false, None);
            let guard = self.acquire(hold).await;
            if self.keep(hold, &guard).await {
                return self.shared.release(hold, guard.release()).await;
            }
            if !self.again {
                return;
            }
        }
    }

    /// Acquires the lock, however long the nodes are away.
    async fn acquire(&self, hold: u64) -> Guard {
        let mutex = self.client.mutex(&self.name).unwrap();
        loop {
            match mutex.lock().await {
                Err(error) if error.kind() == ErrorKind::Unreachable => {}
                outcome => {
                    let guard = outcome.unwrap();
                    self.shared
                        .record(hold, super::granted(&guard, self.shared.config.ttl_ms));
                    return guard;
                }
            }
        }
    }

    /// Records the states of the lease. Returns whether it is to be released, and is not lost.
    async fn keep(&mut self, hold: u64, guard: &Guard) -> bool {
        let mut states = guard.states();
        let mut interval = tokio::time::interval(INTERVAL);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut release = self.release.clone();
        let mut read = clock::now();
        loop {
            let notified = tokio::select! {
                biased;
                Some(state) = states.next() => Some(state),
                _ = interval.tick(), if !self.shared.quiet => None,
                released = release.wait_for(|release| *release) => return released.is_ok(),
            };
            let before = clock::now();
            let state = notified.unwrap_or_else(|| guard.state());
            let state = self.shared.lease_state(state);
            let last = self.hold_states.lock().unwrap().insert(hold, state.clone());
            let gap = before - std::mem::replace(&mut read, before);
            if last.as_ref() != Some(&state) || gap >= GAP {
                let state = state.clone();
                let kind = match notified.is_some() {
                    true => ObservationKind::Notification,
                    false => ObservationKind::Check,
                };
                let event = HoldEvent::Observed {
                    before,
                    state,
                    kind,
                };
                self.shared.record(hold, event);
            }
            if state.is_lost() {
                return false;
            }
        }
    }
}
