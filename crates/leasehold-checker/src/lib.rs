//! Checks of mutual exclusion and of fencing tokens, for every test, simulation and campaign.
//!
//! A checker reads what holders of one lock observed, and shares no code with the rule. What a hold
//! is identified by (a lease id, a process and a number, ...) is a type of its user, `H`.
//!
//! * [`Sequence`] checks acquisitions and ends of holds in the order in which they are observed at one
//!   place.
//! * [`overlaps`] compares intervals in which holders relied on the lock, from several clocks or
//!   processes.
//! * [`excesses`] compares those of holders that share the lock, by their weights.
//! * [`token_disorder`] compares the tokens of grants that were observed at different places.

mod intervals;
mod sequence;
mod tokens;

pub use self::intervals::{HoldInterval, excesses, overlaps};
pub use self::sequence::{Sequence, Violation};
pub use self::tokens::{Grant, token_disorder};
