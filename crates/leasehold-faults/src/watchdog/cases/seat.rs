//! A holder under load: it is stopped and goes on at random, and another waits for its lock all the time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::super::holder::{Holder, Role};
use super::super::said::{Belief, Said};
use super::super::waiter::Waiter;
use super::super::world::{World, millis};
use crate::clock::{self, Nanos};

/// The ttl of all leases.
pub(super) const TTL_MS: u64 = 2_000;
const TTL: Duration = millis(TTL_MS);

/// How often to look what happened.
const LOOK: Duration = millis(5);

/// How long a holder has at the end to find out that it has lost.
const AT_THE_END: Duration = millis(20_000);

/// What happened to a holder.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) name: String,
    /// From before it was stopped until after it was let go on.
    pub(super) pauses: Vec<(Nanos, Nanos)>,
    /// When the other was served.
    pub(super) served: Vec<Nanos>,
    /// What it lost.
    pub(super) lost: Vec<Loss>,
}

/// A lease that was lost, as its holder tells.
#[derive(Debug)]
pub(super) struct Loss {
    pub(super) at: Nanos,
    pub(super) promised: Nanos,
    pub(super) why: String,
}

/// One holder under load.
pub(super) struct Seat<'a> {
    world: &'a World,
    holder: Holder,
    waiter: Option<Waiter>,
    record: Record,
}

impl<'a> Seat<'a> {
    /// Starts a holder, which takes its lock again whenever it lost it.
    pub(super) fn start(
        world: &'a World,
        number: usize,
        nodes: &[String],
        more: &[String],
    ) -> Result<Self, String> {
        let mut more = more.to_vec();
        more.push("--again".into());
        let role = Role {
            prefix: format!("seat-{number}"),
            ttl: TTL,
            nodes,
            more,
        };
        let holder = Holder::start(world, &role)?;
        Ok(Self {
            world,
            record: Record {
                name: holder.lock(),
                ..Record::default()
            },
            holder,
            waiter: None,
        })
    }

    /// Waits until it holds.
    pub(super) fn ready(&mut self) -> Result<(), String> {
        self.holder.holds()?;
        self.waiter = Some(self.world.waits(&self.record.name)?);
        Ok(())
    }

    /// Stops it and lets it go on until it is to end. Answers what happened.
    pub(super) fn run(mut self, over: &AtomicBool) -> Result<Record, String> {
        let mut rng = Rng::new();
        while !over.load(Ordering::Relaxed) {
            self.look_for(millis(rng.u64(200..1000)), over)?;
            let long = rng.u8(..3) > 0;
            let pause = if long {
                rng.u64(2_500..5_000)
            } else {
                rng.u64(100..1_500)
            };
            let begin = clock::now();
            self.holder.actor.stop()?;
            self.look_for(millis(pause), over)?;
            self.holder.actor.go_on()?;
            self.record.pauses.push((begin, clock::now()));
        }
        self.settle()?;
        Ok(self.record)
    }

    /// Looks what happens for so long, or until all is over.
    fn look_for(&mut self, span: Duration, over: &AtomicBool) -> Result<(), String> {
        let end = Instant::now() + span;
        while Instant::now() < end && !over.load(Ordering::Relaxed) {
            self.look()?;
        }
        Ok(())
    }

    fn look(&mut self) -> Result<(), String> {
        if let Some(said) = self.holder.said(LOOK)? {
            self.heard(said)?;
        }
        if let Some(waiter) = &self.waiter
            && let Some(at) = waiter.is_served()?
        {
            self.record.served.push(at);
            self.waiter = None;
        }
        Ok(())
    }

    fn heard(&mut self, said: Said) -> Result<(), String> {
        match said {
            Said::State {
                belief: Belief::Lost,
                at,
                promised,
                why,
            } => self.record.lost.push(Loss { at, promised, why }),
            Said::Held if self.waiter.is_none() => {
                self.waiter = Some(Waiter::start(self.world, &self.record.name)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whoever was served has his counterpart, who lost.
    fn settle(&mut self) -> Result<(), String> {
        let end = Instant::now() + AT_THE_END;
        loop {
            // Long enough for one renewal at least.
            let quiet = Instant::now() + TTL / 2;
            while Instant::now() < quiet {
                self.look()?;
            }
            let settled = self.record.served.len() == self.record.lost.len();
            if settled || Instant::now() > end {
                return Ok(());
            }
        }
    }
}
