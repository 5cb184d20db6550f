//! The scenarios that can be measured.

pub(crate) mod contention;
mod renew;
mod uncontended;
pub(crate) mod wakeup;

pub(crate) use self::contention::Contention;
pub(crate) use self::renew::Renew;
pub(crate) use self::uncontended::Uncontended;
pub(crate) use self::wakeup::Wakeup;

/// After so many locks a task yields to the others: a store in memory never makes it wait.
const LOCKS_IN_A_ROW: u64 = 128;
