//! Requests that take effect when replicas have acknowledged them.
//!
//! `WAIT` blocks its connection, so these requests have a connection of their own, which is opened on first
//! use. `WAIT` is sent right behind the scripts, in one piece with them: it returns the number of replicas
//! that have everything that was written on this connection.
//!
//! There is one batch at a time on it, so that none waits longer than its own timeout.
//!
//! `WAIT` counts the replicas that have everything up to the last command on its connection. So replicas are
//! counted on a third connection: the first time by waiting a while for more than there can be, later
//! without waiting, as replicas report themselves once a second.
//!
//! A change that was not acknowledged was still made. So its reply is unknown: the client releases a grant,
//! and a renewal has failed.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::Mutex;

use super::errors;
use super::link::connection_manager::ConnectionManager;
use super::topology::node::Node;
use super::topology::waits::{Waits, refused, wait};
use crate::store::api::Request;
use crate::store::options::OpenOptions;
use crate::{Error, ErrorKind, ReplicaCount, Result};

/// The maximum age of the last count of the replicas.
const COUNT_AGE_MAX: Duration = Duration::from_secs(2);

/// How long the first count waits, and the check of a durability.
const FIRST_COUNT: Duration = Duration::from_millis(500);

/// More replicas than any server has.
const MANY: u32 = 1_000_000;

/// The connections for such requests, and the number of replicas.
#[derive(Debug)]
pub(super) struct Replicas {
    pub(super) node: Node,
    /// Held during a batch.
    pub(super) turn: Mutex<()>,
    /// Its end interrupts no client.
    counter: ConnectionManager,
    last_count: Mutex<Option<Instant>>,
    /// The largest number of replicas at once so far.
    most: AtomicU32,
}

impl Replicas {
    /// The replicas of a server.
    pub(super) fn of(node: &Node, options: &OpenOptions) -> Self {
        Self {
            node: Node::new(node.manager.another()),
            turn: Mutex::default(),
            counter: ConnectionManager::new(node.manager.target().clone(), options),
            last_count: Mutex::default(),
            most: AtomicU32::new(0),
        }
    }

    /// Counts the replicas, if these requests need all of them and the last count is too old.
    pub(super) async fn count_for(&self, requests: &[Request]) -> Result<()> {
        let mut counts = requests.iter().map(|request| request.durability.count());
        if counts.all(|count| count != Some(ReplicaCount::All)) {
            return Ok(());
        }
        let mut last = self.last_count.lock().await;
        if last.is_none_or(|last| last.elapsed() >= COUNT_AGE_MAX) {
            match *last {
                None => self.count(MANY, FIRST_COUNT).await?,
                Some(_) => self.count(0, Duration::from_millis(1)).await?,
            };
            *last = Some(Instant::now());
        }
        Ok(())
    }

    /// The number of replicas, after waiting for `count` of them.
    async fn count(&self, count: u32, timeout: Duration) -> Result<u32> {
        let there = match self.counter.query(timeout, wait(count, timeout)).await? {
            Value::ServerError(error) => return Err(refused(&error)),
            Value::Int(there) => u32::try_from(there).unwrap_or(0),
            _ => return Err(errors::invalid_reply()),
        };
        self.most.fetch_max(there, Ordering::Relaxed);
        Ok(there)
    }

    /// Checks that the server allows `WAIT` and has enough replicas.
    pub(super) async fn check(&self, count: ReplicaCount) -> Result<()> {
        let there = match count {
            ReplicaCount::Number(number) => self.count(number.get(), FIRST_COUNT).await?,
            ReplicaCount::All => {
                let mut last = self.last_count.lock().await;
                let there = self.count(MANY, FIRST_COUNT).await?;
                *last = Some(Instant::now());
                there
            }
        };
        let message = match count {
            ReplicaCount::All if there == 0 => {
                "the server has no replica that is online, and all must acknowledge; connect replicas, or \
                 require fewer".to_owned()
            }
            ReplicaCount::Number(number) if there < number.get() => {
                let replicas = match there {
                    1 => "1 replica that is online".to_owned(),
                    _ => format!("{there} replicas that are online"),
                };
                format!(
                    "the server has {replicas}, and {number} must acknowledge; connect replicas, or require fewer"
                )
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::NotReplicated, message))
    }

    /// The acknowledgements that these requests need.
    pub(super) fn waits(&self, requests: &[Request]) -> Waits {
        let most = self.most.load(Ordering::Relaxed).max(1);
        Waits::of(requests, most)
    }
}
