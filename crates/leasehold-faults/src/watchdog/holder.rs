//! A holder of the campaign, from outside.

use std::time::{Duration, Instant};

use super::actor::{Actor, PATIENCE};
use super::said::{Belief, Said};
use super::world::World;
use crate::clock::Nanos;

/// What a holder is to do.
#[derive(Clone, Debug)]
pub(super) struct Role<'a> {
    /// What the names of its locks begin with.
    pub(super) prefix: String,
    pub(super) ttl: Duration,
    /// Which nodes look after it.
    pub(super) nodes: &'a [String],
    /// Further arguments.
    pub(super) more: Vec<String>,
}

/// A holder process.
pub(super) struct Holder {
    pub(super) actor: Actor,
    prefix: String,
}

impl Holder {
    /// Starts one, and does not wait for it.
    pub(super) fn start(world: &World, role: &Role<'_>) -> Result<Self, String> {
        let ttl = role.ttl.as_millis().to_string();
        let mut args = vec!["watchdog-subject".to_owned()];
        let mut add = |name: &str, value: &str| args.extend([name.to_owned(), value.to_owned()]);
        add("--url", &world.url());
        add("--ttl-ms", &ttl);
        add("--prefix", &role.prefix);
        for node in role.nodes {
            add("--node", node);
        }
        args.extend(role.more.iter().cloned());
        Ok(Self {
            actor: Actor::start(&args)?,
            prefix: role.prefix.clone(),
        })
    }

    /// Starts one, and waits until it holds its lock and a node looks after it.
    pub(super) fn holding(world: &World, role: &Role<'_>) -> Result<Self, String> {
        let holder = Self::start(world, role)?;
        holder.holds()?;
        Ok(holder)
    }

    /// Waits until it holds its lock and a node looks after it.
    pub(super) fn holds(&self) -> Result<(), String> {
        let holds = |said: &Said| {
            let Said::State { belief, .. } = said else {
                return false;
            };
            *belief == Belief::Held
        };
        self.until(PATIENCE, holds).map(drop)
    }

    /// The name of its only lock.
    pub(super) fn lock(&self) -> String {
        format!("{}-0-0", self.prefix)
    }

    /// The name of the lock that it takes after it was executed anew.
    pub(super) fn next_lock(&self) -> String {
        format!("{}-next-0-0", self.prefix)
    }

    /// The next thing that it said. `None`: nothing in time.
    pub(super) fn said(&self, patience: Duration) -> Result<Option<Said>, String> {
        let Some(line) = self.actor.line(patience)? else {
            return Ok(None);
        };
        let said = serde_json::from_str(&line);
        said.map(Some).map_err(|error| format!("{line}: {error}"))
    }

    /// Waits for something that it says, and answers all that it said up to there.
    pub(super) fn until(
        &self,
        patience: Duration,
        wanted: impl Fn(&Said) -> bool,
    ) -> Result<Vec<Said>, String> {
        let start = Instant::now();
        let mut all = Vec::new();
        while start.elapsed() < patience {
            if let Some(said) = self.said(patience.saturating_sub(start.elapsed()))? {
                let done = wanted(&said);
                all.push(said);
                if done {
                    return Ok(all);
                }
            }
        }
        Err(format!("a holder said only {all:?}"))
    }

    /// What it has said by now.
    pub(super) fn all_said(&self) -> Result<Vec<Said>, String> {
        let mut all = Vec::new();
        while let Some(said) = self.said(Duration::ZERO)? {
            all.push(said);
        }
        Ok(all)
    }

    /// Waits until it knows again after a pause what its lease is worth. Answers what it believed on the
    /// way, and when it knew.
    pub(super) fn woken(&self) -> Result<(Vec<Belief>, Nanos), String> {
        let settled = |said: &Said| {
            let Said::State { belief, .. } = said else {
                return false;
            };
            matches!(belief, Belief::Held | Belief::Lost)
        };
        let said = self.until(PATIENCE, settled)?;
        let beliefs = said.iter().filter_map(|said| match said {
            Said::State { belief, .. } => Some(*belief),
            _ => None,
        });
        let at = said.last().and_then(|said| match said {
            Said::State { at, .. } => Some(*at),
            _ => None,
        });
        Ok((beliefs.collect(), at.unwrap_or(0)))
    }

    /// Has it release its lock. Answers when, and whether it held it until then.
    pub(super) fn release(&mut self) -> Result<(Nanos, bool), String> {
        self.actor.order("release")?;
        let said = self.until(PATIENCE, |said| matches!(said, Said::Released { .. }))?;
        match said.last() {
            Some(Said::Released { at, kept }) => Ok((*at, *kept)),
            _ => Err("a holder did not release".into()),
        }
    }
}
