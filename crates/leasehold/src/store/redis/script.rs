//! Calling scripts: by their hash, and by their text where the server does not know it.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisResult, Script as Hashed, Value};

use super::batch::{self, REQUESTS_MAX};
use super::watch;
use crate::store::Request;

/// A script, and how often it was called.
#[derive(Debug)]
pub(super) struct Script {
    text: &'static str,
    hash: String,
    calls: AtomicU64,
}

/// What the server is to do beside the requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// Who would wait is put into the queue.
    pub(super) queued: bool,
    /// It is to tell when somebody else changes the records of the batch.
    pub(super) watched: bool,
}

/// What came of one call.
#[derive(Debug)]
pub(super) struct Answer {
    /// The script's answer.
    pub(super) value: Value,
    /// What the server answers to the read behind it: see [`watch`].
    pub(super) counted: Option<Value>,
}

impl Script {
    pub(super) fn new(text: &'static str) -> Self {
        Self {
            text,
            hash: Hashed::new(text).get_hash().to_owned(),
            calls: AtomicU64::new(0),
        }
    }

    /// How many calls were sent.
    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    #[cfg(feature = "__bench")]
    pub(super) fn hash(&self) -> &str {
        &self.hash
    }

    /// One call. `cmd` makes it from verb and script: the second is the hash after `EVALSHA` and
    /// the text after `EVAL`, by which the server also learns it.
    pub(super) async fn call(
        &self,
        connection: &mut MultiplexedConnection,
        cmd: impl Fn(&str, &str) -> Cmd,
    ) -> RedisResult<Value> {
        self.count(1);
        let hashed = cmd("EVALSHA", &self.hash);
        match connection.send_packed_command(&hashed).await? {
            Value::ServerError(error) if error.code() == "NOSCRIPT" => {
                self.count(1);
                let whole = cmd("EVAL", self.text);
                connection.send_packed_command(&whole).await
            }
            answer => Ok(answer),
        }
    }

    /// The calls for a batch, all sent before the first answer: an answer for each
    /// [`REQUESTS_MAX`] requests.
    pub(super) async fn call_batch(
        &self,
        connection: &mut MultiplexedConnection,
        batch: &[Request],
        how: How,
    ) -> RedisResult<Vec<Answer>> {
        if batch.len() <= REQUESTS_MAX {
            let mut answers = self
                .send("EVALSHA", &self.hash, connection, batch, how)
                .await?;
            if matches!(answers.first(), Some(Answer { value: Value::ServerError(error), .. })
                if error.code() == "NOSCRIPT")
            {
                answers = self.send("EVAL", self.text, connection, batch, how).await?;
            }
            return Ok(answers);
        }
        // By its text, so that no call has to be sent again behind later ones. The text is small
        // beside the arguments.
        self.send("EVAL", self.text, connection, batch, how).await
    }

    async fn send(
        &self,
        verb: &str,
        script: &str,
        connection: &mut MultiplexedConnection,
        batch: &[Request],
        how: How,
    ) -> RedisResult<Vec<Answer>> {
        let parts = batch.chunks(REQUESTS_MAX);
        // An empty batch is one call, too.
        let parts = parts.chain(batch.is_empty().then_some(batch));
        let mut pipeline = Pipeline::new();
        let mut watched = Vec::new();
        for part in parts {
            pipeline.add_command(batch::encode(verb, script, part, how.queued));
            watched.push(how.watched && watch::add(&mut pipeline, part));
        }
        self.count(watched.len());
        let count = pipeline.len();
        let answers = connection.send_packed_commands(&pipeline, 0, count).await?;
        let mut answers = answers.into_iter();
        let mut next = |watched| {
            let value = answers.next()?;
            let counted = if watched { answers.nth(1) } else { None };
            Some(Answer { value, counted })
        };
        Ok(watched.into_iter().map_while(&mut next).collect())
    }

    fn count(&self, calls: usize) {
        let calls = u64::try_from(calls).unwrap_or(u64::MAX);
        self.calls.fetch_add(calls, Ordering::Relaxed);
    }
}
