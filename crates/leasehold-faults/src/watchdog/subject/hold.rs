//! One lock, held for as long as it is wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::{Client, ErrorKind, Guard, Result, State, StateKind};
use tokio::sync::watch;

use super::Wish;
use crate::clock::{self, MILLI, Nanos};
use crate::watchdog::said::{Belief, Said, say};

/// How often it looks what the lease is worth.
const LOOK: Duration = Duration::from_millis(50);

/// After a longer gap between two looks it says what it believes, changed or not.
const GAP: Nanos = 500 * MILLI;

/// How many leases of the process are how.
#[derive(Debug, Default)]
pub(super) struct Tally {
    held: AtomicUsize,
    jeopardy: AtomicUsize,
    lost: AtomicUsize,
}

impl Tally {
    pub(super) fn count(&self) -> Said {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        Said::Count {
            held: of(&self.held),
            jeopardy: of(&self.jeopardy),
            lost: of(&self.lost),
        }
    }

    fn counter(&self, belief: Belief) -> &AtomicUsize {
        match belief {
            Belief::Held => &self.held,
            Belief::Jeopardy | Belief::Paused => &self.jeopardy,
            Belief::Lost => &self.lost,
        }
    }

    fn moves(&self, from: Option<Belief>, to: Belief) {
        if let Some(from) = from {
            self.counter(from).fetch_sub(1, Ordering::Relaxed);
        }
        self.counter(to).fetch_add(1, Ordering::Relaxed);
    }
}

/// A lock, and who wants it.
pub(super) struct Hold {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) tally: Arc<Tally>,
    pub(super) wish: watch::Receiver<Wish>,
    pub(super) again: bool,
    pub(super) quiet: bool,
}

/// What is known of a hold so far.
#[derive(Default)]
struct Known {
    belief: Option<Belief>,
    /// Until when it was promised at most.
    promised: Nanos,
    /// When it looked last.
    looked: Nanos,
}

impl Hold {
    pub(super) async fn run(mut self) -> Result<()> {
        loop {
            let guard = self.take().await?;
            self.tell(&Said::Held);
            let mut known = Known::default();
            match self.watch(&guard, &mut known).await {
                // It was released, or the process ends.
                true => {
                    let at = clock::now();
                    let kept = guard.release().await.is_ok();
                    self.tell(&Said::Released { at, kept });
                    return Ok(());
                }
                false if self.again => {}
                false => return Ok(()),
            }
        }
    }

    /// Takes the lock, however long the nodes are away.
    async fn take(&self) -> Result<Guard> {
        let mutex = self.client.mutex(&self.name)?;
        loop {
            match mutex.lock().await {
                Err(error) if error.kind() == ErrorKind::Unreachable => {}
                taken => return taken,
            }
        }
    }

    /// Tells what becomes of the lease. Answers whether it is wanted no more, and not lost.
    async fn watch(&mut self, guard: &Guard, known: &mut Known) -> bool {
        let mut states = guard.states();
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut wish = self.wish.clone();
        loop {
            tokio::select! {
                biased;
                Some(state) = states.next() => self.saw(state, known),
                _ = looks.tick(), if !self.quiet => self.saw(guard.state(), known),
                released = wish.wait_for(|wish| *wish == Wish::Release) => {
                    return released.is_ok();
                }
            }
            if known.belief == Some(Belief::Lost) {
                return false;
            }
        }
    }

    fn saw(&self, state: State, known: &mut Known) {
        let belief = match state.kind() {
            StateKind::Held => Belief::Held,
            StateKind::Jeopardy(leasehold::Cause::Paused) => Belief::Paused,
            StateKind::Jeopardy(_) => Belief::Jeopardy,
            StateKind::Lost(_) => Belief::Lost,
        };
        if let (
            Belief::Held | Belief::Jeopardy,
            State::Held { until } | State::Jeopardy { until, .. },
        ) = (belief, state)
        {
            known.promised = known.promised.max(until.as_nanos());
        }
        let (at, promised) = (clock::now(), known.promised);
        let gap = at - std::mem::replace(&mut known.looked, at);
        if known.belief == Some(belief) && gap < GAP {
            return;
        }
        self.tally.moves(known.belief, belief);
        known.belief = Some(belief);
        let why = match state {
            State::Lost(cause) => format!("{cause:?}"),
            _ => String::new(),
        };
        self.tell(&Said::State {
            belief,
            at,
            promised,
            why,
        });
    }

    fn tell(&self, said: &Said) {
        if !self.quiet {
            say(said);
        }
    }
}
