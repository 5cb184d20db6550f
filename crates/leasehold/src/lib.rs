//! Distributed locks that know when they are lost.

mod driver;
mod error;
pub mod store;

pub use crate::driver::clock;
pub use crate::error::{Error, ErrorKind, Result};
