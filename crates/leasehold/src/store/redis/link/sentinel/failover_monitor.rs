//! Detects that another server has become the master, by the messages of the sentinels.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::RedisResult;
use tokio::task::JoinSet;

use super::query::{View, query_master};
use crate::Result;
use crate::store::redis::address::Address;
use crate::store::redis::address::deployment::SentinelSet;
use crate::store::redis::link::connect;
use crate::store::redis::link::session_state::SessionState;

/// Published by each sentinel that knows a new master: the name, the old and the new host and port.
const SWITCHED: &str = "+switch-master";

/// Published a moment earlier by the sentinel that leads the failover.
const PROMOTED: &str = "+promoted-slave";

/// The pause before a subscription to a sentinel is renewed that has ended.
const RETRY: Duration = Duration::from_secs(1);

/// Monitors the sentinels in tasks that end with the returned set: when one of them names another master
/// than `found`, the connection of `state` is ended.
pub(crate) fn start(set: &SentinelSet, found: &View, state: &Arc<SessionState>) -> JoinSet<()> {
    let monitors = set.each().map(|sentinel| Monitor {
        sentinel,
        name: set.master.clone(),
        found: found.clone(),
        state: Arc::clone(state),
    });
    monitors.map(Monitor::run).collect()
}

/// The monitor of one sentinel.
struct Monitor {
    sentinel: Address,
    name: String,
    /// The master to which the connection goes.
    found: View,
    state: Arc<SessionState>,
}

impl Monitor {
    async fn run(self) {
        loop {
            let ended = self.subscribe().await;
            tracing::debug!(sentinel = %self.sentinel, ?ended, "the subscription has ended");
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Reads messages until the subscription ends.
    async fn subscribe(&self) -> Result<RedisResult<()>> {
        let pubsub = connect::pubsub(&self.sentinel).await?;
        let (mut sink, mut stream) = pubsub.split();
        if let Err(error) = sink.subscribe(&[SWITCHED, PROMOTED]).await {
            return Ok(Err(error));
        }
        // Messages before the subscription were missed.
        self.query().await;
        while let Some(message) = stream.next().await {
            let payload = String::from_utf8_lossy(message.get_payload_bytes());
            match message.get_channel_name() {
                SWITCHED => self.switched(&payload),
                _ => self.query().await,
            }
        }
        Ok(Ok(()))
    }

    /// Asks the sentinel for the master.
    async fn query(&self) {
        if let Ok(view) = query_master(&self.sentinel, &self.name).await
            && view.replaces(&self.found)
        {
            self.replace(&view.host, view.port);
        }
    }

    fn switched(&self, payload: &str) {
        let words: Vec<_> = payload.split(' ').collect();
        if let [name, _, _, host, port] = words[..]
            && name == self.name
            && let Ok(port) = port.parse()
            && (host, port) != (self.found.host.as_str(), self.found.port)
        {
            self.replace(host, port);
        }
    }

    fn replace(&self, host: &str, port: u16) {
        if !self.state.is_replaced() {
            let sentinel = &self.sentinel;
            tracing::info!(%sentinel, master = self.name, host, port, "another server is the master");
            self.state.replace();
        }
    }
}
