//! The rules of the watchdog: how a node keeps a lease alive while its holder cannot, and when it releases it.
//!
//! ```text
//!   client                                   node
//!   Registrations -- changes, beats ----------->  ClientMonitor -- renew, release --> store
//!            <-- acknowledged -------------
//! ```
//!
//! * [`Terms`] is what a client registers of a lease.
//! * [`Registrations`] is the client's side: the leases that it has registered with one node.
//! * [`ClientMonitor`] is the node's side: the liveness of one client, and the actions for its leases.
//!
//! A node does only two things to a store, and both name one lease, whose id is never used twice. So a
//! late renewal revives nothing, a late release frees no other lock, and nodes need not agree.
//!
//! It renews only with evidence of life, and only while the client is silent. It releases only on proof
//! of death: a connection that was lost proves nothing.

mod monitor;
mod registrations;
mod terms;

pub use monitor::{ActionResult, ClientMonitor, Evidence, Liveness, WatchdogAction};
pub use registrations::{Changes, Registrations};
pub use terms::Terms;
