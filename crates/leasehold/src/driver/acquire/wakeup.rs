//! The sleep of a task that waits for a lock, until a timeout or an event of the store.

use leasehold_core::Instant;
use leasehold_core::acquisition::{self, AcquireNotice, Acquisition};
use tokio::sync::Notify;

use super::super::context::AcquireOptions;
use super::super::primitives::{Mutex, MutexGuard, lock};
use crate::Error;
use crate::clock::Clock;

/// An acquisition, shared by the task that drives it and by those that receive events.
pub(crate) struct SharedAcquisition {
    pub(crate) options: AcquireOptions,
    state: Mutex<AcquisitionState>,
    wakeup: Notify,
}

pub(crate) struct AcquisitionState {
    pub(crate) machine: Acquisition,
    /// What the store replied last.
    pub(crate) last: Option<LastReply>,
}

/// The last reply of the store to the tasks that wait for a lock.
#[derive(Clone, Debug)]
pub(crate) enum LastReply {
    Refused,
    Failed(Error),
}

impl SharedAcquisition {
    pub(crate) fn new(
        options: AcquireOptions,
        machine: Acquisition,
        last: Option<LastReply>,
    ) -> Self {
        Self {
            options,
            state: Mutex::new(AcquisitionState { machine, last }),
            wakeup: Notify::new(),
        }
    }

    /// The acquisition of the next task in the queue, with other options or a new lease id.
    pub(crate) fn successor(
        &self,
        options: AcquireOptions,
        machine_options: acquisition::AcquisitionOptions,
        now: Instant,
    ) -> Self {
        let state = self.lock();
        let machine = state.machine.successor(machine_options, now);
        Self::new(options, machine, state.last.clone())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, AcquisitionState> {
        lock(&self.state)
    }

    pub(crate) fn last_reply(&self) -> Option<LastReply> {
        self.lock().last.clone()
    }

    /// Sleeps until a notice wakes the task, or until the next timeout of the acquisition. A notice that
    /// came before is not lost.
    pub(crate) async fn sleep(&self, clock: &dyn Clock) {
        let next = self.lock().machine.next_timeout();
        match next {
            Some(next) => tokio::select! {
                biased;
                () = self.wakeup.notified() => {}
                () = clock.sleep_until(next) => {}
            },
            None => self.wakeup.notified().await,
        }
    }

    /// Sleeps until the caller gives up. Never returns while the store does not fail.
    pub(crate) async fn given_up(&self, clock: &dyn Clock) {
        let at = self.lock().machine.gives_up_at();
        match at {
            Some(at) => clock.sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Processes a notice of the store.
    pub(crate) fn handle_notice(&self, notice: AcquireNotice, now: Instant) {
        let mut state = self.lock();
        let wakes = state.machine.handle_notice(notice, now, fastrand::f64());
        drop(state);
        if wakes {
            self.wakeup.notify_one();
        }
    }
}
