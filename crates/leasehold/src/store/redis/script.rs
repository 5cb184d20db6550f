//! Calls scripts by their hash, or by their text where the server does not know them.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Script as Hashed, Value};

/// Sends calls to a server.
pub(super) trait Executor {
    /// Sends one call.
    fn one(&mut self, cmd: &Cmd) -> impl Future<Output = RedisResult<Value>> + Send;

    /// Sends calls together.
    fn all(&mut self, calls: Pipeline) -> impl Future<Output = RedisResult<Vec<Value>>> + Send;
}

impl Executor for MultiplexedConnection {
    async fn one(&mut self, cmd: &Cmd) -> RedisResult<Value> {
        self.send_packed_command(cmd).await
    }

    async fn all(&mut self, calls: Pipeline) -> RedisResult<Vec<Value>> {
        let count = calls.len();
        self.send_packed_commands(&calls, 0, count).await
    }
}

/// A script, with a counter of its calls.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: String,
    calls: AtomicU64,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: Hashed::new(text).get_hash().to_owned(),
            calls: AtomicU64::new(0),
        }
    }

    /// The number of calls sent so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    pub(super) fn text(&self) -> &'static str {
        self.text
    }

    /// Calls the script. `cmd` makes the call from a verb and the script: its hash after `EVALSHA`, and its
    /// text after `EVAL`, which also loads it.
    pub(super) async fn call(
        &self,
        connection: &mut impl Executor,
        cmd: impl Fn(&str, &str) -> Cmd,
    ) -> RedisResult<Value> {
        self.count(1);
        let hashed = cmd("EVALSHA", &self.hash);
        match connection.one(&hashed).await? {
            Value::ServerError(error) if error.code() == "NOSCRIPT" => {
                self.count(1);
                let whole = cmd("EVAL", self.text);
                connection.one(&whole).await
            }
            answer => Ok(answer),
        }
    }

    /// Calls the script once for each part, in one round trip. `cmd` makes the calls as in
    /// [`Script::call`].
    pub(super) async fn call_all<P>(
        &self,
        connection: &mut impl Executor,
        parts: &[P],
        cmd: impl Fn(&str, &str, &P) -> Cmd,
    ) -> RedisResult<Vec<Value>> {
        if let [part] = parts {
            let cmd = |verb: &str, script: &str| cmd(verb, script, part);
            return Ok(vec![self.call(connection, cmd).await?]);
        }
        // By its text, so that no call has to be repeated behind later ones. The text is small compared with
        // the arguments.
        let mut pipeline = Pipeline::new();
        for part in parts {
            pipeline.add_command(cmd("EVAL", self.text, part));
        }
        let calls = pipeline.len();
        self.count(calls);
        connection.all(pipeline).await
    }

    /// Counts calls.
    pub(super) fn count(&self, calls: usize) {
        let calls = u64::try_from(calls).unwrap_or(u64::MAX);
        self.calls.fetch_add(calls, Ordering::Relaxed);
    }
}
