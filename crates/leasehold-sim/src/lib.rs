//! Checks of the rules of Leasehold by simulation and by exploration; never shipped.
//!
//! * [`simulation`] steps the state machines that ship, on faulty networks, in stopped processes and on
//!   drifting clocks; in one scenario a daily job on several machines, for a month, in another one contenders for a lock over many
//!   masters.
//! * [`model`] visits every state of small models of the lock, also over many masters.
//! * [`history`] generates random operations and clock steps, to compare the replies of a store with those of
//!   the rule.
//! * [`store_checker`] checks operations and replies against the promises. It shares no code with the rule.
//! * [`seed`] is the start of random tests. The same seed gives the same history and the same simulation.

pub mod history;
pub mod model;
pub mod seed;
pub mod simulation;
pub mod store_checker;
