//! Every state that the mutex can reach, for a few clients and masters.
//!
//! * `tokens`: acquisitions over a majority, or on one store, without time. Any lease may expire at any moment,
//!   and any message may be lost or late. Its properties need no clock.
//! * `times`: leases and deadlines on drifting clocks.
//! * `failover`: one store that is replaced by a replica without the last grants.
//! * `record`: minimum holds on clocks that drift, and late requests of the clients that began them.
//! * `shares`: readers, upgradable readers and writers of a read-write lock, and holders of permits.
//! * `documents`: a lock in a store that only compares and swaps, whose clients have the time.
//! * `watchdog`: a client's program, its rival, and nodes that keep its lease alive or release it.
//! * [`rows`]: the variants that are explored, and their expected results. Each rule has a variant without it, in
//!   which a property breaks: otherwise the model would prove nothing.
//!
//! The rules are those that ship: `record::apply`, `MinHold`, `quorum::Round`, `Vote`, `Master` and `decide`,
//! `time::deadline`, `watchdog::ClientMonitor` and `NodeSession`. Messages, clocks and mutations belong to the model.
//!
//! Three means keep the number of states small. Masters and attempts are sorted, since their names make no
//! difference. Facts that no step and no property still uses are removed. And a refusal has no step of its
//! own, since it changes nothing.

/// The setup of a model: what each of its parts is, and what it is by the rule.
macro_rules! setup {
    ($(#[$about:meta])+ $name:ident $(<const $n:ident: usize>)? {
        $($(#[$doc:meta])+ $part:ident: $type:ty = $value:expr,)+
    }) => {
        $(#[$about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name $(<const $n: usize>)? {
            $($(#[$doc])+ pub(crate) $part: $type,)+
        }

        impl $(<const $n: usize>)? $name $(<$n>)? {
            /// No fault, and no mutation.
            pub(crate) const RULE: Self = Self { $($part: $value),+ };
        }
    };
}

mod core;
mod documents;
mod explore;
mod failover;
mod labels;
mod masters;
mod record;
pub mod rows;
mod shares;
mod times;
mod tokens;
mod watchdog;
