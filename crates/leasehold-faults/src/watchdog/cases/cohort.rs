//! Holders side by side, and one who waits for the lock of each.

use std::time::Duration;

use super::super::holder::{Holder, Role};
use super::super::outcome::Outcome;
use super::super::waiter::Waiter;
use super::super::world::World;
use crate::clock::Nanos;

/// Some holders.
pub(super) struct Cohort {
    pub(super) members: Vec<Member>,
}

/// One of them.
pub(super) struct Member {
    pub(super) holder: Holder,
    pub(super) waiter: Waiter,
}

impl Cohort {
    /// Starts so many, and waits until all hold.
    pub(super) fn start(
        world: &World,
        (round, size): (usize, usize),
        ttl: Duration,
        nodes: &[String],
    ) -> Result<Self, String> {
        let holders: Vec<_> = (0..size)
            .map(|nth| {
                let role = Role {
                    prefix: format!("cohort-{round}-{nth}"),
                    ttl,
                    nodes,
                    more: Vec::new(),
                };
                Holder::start(world, &role)
            })
            .collect::<Result<_, _>>()?;
        let members = holders.into_iter().map(|holder| {
            holder.holds()?;
            let waiter = world.waits(&holder.lock())?;
            Ok(Member { holder, waiter })
        });
        Ok(Self {
            members: members.collect::<Result<_, String>>()?,
        })
    }

    /// Stops all of them. What they said before is forgotten.
    pub(super) fn stop(&self) -> Result<(), String> {
        for member in &self.members {
            member.holder.actor.stop()?;
            member.holder.all_said()?;
        }
        Ok(())
    }
}

impl Member {
    /// Notes a miss if the lock was served, and answers whether it was.
    pub(super) fn is_served_wrongly(
        &self,
        when: &str,
        outcome: &mut Outcome,
    ) -> Result<bool, String> {
        let served = self.waiter.is_served()?;
        if served.is_some() {
            outcome.miss(format!("{} was served {when}", self.holder.lock()));
        }
        Ok(served.is_some())
    }

    /// Kills the holder, and notes how long it took until its lock was served.
    pub(super) fn dies(&mut self, latest: Duration, outcome: &mut Outcome) -> Result<(), String> {
        let since = crate::clock::now();
        self.holder.actor.kill()?;
        match self.waiter.served_within(latest)? {
            Some(at) => outcome.spans.push(span(since, at)),
            None => outcome.miss(format!(
                "{} was not served in {latest:?}",
                self.holder.lock()
            )),
        }
        Ok(())
    }
}

fn span(since: Nanos, at: Nanos) -> Nanos {
    at.saturating_sub(since)
}

/// So many times in rounds of at most so many.
pub(super) fn rounds(times: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let rounds = times.div_ceil(most);
    (0..rounds).map(move |round| (round, most.min(times - round * most)))
}
