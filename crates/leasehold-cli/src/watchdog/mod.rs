//! `leasehold watchdog`: a node of the watchdog, and its status.

mod serve;
mod status;

pub(crate) use self::serve::serve;
pub(crate) use self::status::status;
