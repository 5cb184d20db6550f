//! The guard of a lock, of a job or of a leadership.

use std::future::poll_fn;
use std::ops::Deref;
use std::slice;
use std::task::Poll;
use std::time::Duration;

use leasehold::{
    Cause, Completion, ErrorKind, Guard, GuardSet, Instant, Leadership, Permit, ReadGuard, Run,
    State, Token, WriteGuard,
};

use crate::args::LockArgs;

/// A lock that is held, or several. It derefs to the guard of the first name.
pub(crate) enum AnyGuard {
    Lock(Guard),
    /// With their names in the order of the arguments.
    Locks(GuardSet, Vec<String>),
    Job(Box<Run>),
    Leadership(Box<Leadership>),
    Permit(Box<Permit>),
    Read(ReadGuard),
    Write(WriteGuard),
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

    /// The completed run of the job before this one.
    pub(crate) fn last_run(&self) -> Option<&Completion> {
        match self {
            Self::Job(run) => run.last_run(),
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

    /// The guards of all locks.
    pub(crate) fn all(&self) -> &[Guard] {
        match self {
            Self::Locks(guards, _) => guards,
            one => slice::from_ref(&**one),
        }
    }

    /// The tokens of several locks, in the order of their names in the arguments.
    pub(crate) fn tokens(&self) -> Option<Vec<String>> {
        let Self::Locks(guards, names) = self else {
            return None;
        };
        let guards = names.iter().filter_map(|name| named(guards, name));
        Some(guards.map(|guard| guard.token().to_string()).collect())
    }

    /// The name of a lock that is lost, or else the first name.
    pub(crate) fn concerned(&self) -> &str {
        let lost = self.all().iter().find(|guard| guard.state().is_lost());
        lost.unwrap_or(self).name()
    }

    /// What the leases are worth together.
    pub(crate) fn state(&self) -> State {
        match self {
            Self::Locks(guards, _) => guards.state(),
            one => Guard::state(one),
        }
    }

    /// The end of the first lease.
    pub(crate) fn deadline(&self) -> Instant {
        let deadlines = self.all().iter().map(Guard::deadline);
        deadlines.min().unwrap_or_default()
    }

    /// Waits until one of the leases is lost.
    pub(crate) async fn lost(&self) -> Cause {
        first(self.all().iter().map(Guard::lost)).await.1
    }

    pub(crate) async fn ensure(&self, duration: Duration) -> leasehold::Result<()> {
        match self {
            Self::Locks(guards, _) => guards.ensure(duration).await,
            one => Guard::ensure(one, duration).await,
        }
    }

    pub(crate) fn waive_min_hold(&self) {
        self.all().iter().for_each(Guard::waive_min_hold);
    }

    pub(crate) async fn release(self) -> leasehold::Result<()> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Locks(guards, _) => guards.release().await,
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
            Self::Locks(guards, names) => {
                let first = names.first().and_then(|name| named(guards, name));
                first.unwrap_or(&guards[0])
            }
            Self::Job(guard) => guard,
            Self::Leadership(leadership) => leadership,
            Self::Permit(permit) => permit,
            Self::Read(guard) => guard,
            Self::Write(guard) => guard,
        }
    }
}

/// The guard of the lock with a name.
fn named<'a>(guards: &'a GuardSet, name: &str) -> Option<&'a Guard> {
    guards.iter().find(|guard| guard.name() == name)
}

/// Waits for the first of some futures, and returns its number and its output.
pub(crate) async fn first<F: Future>(futures: impl Iterator<Item = F>) -> (usize, F::Output) {
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    poll_fn(|context| {
        let polled = futures.iter_mut().enumerate();
        let mut ready = polled.filter_map(|(nth, future)| match future.as_mut().poll(context) {
            Poll::Ready(output) => Some((nth, output)),
            Poll::Pending => None,
        });
        ready.next().map_or(Poll::Pending, Poll::Ready)
    })
    .await
}
