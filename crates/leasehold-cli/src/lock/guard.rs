//! The guard of a lock, of a job or of a leadership.

use std::ops::Deref;

use leasehold::{ErrorKind, Guard, Leadership, Run, Token};

use crate::args::LockArgs;

/// A lock that is held.
pub(crate) enum AnyGuard {
    Lock(Guard),
    Job(Box<Run>),
    Leadership(Box<Leadership>),
}

impl AnyGuard {
    /// The term of a leader.
    pub(crate) fn term(&self) -> Option<Token> {
        match self {
            Self::Leadership(leadership) => Some(leadership.term()),
            Self::Lock(_) | Self::Job(_) => None,
        }
    }

    /// Prints that others cannot see this leader.
    pub(crate) async fn print_proclaimed<T>(&self, args: &LockArgs) -> T {
        if let Self::Leadership(leadership) = self
            && let Err(error) = leadership.proclaimed().await
            && error.kind() != ErrorKind::Lost
            && !args.quiet
        {
            note!("leasehold: {error}; others do not see this leader");
        }
        std::future::pending().await
    }

    pub(crate) async fn release(self) -> leasehold::Result<()> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Job(guard) => guard.release().await,
            Self::Leadership(leadership) => leadership.release().await,
        }
    }
}

impl Deref for AnyGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Job(guard) => guard,
            Self::Leadership(leadership) => leadership,
        }
    }
}
