//! A lease that this process holds, and its holds.

pub(crate) mod active_lease;
pub(crate) mod hold;
pub(crate) mod reentry;
