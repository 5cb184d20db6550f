//! The lock types.

pub(crate) mod job;
pub(crate) mod mutex;
