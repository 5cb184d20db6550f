//! The guard of a lock, of a job or of a leadership.

use std::ops::Deref;

use leasehold::{ErrorKind, Guard, Leadership, Permit, ReadGuard, Run, Token, WriteGuard};

use crate::args::LockArgs;

/// A lock that is held.
pub(crate) enum AnyGuard {
    Lock(Guard),
    Job(Box<Run>),
    Leadership(Box<Leadership>),
    Permit(Box<Permit>),
    Read(Box<ReadGuard>),
    Write(Box<WriteGuard>),
}

impl AnyGuard {
    /// The term of a leader.
    pub(crate) fn term(&self) -> Option<Token> {
        match self {
            Self::Leadership(leadership) => Some(leadership.term()),
            _ => None,
        }
    }

    /// The number among the holders of a semaphore.
    pub(crate) fn slot(&self) -> Option<u32> {
        match self {
            Self::Permit(permit) => permit.number(),
            _ => None,
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
            Self::Permit(permit) => permit.release().await,
            Self::Read(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
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
            Self::Permit(permit) => permit,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
        }
    }
}
