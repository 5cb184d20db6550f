//! The environment variables of the store, its credentials and the lease of a run.

pub(crate) const STORE: &str = "LEASEHOLD_STORE";
pub(crate) const PASSWORD: &str = "LEASEHOLD_PASSWORD";
pub(crate) const PASSWORD_FILE: &str = "LEASEHOLD_PASSWORD_FILE";
/// The store, without user and password, that alone gets the password from a run around this process.
pub(crate) const PASSWORD_STORE: &str = "LEASEHOLD_PASSWORD_STORE";
/// The id of the lease of a run, by which a command of it recognizes its lock.
pub(crate) const LEASE: &str = "LEASEHOLD_LEASE";
pub(crate) const SENTINEL_PASSWORD: &str = "LEASEHOLD_SENTINEL_PASSWORD";
