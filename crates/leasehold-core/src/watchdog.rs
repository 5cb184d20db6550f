//! The rules of the watchdog: how it keeps a lease alive while its holder cannot, and when it ends one early.
//!
//! ```text
//!   client                                   node
//!   Registrations -- changes, heartbeats ----->  ClientMonitor -- renew, release --> store
//!            <-- acknowledged -------------
//! ```
//!
//! * [`Terms`] are the terms under which a client registers a lease.
//! * [`Registrations`] is the client's side: the leases that are registered with one node.
//! * [`ClientMonitor`] is the node's side: the liveness of one client, and the actions for its leases.
//!
//! A node sends only two operations to a store, and both name one lease, whose id is never used twice. So a late
//! renewal revives nothing, a late release frees no other lock, and nodes need not agree.
//!
//! It renews only with evidence of life, and only while the client is silent. It releases only on proof
//! of death: a connection that was lost proves nothing.

mod monitor;
mod registrations;
mod terms;

pub use monitor::{ActionResult, ClientMonitor, Evidence, Liveness, WatchdogAction};
pub use registrations::{Changes, Registrations};
pub use terms::Terms;
