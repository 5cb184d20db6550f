//! The rules of the watchdog: how it keeps a lease alive while its holder cannot, and when it ends one early.
//!
//! ```text
//!   client                                   node
//!   NodeSession -- changes, heartbeats ----->  ClientMonitor -- renew, release --> store
//!            <-- acknowledged -------------
//! ```
//!
//! * [`Terms`] are the terms under which a client registers a lease.
//! * [`NodeSession`] is the client's side: its connections to one node, and the leases that are registered with it.
//! * [`ClientMonitor`] is the node's side: the liveness of one client, and the actions for its leases.
//!
//! A node sends only two operations to a store, and both name one lease, whose id is never used twice. So a late
//! renewal revives nothing, a late release frees no other lock, and nodes need not agree.
//!
//! It renews only with evidence of life, and only while the client is silent. It releases only on proof
//! of death: a connection that was lost proves nothing.

mod monitor;
mod registrations;
mod session;
mod terms;

pub use monitor::{ActionResult, ClientMonitor, Evidence, Liveness, WatchdogAction};
pub use registrations::Changes;
pub use session::{NodeSession, SessionAction};
pub use terms::Terms;
