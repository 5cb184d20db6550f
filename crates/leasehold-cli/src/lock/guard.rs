//! The guard of a lock, of a job or of a leadership.

use std::ops::Deref;

use leasehold::{CompletionInfo, ErrorKind, Guard, JobGuard, JobLock, Leadership, Token};

use crate::args::LockArgs;
use crate::exit::{self, Failure};

/// The result of an acquisition.
pub(super) enum Acquired {
    Held(AnyGuard),
    /// The job was complete already.
    Completed(CompletionInfo),
}

/// A lock that is held.
pub(crate) enum AnyGuard {
    Lock(Guard),
    Job(Box<JobGuard>),
    Leadership(Box<Leadership>),
}

impl From<Guard> for Acquired {
    fn from(guard: Guard) -> Self {
        Self::Held(AnyGuard::Lock(guard))
    }
}

impl From<Leadership> for Acquired {
    fn from(leadership: Leadership) -> Self {
        Self::Held(AnyGuard::Leadership(Box::new(leadership)))
    }
}

impl From<JobLock> for Acquired {
    fn from(lock: JobLock) -> Self {
        match lock {
            JobLock::Granted(guard) => Self::Held(AnyGuard::Job(Box::new(guard))),
            JobLock::Completed(run) => Self::Completed(run),
        }
    }
}

impl AnyGuard {
    /// Records that the run of a job is complete, if its command has ended with 0. The exit code of the run, if that
    /// failed: another client may run the job again.
    pub(crate) async fn complete(
        &mut self,
        lost_exit_code: u8,
        outcome: &Result<u8, Failure>,
    ) -> Result<Option<CompletionInfo>, u8> {
        let (Self::Job(job), Ok(0)) = (self, outcome) else {
            return Ok(None);
        };
        match job.complete().await {
            Ok(run) => Ok(Some(run)),
            Err(error) if error.kind() == ErrorKind::Lost => {
                note!(
                    "leasehold: {error}; the run is not recorded as complete, so it may be repeated"
                );
                Err(lost_exit_code)
            }
            Err(error) => {
                note!(
                    "leasehold: {error}; the run is not recorded as complete, so it may be repeated"
                );
                Err(exit::FAILED)
            }
        }
    }

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
            Self::Leadership(leadership) => leadership.resign().await,
        }
    }
}

impl Deref for AnyGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        match self {
            Self::Lock(guard) => guard,
            Self::Job(guard) => guard,
            Self::Leadership(leadership) => leadership.guard(),
        }
    }
}
