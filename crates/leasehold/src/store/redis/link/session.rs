//! An open connection.

use std::sync::Arc;

use leasehold_core::Outcome;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinSet;

use super::session_state::SessionState;
use super::subscriptions::Subscriptions;
use crate::Error;
use crate::store::api::{Reply, Request};
use crate::store::redis::errors;
use crate::store::redis::wire::decode::{Decoded, Remark};

/// An open connection, and the subscriptions on it.
#[derive(Debug)]
pub(crate) struct Session {
    /// Distinguishes it from all others of this process.
    pub(crate) id: u64,
    pub(crate) connection: MultiplexedConnection,
    pub(crate) state: Arc<SessionState>,
    pub(crate) subscriptions: Subscriptions,
    /// Detects a new master, if there are sentinels. Dropping it stops its tasks.
    pub(crate) failover_monitor: Option<JoinSet<()>>,
}

impl Session {
    /// Updates what depends on the replies to requests: detects that the server has become a replica, tracks the
    /// records that are held, and notifies local clients of the changes that their own requests made, because the
    /// server does not send these over the connection that caused them. Only a remark shows that a request has renewed
    /// permits of a semaphore.
    pub(crate) fn finish(&self, requests: &[Request], decoded: &mut [Decoded]) {
        for Decoded { reply, .. } in decoded.iter_mut() {
            if let Some(Reply::Rejected(error)) = reply {
                *error = self.check_demotion(error.clone());
            }
        }
        let replied = requests.iter().zip(&*decoded);
        let replied = replied.filter_map(|(request, Decoded { reply, remark })| {
            Some((request, reply.as_ref()?, *remark))
        });
        let of_mutexes = replied.clone();
        let of_mutexes = of_mutexes.filter(|(.., remark)| *remark != Some(Remark::RenewedPermits));
        let tracking = &self.subscriptions.tracking;
        tracking.add(of_mutexes.map(|(request, reply, _)| (request, reply)));
        let notifications = &self.state.notifications;
        for (request, reply, _) in replied {
            let freed = match reply.outcome() {
                Ok(Outcome::Revoked(leases)) => !leases.is_empty(),
                // A queue would have granted it to its head.
                Ok(Outcome::Released) => notifications.queueless,
                _ => false,
            };
            if freed {
                notifications.notify_changed(&request.key);
            }
        }
    }

    /// Ends the connection to a server that has become a replica, if another may be the master. A replica applies
    /// nothing.
    pub(crate) fn check_demotion(&self, error: Error) -> Error {
        if self.failover_monitor.is_none() || !errors::is_of_replica(&error) {
            return error;
        }
        self.state.end();
        errors::demoted(&error)
    }
}
