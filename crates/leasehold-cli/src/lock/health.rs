//! The health of a candidate, for probes.

use std::sync::{Mutex, PoisonError};

use leasehold::{Guard, LossSignal};

/// The lock under which the command runs. `None`: it does not run.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Option<LossSignal>>);

impl Health {
    /// The command runs under this lock from now on.
    pub(crate) fn leads(&self, guard: &Guard) {
        self.set(Some(guard.loss_signal()));
    }

    /// The command has ended.
    pub(crate) fn follows(&self) {
        self.set(None);
    }

    fn set(&self, signal: Option<LossSignal>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = signal;
    }

    /// The reply to a probe.
    pub(crate) fn state(&self) -> Result<&'static str, &'static str> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok("following"),
            Some(signal) if signal.is_lost() => {
                Err("the leadership is lost, and the command still runs")
            }
            Some(_) => Ok("leading"),
        }
    }
}
