//! The health of a candidate, for probes.

use std::sync::{Mutex, PoisonError};

/// What a candidate does.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<Role>);

#[derive(Clone, Copy, Debug, Default)]
enum Role {
    /// Its command does not run.
    #[default]
    Following,
    Leading,
    /// Its command runs, and its leadership is lost.
    Lost,
}

impl Health {
    /// The command runs from now on.
    pub(super) fn leads(&self) {
        self.set(Role::Leading);
    }

    /// The leadership is lost while the command runs.
    pub(super) fn lost(&self) {
        self.set(Role::Lost);
    }

    /// The command has ended.
    pub(super) fn follows(&self) {
        self.set(Role::Following);
    }

    fn set(&self, role: Role) {
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
