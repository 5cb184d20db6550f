//! Sentinels: who is the master of their set, and hearing that it is another.
//!
//! All sentinels are asked at once. The answer with the highest configuration epoch counts: each
//! failover has a higher one than any before, so a sentinel that was cut off is outvoted by one that
//! was not. Then the server itself is asked whether it takes itself for a master.
//!
//! A master that wakes after a failover takes writes for ten seconds more, until it is told that it
//! is none. Its connections outlive its sleep. So as long as there is a connection, each sentinel is
//! listened to, and when one of them names another master, the connection is over, with all that is
//! under way on it.

mod failover_monitor;
mod query;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

pub(super) use self::failover_monitor::FailoverMonitor;
use self::query::{Nothing, View};
use super::address::{Address, Secret};
use super::connect::{self, Role};
use super::deployment::{Deployment, SentinelSet};
use super::notifications::Notifications;
use super::session::Session;
use crate::{Error, ErrorKind, Result};

/// How long the others are waited for once most sentinels have answered.
const GRACE: Duration = Duration::from_millis(100);

/// The sentinels of a set, and who we are to them.
#[derive(Clone, Debug)]
pub(super) struct Sentinels {
    set: SentinelSet,
    password: Option<Secret>,
    shown: String,
}

impl Sentinels {
    /// With the password that the sentinels ask for, if they do.
    pub(super) fn new(set: SentinelSet, password: Option<String>) -> Self {
        Self {
            shown: Deployment::Sentinel(set.clone()).to_string(),
            set,
            password: password.map(Secret),
        }
    }

    /// Finds the master, connects, and listens to the sentinels from then on. Takes as long as it
    /// takes, but waits no longer than `patience` for sentinels if others have answered.
    pub(super) async fn dial(
        &self,
        notifications: &Arc<Notifications>,
        patience: Duration,
    ) -> Result<Session> {
        let found = self.find(patience).await?;
        let Some(any) = self.set.sentinels.first() else {
            return Err(self.nothing_found(&[]));
        };
        let address = any.at(&found.host, found.port);
        let there = |error: Error| {
            let (host, port) = (&found.host, found.port);
            let message = format!("the master is at {host}:{port}: {error}");
            error.reworded(message)
        };
        let mut session = connect::dial(&address, notifications)
            .await
            .map_err(there)?;
        if connect::role(&mut session.connection.clone()).await == Some(Role::Replica) {
            let message = "it is no master, or not yet; the failover is not over";
            return Err(there(Error::new(ErrorKind::Unreachable, message)));
        }
        let sentinels = self.each().collect();
        let state = Arc::clone(&session.state);
        session.failover_monitor = Some(FailoverMonitor::start(
            sentinels,
            &self.set.master,
            found,
            state,
        ));
        Ok(session)
    }

    /// Asks all sentinels which server is the master.
    async fn find(&self, patience: Duration) -> Result<View> {
        let mut asked = JoinSet::new();
        for sentinel in self.each() {
            let name = self.set.master.clone();
            asked.spawn(async move { query::ask(&sentinel, &name).await });
        }
        let (mut views, mut failures) = (Vec::new(), Vec::new());
        let mut until = Instant::now() + patience;
        let most = self.set.sentinels.len() / 2 + 1;
        loop {
            let answer = tokio::select! {
                answer = asked.join_next() => answer,
                () = sleep_until(until), if !views.is_empty() => break,
            };
            match answer {
                Some(Ok(Ok(view))) => views.push(view),
                Some(Ok(Err(nothing))) => failures.push(nothing),
                // It panicked: as good as no answer.
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

    /// Why no sentinel named a master: the failure that says most.
    fn nothing_found(&self, failures: &[Nothing]) -> Error {
        let count = self.set.sentinels.len();
        let found = |wanted: fn(&Nothing) -> bool| failures.iter().find(|found| wanted(found));
        if found(|nothing| matches!(nothing, Nothing::NoSuchMaster)).is_some() {
            let message = format!(
                "the sentinels know no master of the name {:?}; \
                 SENTINEL MASTERS lists those that they watch",
                self.set.master
            );
            return Error::new(ErrorKind::InvalidConfig, message);
        }
        if found(|nothing| matches!(nothing, Nothing::NoSentinel)).is_some() {
            let message = "these are Redis servers and no sentinels; name the sentinels, usually \
                           at port 26379, or use redis://HOST:PORT";
            return Error::new(ErrorKind::InvalidConfig, message);
        }
        if let Some(Nothing::Refused(error)) =
            found(|nothing| matches!(nothing, Nothing::Refused(_)))
        {
            let message = format!("the sentinels do not tell the master: {error}");
            return error.clone().reworded(message);
        }
        let why = failures.iter().find_map(|nothing| match nothing {
            Nothing::Unreachable(error) => Some(error.to_string()),
            _ => None,
        });
        let why = why.unwrap_or_else(|| "no answer".to_owned());
        let message = format!("none of {count} sentinels could be asked for the master: {why}");
        Error::new(ErrorKind::Unreachable, message)
    }

    /// The sentinels, one by one.
    pub(super) fn each(&self) -> impl Iterator<Item = Address> {
        self.set.sentinels.iter().map(|sentinel| Address {
            endpoint: sentinel.endpoint.clone(),
            user: self.set.user.clone(),
            password: self.password.clone(),
            db: 0,
        })
    }
}

impl fmt::Display for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}
