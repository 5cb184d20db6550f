//! Members that arrive at a latch: does it ever open before all have?
//!
//! A member sends its arrival, and again if it has no reply. A message may take any time, be lost or run twice. The
//! record may expire at any moment. So the property holds whatever the clocks do.

use leasehold_core::latch::{self, ArrivalId, LatchCount};
use leasehold_core::time::StoreTime;
use leasehold_core::{Op, Outcome, Rows};

use super::core;
use super::explore::{Model, Property, Take, violated};
use super::labels::name;

/// How many members there are.
const MEMBERS: usize = 3;

/// How many open the latch.
const COUNT: u32 = 2;

const NOW: StoreTime = StoreTime::from_micros(0);

setup! {
    /// A latch and its members.
    Latch {
        /// Whether the store counts a number down, not the ids of the members.
        counts_down: bool = false,
    }
}

/// A state: what the store keeps, and the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// Whether each id has arrived. The number alone counts in the mutation.
    arrived: [bool; MEMBERS],
    /// Whether a waiter has read that the latch is open.
    opened: bool,
    members: [Member; MEMBERS],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Member {
    /// Whether it has arrived, by itself.
    begun: bool,
    /// Whether its request may reach the store, once more or for the first time.
    sent: bool,
    /// Whether it has received a reply.
    replied: bool,
}

impl State {
    fn number(&self) -> usize {
        self.arrived.iter().filter(|arrived| **arrived).count()
    }

    /// The store processes the arrival of a member.
    fn arrive(&mut self, at: usize, counts_down: bool) {
        if counts_down {
            let number = (self.number() + 1).min(MEMBERS);
            self.arrived = std::array::from_fn(|nth| nth < number);
            return;
        }
        let mut record = Rows::default();
        let known = (0..MEMBERS).filter(|other| self.arrived[*other]);
        for op in known.filter_map(arrival) {
            core::apply(&mut record, &op, NOW);
        }
        let outcome = arrival(at).map(|op| core::apply(&mut record, &op, NOW));
        if let Some(Outcome::Arrived(status)) = outcome {
            self.arrived[at] |= status.arrived as usize > self.number();
        }
    }
}

fn arrival(at: usize) -> Option<Op> {
    Some(Op::Arrive {
        id: ArrivalId::parse(&at.to_string()).ok()?,
        count: LatchCount::new(COUNT)?,
        keep: latch::TTL_DEFAULT,
    })
}

impl Model for Latch {
    type State = State;

    fn initial(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn steps(&self, state: &State, take: Take<'_, State>) {
        for at in 0..MEMBERS {
            let (who, member) = (name(at), state.members[at]);
            if !member.replied {
                let mut next = *state;
                next.members[at].begun = true;
                next.members[at].sent = true;
                take(&format_args!("{who} sends its arrival"), next);
            }
            if member.sent {
                let mut next = *state;
                next.arrive(at, self.counts_down);
                take(&format_args!("the arrival of {who} is processed"), next);
                next.members[at].replied = true;
                take(&format_args!("{who} receives the reply to it"), next);
                let mut next = *state;
                next.members[at].sent = false;
                take(&format_args!("the arrival of {who} is lost"), next);
            }
        }
        if state.number() >= COUNT as usize {
            let opened = true;
            take(&"a waiter reads the latch", State { opened, ..*state });
        }
        let arrived = [false; MEMBERS];
        take(&"the latch expires", State { arrived, ..*state });
    }

    fn violations(&self, state: &State) -> Vec<Property> {
        let begun = state.members.iter().filter(|member| member.begun).count();
        let early = state.opened && begun < COUNT as usize;
        violated([(Property::Counted, early)])
    }

    fn successes(&self, state: &State) -> usize {
        let members = state.members.iter();
        members.filter(|member| member.replied).count()
    }
}
