//! What keeps a client's leases alive: the only place that spawns and sleeps.

pub mod clock;
