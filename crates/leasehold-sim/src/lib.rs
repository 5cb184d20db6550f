//! What the tests of Leasehold need to find out whether its rules are right; never shipped.
//!
//! * [`contention`] measures who gets a lock over many masters how often.
//! * [`history`] makes random operations and clock steps out of a number, to play to a store and to
//!   the rule and to compare the answers.
//! * [`judge`] reads operations and answers and says which promise was broken. It shares no code
//!   with the rule.
//! * [`model`] visits every state of small models of the lock, also over many masters.
//! * [`seed`] is where random tests start.
//! * [`world`] lets the real rule of a store and the real view of a holder meet bad networks,
//!   stopped processes and clocks that run apart.
//! * [`waiting`] does the same for the queue: grants that are told, and all that can get lost of
//!   them.
//!
//! All of it is decided by a number: the same number gives the same history and the same world.

pub mod contention;
pub mod history;
pub mod judge;
pub mod model;
pub mod seed;
pub mod waiting;
pub mod world;
