//! Leader election for programs without an async runtime.

use std::time::Duration;

use super::Threads;
use crate::{Cause, Durability, Leader, Result, State, Token};

/// An election with a name. See [`crate::Election`].
#[derive(Clone, Debug)]
pub struct Election {
    threads: Threads,
    election: crate::Election,
}

impl Election {
    pub(super) const fn new(threads: Threads, election: crate::Election) -> Self {
        Self { threads, election }
    }

    /// The name of the election.
    #[must_use]
    pub fn name(&self) -> &str {
        self.election.name()
    }

    /// The same election with another ttl. See [`crate::Mutex::ttl`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::ttl`].
    pub fn ttl(&self, ttl: Duration) -> Result<Self> {
        self.wrap(self.election.ttl(ttl))
    }

    /// The same election with a longest leadership. See [`crate::Mutex::max_hold`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::max_hold`].
    pub fn max_hold(&self, max_hold: Duration) -> Result<Self> {
        self.wrap(self.election.max_hold(max_hold))
    }

    /// The same election with leaderships of a fixed time. See [`crate::Mutex::lease`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::lease`].
    pub fn lease(&self, lease: Duration) -> Result<Self> {
        self.wrap(self.election.lease(lease))
    }

    /// The same election with another durability. See [`crate::Mutex::durability`].
    ///
    /// # Errors
    ///
    /// As [`crate::Mutex::durability`].
    pub fn durability(&self, durability: Durability) -> Result<Self> {
        self.wrap(self.election.durability(durability))
    }

    /// Waits until this candidate leads. See [`crate::Election::campaign`].
    ///
    /// # Errors
    ///
    /// As [`crate::Election::campaign`], and inside an async runtime.
    pub fn campaign(&self, value: impl AsRef<str>) -> Result<Leadership> {
        let leadership = self.threads.wait(self.election.campaign(value))?;
        Ok(self.lead(leadership))
    }

    /// Leads if nobody else does. See [`crate::Election::try_campaign`].
    ///
    /// # Errors
    ///
    /// As [`crate::Election::try_campaign`], and inside an async runtime.
    pub fn try_campaign(&self, value: impl AsRef<str>) -> Result<Option<Leadership>> {
        let leadership = self.threads.wait(self.election.try_campaign(value))?;
        Ok(leadership.map(|leadership| self.lead(leadership)))
    }

    /// Waits until this candidate leads, no longer than `timeout`. See [`crate::Election::campaign_timeout`].
    ///
    /// # Errors
    ///
    /// As [`crate::Election::campaign_timeout`], and inside an async runtime.
    pub fn campaign_timeout(
        &self,
        value: impl AsRef<str>,
        timeout: Duration,
    ) -> Result<Option<Leadership>> {
        let campaign = self.election.campaign_timeout(value, timeout);
        let leadership = self.threads.wait(campaign)?;
        Ok(leadership.map(|leadership| self.lead(leadership)))
    }

    /// The leader at this moment. See [`crate::Election::leader`].
    ///
    /// # Errors
    ///
    /// As [`crate::Election::leader`], and inside an async runtime.
    pub fn leader(&self) -> Result<Option<Leader>> {
        self.threads.wait(self.election.leader())
    }

    /// The leaders from now on. See [`crate::Election::observe`].
    #[must_use]
    pub fn observe(&self) -> Leaders {
        Leaders {
            leaders: self.election.observe(),
            threads: self.threads.clone(),
        }
    }

    fn wrap(&self, election: Result<crate::Election>) -> Result<Self> {
        Ok(Self::new(self.threads.clone(), election?))
    }

    fn lead(&self, leadership: crate::Leadership) -> Leadership {
        Leadership {
            leadership,
            threads: self.threads.clone(),
        }
    }
}

/// A leadership. See [`crate::Leadership`].
#[derive(Debug)]
#[must_use = "bind it to `_leadership`: `let _` drops it, which resigns"]
pub struct Leadership {
    // Dropped first: the threads must exist for its release.
    leadership: crate::Leadership,
    threads: Threads,
}

impl Leadership {
    /// The name of the election.
    #[must_use]
    pub fn name(&self) -> &str {
        self.leadership.name()
    }

    /// The term: the fencing token. See [`crate::Leadership::term`].
    #[must_use]
    pub fn term(&self) -> Token {
        self.leadership.term()
    }

    /// The time until the store may end the lease. See [`crate::Guard::time_left`].
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.leadership.guard().time_left()
    }

    /// What the leadership is worth at this instant. See [`crate::Guard::state`].
    #[must_use]
    pub fn state(&self) -> State {
        self.leadership.state()
    }

    /// Waits until the leadership is lost, and returns the cause. See [`crate::Guard::lost`].
    ///
    /// # Errors
    ///
    /// Inside an async runtime.
    pub fn lost(&self) -> Result<Cause> {
        self.threads
            .wait(async { Ok(self.leadership.lost().await) })
    }

    /// Makes sure that the leadership lasts for at least `duration` more. See [`crate::Guard::ensure`].
    ///
    /// # Errors
    ///
    /// As [`crate::Guard::ensure`].
    pub fn ensure(&self, duration: Duration) -> Result<()> {
        self.threads.wait(self.leadership.guard().ensure(duration))
    }

    /// Replaces the value, and waits until observers can see it. See [`crate::Leadership::proclaim`].
    ///
    /// # Errors
    ///
    /// As [`crate::Leadership::proclaim`].
    pub fn proclaim(&self, value: impl AsRef<str>) -> Result<()> {
        self.threads.wait(self.leadership.proclaim(value))
    }

    /// Waits until the newest value is written. See [`crate::Leadership::proclaimed`].
    ///
    /// # Errors
    ///
    /// As [`crate::Leadership::proclaimed`].
    pub fn proclaimed(&self) -> Result<()> {
        self.threads.wait(self.leadership.proclaimed())
    }

    /// Ends the leadership. See [`crate::Leadership::resign`].
    ///
    /// # Errors
    ///
    /// As [`crate::Leadership::resign`].
    pub fn resign(self) -> Result<()> {
        let Self {
            leadership,
            threads,
        } = self;
        threads.wait(leadership.resign())
    }
}

/// The leaders of an election, one after the other. See [`crate::Leaders`].
#[derive(Debug)]
pub struct Leaders {
    // Dropped first: the connection of its client lives on the threads.
    leaders: crate::Leaders,
    threads: Threads,
}

impl Leaders {
    /// Waits for the next leader. See [`crate::Leaders::next`].
    ///
    /// # Errors
    ///
    /// As [`crate::Leaders::next`], and inside an async runtime.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator would continue after an error"
    )]
    pub fn next(&mut self) -> Result<Option<Leader>> {
        self.threads.wait(self.leaders.next())
    }
}
