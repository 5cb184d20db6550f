//! Hearing from sentinels, as long as a connection stands, that the master is another.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_core::Stream;
use redis::RedisResult;
use tokio::task::JoinSet;

use super::super::address::Address;
use super::super::connect;
use super::super::session::SessionState;
use super::query::{View, ask};
use crate::Result;

/// Told by each sentinel once it knows: the name, the old and the new host and port.
const SWITCHED: &str = "+switch-master";

/// Told by the sentinel that leads a failover, a moment before.
const PROMOTED: &str = "+promoted-slave";

/// The pause before a sentinel that went away is listened to again.
const RETRY: Duration = Duration::from_secs(1);

/// Listens to sentinels. It stops when this is dropped.
#[derive(Debug)]
pub(in super::super) struct FailoverMonitor {
    _tasks: JoinSet<()>,
}

/// What one of its tasks knows.
struct Ear {
    sentinel: Address,
    name: String,
    /// Where the connection goes.
    found: View,
    state: Arc<SessionState>,
}

impl FailoverMonitor {
    pub(super) fn start(
        sentinels: Vec<Address>,
        name: &str,
        found: View,
        state: Arc<SessionState>,
    ) -> Self {
        let mut tasks = JoinSet::new();
        for sentinel in sentinels {
            let ear = Ear {
                sentinel,
                name: name.to_owned(),
                found: found.clone(),
                state: Arc::clone(&state),
            };
            tasks.spawn(ear.run());
        }
        Self { _tasks: tasks }
    }
}

impl Ear {
    async fn run(self) {
        loop {
            let ended = self.listen().await;
            tracing::debug!(sentinel = %self.sentinel, ?ended, "not heard any more");
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Listens until the sentinel goes away.
    async fn listen(&self) -> Result<RedisResult<()>> {
        let pubsub = connect::pubsub(&self.sentinel).await?;
        let (mut sink, mut stream) = pubsub.split();
        if let Err(error) = sink.subscribe(&[SWITCHED, PROMOTED]).await {
            return Ok(Err(error));
        }
        // What was told before somebody listened.
        self.look().await;
        let mut next = async || poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await;
        while let Some(message) = next().await {
            let payload = String::from_utf8_lossy(message.get_payload_bytes());
            match message.get_channel_name() {
                SWITCHED => self.switched(&payload),
                _ => self.look().await,
            }
        }
        Ok(Ok(()))
    }

    /// Asks the sentinel.
    async fn look(&self) {
        if let Ok(view) = ask(&self.sentinel, &self.name).await
            && view.replaces(&self.found)
        {
            self.over(&view.host, view.port);
        }
    }

    fn switched(&self, payload: &str) {
        let words: Vec<_> = payload.split(' ').collect();
        if let [name, _, _, host, port] = words[..]
            && name == self.name
            && let Ok(port) = port.parse()
            && (host, port) != (self.found.host.as_str(), self.found.port)
        {
            self.over(host, port);
        }
    }

    fn over(&self, host: &str, port: u16) {
        if !self.state.is_replaced() {
            let sentinel = &self.sentinel;
            tracing::info!(%sentinel, master = self.name, host, port, "another server is the master");
            self.state.replaced();
        }
    }
}
