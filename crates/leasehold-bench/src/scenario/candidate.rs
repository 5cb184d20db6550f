//! A client that wants a lock, or to lead.

use leasehold::{Election, Guard, Leadership, Mutex};
use leasehold_core::LeaseId;

use crate::Result;
use crate::options::Settings;
use crate::scenario::check_release;
use crate::target::Session;

/// The value of each leader: an address, as most are.
const VALUE: &str = "10.20.30.40:8080";

/// A lock, or an election with the same name.
pub(super) enum Candidate {
    Lock(Mutex),
    Election(Election),
}

/// A lock that was acquired, or a leadership.
pub(super) enum Acquired {
    Lock(Guard),
    Election(Leadership),
}

impl Candidate {
    pub(super) fn new(session: &Session, settings: &Settings, name: &str) -> Result<Self> {
        Ok(match settings.election {
            false => Self::Lock(session.mutex(name)?),
            true => Self::Election(session.election(name)?),
        })
    }

    /// Waits until it holds the lock, or leads. The value of a leader is written meanwhile.
    pub(super) async fn acquire(&self) -> Result<Acquired> {
        Ok(match self {
            Self::Lock(mutex) => Acquired::Lock(mutex.lock().await?),
            Self::Election(election) => Acquired::Election(election.campaign(VALUE).await?),
        })
    }
}

impl Acquired {
    /// The lease, which names the holder or leader to an observer.
    pub(super) fn lease(&self) -> LeaseId {
        match self {
            Self::Lock(guard) => guard.lease_id(),
            Self::Election(leadership) => leadership.lease_id(),
        }
    }

    /// Waits until the store has confirmed the value of a leader. A lock has none.
    pub(super) async fn proclaimed(&self) -> Result<()> {
        match self {
            Self::Lock(_) => Ok(()),
            Self::Election(leadership) => Ok(leadership.proclaimed().await?),
        }
    }

    /// Releases the lock, or resigns.
    pub(super) async fn release(self) -> Result<()> {
        match self {
            Self::Lock(guard) => check_release(guard.release().await),
            Self::Election(leadership) => check_release(leadership.release().await),
        }
    }
}
