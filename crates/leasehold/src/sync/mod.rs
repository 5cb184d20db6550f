//! The lock types.

pub(crate) mod mutex;
