//! The watchdog, seen from its clients: a service outside of this process that keeps leases alive while
//! this process cannot, and releases them as soon as it is dead.
//!
//! A process renews its leases itself, as long as it runs. One that is stopped, swapped out or collects its
//! garbage does not, and would lose them though it is alive; and when it dies, others wait for the rest of
//! its ttl. A node of the watchdog, on the same machine, tells the two apart.

pub mod frame;
pub mod wire;
