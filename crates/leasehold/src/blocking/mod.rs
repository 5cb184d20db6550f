//! The same locks for programs without an async runtime.
//!
//! The names are those of the async API, and [`ClientBuilder::connect_blocking`] takes the same settings. A client
//! owns a small runtime on threads of its own, so leases are renewed while the caller is busy. Re-entry is by thread:
//! a thread that holds a lock may acquire it again; a guard that was sent to another thread still belongs to the
//! first.
//!
//! [`ClientBuilder::connect_blocking`]: crate::ClientBuilder::connect_blocking
//!
//! ```
//! use leasehold::blocking::Client;
//!
//! let client = Client::connect("memory:")?;
//! let mutex = client.mutex("orders/42")?;
//! let outer = mutex.lock()?;
//! let inner = mutex.lock()?; // the same thread enters again
//! assert_eq!(outer.token(), inner.token());
//! inner.release()?;
//! outer.release()?;
//! # Ok::<(), leasehold::Error>(())
//! ```

mod client;
mod guard;
mod mutex;
mod runtime;

pub use self::client::Client;
pub use self::guard::Guard;
pub use self::mutex::Mutex;
