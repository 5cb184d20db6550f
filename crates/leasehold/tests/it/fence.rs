//! What a lock protects refuses a holder that is late.

mod databases;
mod held;
mod http;
mod paused;
mod redis;
pub(crate) mod resources;

pub(crate) use self::resources::write;
