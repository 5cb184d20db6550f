//! Telling waiters that they were granted the lock.
//!
//! Clients of this store are told directly. One of another process, or of another store on the same
//! file, has a bell: a datagram socket in a folder beside the file, under its client id. Whoever
//! grants a lock looks first whether somebody listens there, which the kernel knows, so that a
//! waiter that is gone is passed over in the same transaction. After the commit it rings. Ringing
//! never waits; who does not hear it asks again when its timer says so.

#[cfg(unix)]
mod bell;
#[cfg(unix)]
mod call;
#[cfg(unix)]
mod folder;
mod letter;
mod listeners;
mod news;
#[cfg(not(unix))]
mod none;
#[cfg(unix)]
mod private;
mod ringer;

#[cfg(not(unix))]
use self::none as bell;
#[cfg(not(unix))]
use self::none as call;
#[cfg(not(unix))]
use self::none as folder;

pub(super) use self::listeners::Listeners;
pub(super) use self::news::News;
pub(super) use self::ringer::Ringer;
