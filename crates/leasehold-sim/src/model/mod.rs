//! Every state that the mutex can reach, for a few clients and masters: not some of what can happen,
//! but all of it.
//!
//! * [`tokens`]: acquisitions over a majority, or on one store, without time. Any lease may be over at
//!   any moment, any message may be lost, or run long after its sender gave up. What holds here needs
//!   no clock.
//! * [`times`]: leases and deadlines on clocks that run apart. What holds here needs them.
//! * [`forgetting`]: one store that is replaced by a replica that lacks the last grants.
//! * [`watchdog`]: a client's program, its rival, and nodes that keep a lease alive for it or release it.
//! * [`rows`]: what is explored, and what must come out. For each rule there is a row without it, in
//!   which something breaks: a model that breaks nothing proves nothing.
//!
//! The rules are those that ship: `mutex::apply`, `quorum::Round`, `Vote`, `Master` and `decide`,
//! `time::deadline`, `watchdog::ClientMonitor` and `Registry`. Only the messages, the clocks and the broken rules are of the model.
//!
//! States are kept few by three means: the masters are put in order, as nobody can tell them apart;
//! what no step and no property can use any more is forgotten; and a refusal is the same as a request
//! that has not arrived, since both leave everything as it is.

mod core;
pub mod explore;
pub mod forgetting;
mod order;
pub mod rows;
mod table;
pub mod times;
pub mod tokens;
pub mod watchdog;
mod words;
