//! The rules of the watchdog: who keeps a lease alive while its holder cannot, and who may end it early.
//!
//! ```text
//!   client                                   node
//!   Registrations -- changes, beats ----------->  ClientMonitor -- renew, release --> store
//!            <-- acknowledged -------------
//! ```
//!
//! * [`Terms`] is what a client registers of a lease.
//! * [`Registrations`] is the client's side: what one node was told.
//! * [`ClientMonitor`] is the node's side: what it knows of one client, and what it does for it.
//!
//! A node does only two things to a store, and both name one lease, whose id is never used twice. So a
//! late renewal revives nothing, a late release frees nobody else's lock, and nodes need not agree.
//!
//! It renews only with evidence of life, and only while the client is silent. It releases only on proof
//! of death: a connection that was lost proves nothing.

mod monitor;
mod registrations;
mod terms;

pub use monitor::{ActionResult, ClientMonitor, Evidence, Liveness, WatchdogAction};
pub use registrations::{Changes, Registrations};
pub use terms::Terms;
