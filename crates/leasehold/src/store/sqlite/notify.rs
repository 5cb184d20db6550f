//! Telling waiters that they were granted the lock.
//!
//! Clients of this store are told directly. One of another process, or of another store on the same
//! file, has a notify_socket: a datagram socket in a directory beside the file, under its client id. Whoever
//! grants a lock looks first whether somebody listens there, which the kernel knows, so that a
//! waiter that is gone is passed over in the same transaction. After the commit it rings. Ringing
//! never waits; who does not hear it asks again when its timer says so.

#[cfg(unix)]
mod directory;
mod listeners;
mod message;
mod notifier;
mod outbox;
#[cfg(unix)]
mod private;
#[cfg(unix)]
mod send;
#[cfg(unix)]
mod socket;
#[cfg(not(unix))]
mod unsupported;

#[cfg(not(unix))]
use self::unsupported as notify_socket;
#[cfg(not(unix))]
use self::unsupported as call;
#[cfg(not(unix))]
use self::unsupported as directory;

pub(super) use self::listeners::Listeners;
pub(super) use self::notifier::Notifier;
pub(super) use self::outbox::Outbox;
