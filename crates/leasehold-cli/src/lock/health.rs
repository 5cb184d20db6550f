//! The health of a candidate, for probes.

use std::sync::{Mutex, PoisonError};

/// What a candidate does.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Role>);

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Role {
    /// Its command does not run.
    #[default]
    Following,
    Leading,
    /// Its command runs, and its leadership is lost.
    Lost,
}

impl Health {
    pub(super) fn set(&self, role: Role) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = role;
    }

    /// The reply to a probe.
    pub(crate) fn state(&self) -> Result<&'static str, &'static str> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Role::Following => Ok("following"),
            Role::Leading => Ok("leading"),
            Role::Lost => Err("the leadership is lost, and the command still runs"),
        }
    }
}
