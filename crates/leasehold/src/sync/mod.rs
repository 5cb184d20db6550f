//! What users hold.

pub(crate) mod mutex;
