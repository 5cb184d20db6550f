//! Finds the master of a set of sentinels, and detects when it is replaced.
//!
//! All sentinels are asked at once. The reply with the highest configuration epoch counts: the epoch
//! increases with every failover, so a sentinel that was partitioned is outvoted by one that was not. Then
//! the server itself is asked whether it is a master.
//!
//! A master that resumes after a failover accepts writes for up to ten seconds, until the sentinels demote
//! it, and its connections survive the pause. So as long as there is a connection, the messages of all
//! sentinels are read, and when one of them names another master, the connection is ended, with all
//! requests in flight on it.

mod failover_monitor;
mod query;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use self::query::{QueryError, View};
use crate::store::redis::address::Address;
use crate::store::redis::address::deployment::SentinelSet;
use crate::store::redis::link::connect::{self, Role};
use crate::store::redis::link::notifications::Notifications;
use crate::store::redis::link::session::Session;
use crate::{Error, ErrorKind, Result};

/// How long to wait for the other sentinels once a majority has replied.
const GRACE: Duration = Duration::from_millis(100);

impl SentinelSet {
    /// Finds the master, connects, and monitors the sentinels from then on. Has no timeout of its own, but
    /// waits no longer than `limit` for further sentinels if one has replied.
    pub(crate) async fn dial(
        &self,
        notifications: &Arc<Notifications>,
        limit: Duration,
    ) -> Result<Session> {
        let found = self.find(limit).await?;
        let address = self.sentinels[0].at(&found.host, found.port);
        let at_master = |error: Error| {
            let (host, port) = (&found.host, found.port);
            let message = format!("the master is at {host}:{port}: {error}");
            error.reworded(message)
        };
        let mut session = connect::dial(&address, notifications)
            .await
            .map_err(at_master)?;
        if connect::role(&mut session.connection.clone()).await == Some(Role::Replica) {
            let message = "it is not a master, or not yet; the failover is not over";
            return Err(at_master(Error::new(ErrorKind::Unreachable, message)));
        }
        let monitor = failover_monitor::start(self, &found, &session.state);
        session.failover_monitor = Some(monitor);
        Ok(session)
    }

    /// Asks all sentinels which server is the master.
    async fn find(&self, limit: Duration) -> Result<View> {
        let mut queries = JoinSet::new();
        for sentinel in self.each() {
            let name = self.master.clone();
            queries.spawn(async move { query::query_master(&sentinel, &name).await });
        }
        let (mut views, mut failures) = (Vec::new(), Vec::new());
        let mut until = Instant::now() + limit;
        let most = self.sentinels.len() / 2 + 1;
        loop {
            let reply = tokio::select! {
                reply = queries.join_next() => reply,
                () = sleep_until(until), if !views.is_empty() => break,
            };
            match reply {
                Some(Ok(Ok(view))) => views.push(view),
                Some(Ok(Err(nothing))) => failures.push(nothing),
                // A panic counts as no reply.
                Some(Err(_)) => {}
                None => break,
            }
            if views.len() == most {
                until = until.min(Instant::now() + GRACE);
            }
        }
        let agreed = |view: &View| views.iter().filter(|other| *other == view).count();
        let best = views.iter().max_by_key(|view| (view.epoch, agreed(view)));
        best.cloned().ok_or_else(|| self.nothing_found(&failures))
    }

    /// Why no sentinel named a master: the most specific failure.
    fn nothing_found(&self, failures: &[QueryError]) -> Error {
        let rank = |failure: &&QueryError| match failure {
            QueryError::NoSuchMaster => 0,
            QueryError::NoSentinel => 1,
            QueryError::Refused(_) => 2,
            QueryError::Unreachable(_) => 3,
        };
        let why = match failures.iter().min_by_key(rank) {
            Some(QueryError::NoSuchMaster) => {
                let message = format!(
                    "the sentinels know no master of the name {:?}; \
                     SENTINEL MASTERS lists those that they monitor",
                    self.master
                );
                return Error::new(ErrorKind::InvalidConfig, message);
            }
            Some(QueryError::NoSentinel) => {
                let message = "these are Redis servers and no sentinels; name the sentinels, usually \
                               at port 26379, or use redis://HOST:PORT";
                return Error::new(ErrorKind::InvalidConfig, message);
            }
            Some(QueryError::Refused(error)) => {
                let message = format!("the sentinels do not name the master: {error}");
                return error.clone().reworded(message);
            }
            Some(QueryError::Unreachable(error)) => error.to_string(),
            None => "no reply".to_owned(),
        };
        let silent = match self.sentinels.len() {
            1 => "the sentinel does not reply".to_owned(),
            count => format!("none of {count} sentinels replies"),
        };
        let message = format!("{silent} to the query for the master: {why}");
        Error::new(ErrorKind::Unreachable, message)
    }

    /// The sentinels, one by one.
    pub(crate) fn each(&self) -> impl Iterator<Item = Address> {
        self.sentinels.iter().map(|sentinel| Address {
            endpoint: sentinel.endpoint.clone(),
            tls: sentinel.tls.clone(),
            user: self.user.clone(),
            password: self.password.clone(),
            db: 0,
        })
    }
}
