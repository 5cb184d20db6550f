//! Notifications of waiters that were granted the lock, and of observers.
//!
//! Each client that listens has a notify socket: a datagram socket in a directory beside the file, named by its client id. A
//! grant first checks whether the socket of the waiter is open, which the kernel knows, so that a dead waiter
//! is skipped in the same transaction. After the commit the message is sent. Sending never blocks; a waiter
//! that misses a message repeats its request when its timer expires, and an observer reads again from time to time.

mod directory;
mod notifier;
mod outbox;
mod private;
mod socket;
mod sockets;

pub(super) use self::notifier::{Notifier, Registration};
pub(super) use self::outbox::Outbox;
pub(super) use self::sockets::Sockets;
