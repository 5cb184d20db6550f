//! Other processes of this program that take part in a run.
//!
//! They talk by lines of JSON:
//!
//! ```text
//! run    -> worker   the job, then orders
//! worker -> run      a reply to each, the first when it is ready; or what failed
//! ```
//!
//! A worker is killed when the run ends, however that ends.

use std::process::Stdio;

use futures_util::future::try_join_all;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::options::Settings;
use crate::target::Target;
use crate::{Failure, Result, failed};

/// The hidden argument that starts a worker.
pub(crate) const COMMAND: &str = "__worker";

/// What a worker is started for.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) target: Target,
    pub(crate) settings: Settings,
    /// Its number among the workers, from 0.
    pub(crate) number: u16,
}

/// The reply of a worker, or why there is none.
pub(crate) type Reply<T> = Result<T, String>;

/// The workers of a run.
#[derive(Debug)]
pub(crate) struct Workers(Vec<Worker>);

#[derive(Debug)]
struct Worker {
    process: Child,
    orders: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
}

impl Workers {
    /// Starts some workers and waits until all are ready.
    pub(crate) async fn start(target: &Target, settings: &Settings, count: u16) -> Result<Self> {
        let starting = (0..count).map(async |number| {
            let mut worker = Worker::start()?;
            let job = Job {
                target: target.clone(),
                settings: settings.clone(),
                number,
            };
            worker.ask::<()>(&job).await?;
            Ok::<_, Failure>(worker)
        });
        Ok(Self(try_join_all(starting).await?))
    }

    /// Sends all of them an order and waits for their replies. The first failure is that of all.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &mut self,
        order: &impl Serialize,
    ) -> Result<Vec<T>> {
        try_join_all(self.0.iter_mut().map(|worker| worker.ask(order))).await
    }

    /// Ends them and waits until they have ended.
    pub(crate) async fn finish(self) -> Result<()> {
        for mut worker in self.0 {
            drop(worker.orders);
            worker.process.wait().await?;
        }
        Ok(())
    }
}

impl Worker {
    fn start() -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let command = command.arg(COMMAND).kill_on_drop(true);
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.map_err(failed("a worker cannot be started"))?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (orders, replies) = pipes.ok_or("a worker has no pipes")?;
        Ok(Self {
            process,
            orders,
            replies: BufReader::new(replies).lines(),
        })
    }

    async fn ask<T: DeserializeOwned>(&mut self, order: &impl Serialize) -> Result<T> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        // If it has ended, there is no reply.
        let _ = self.orders.write_all(&line).await;
        let line = self.replies.next_line().await.ok().flatten();
        let line = line.ok_or("a worker ended before its time")?;
        let reply: Reply<T> =
            serde_json::from_str(&line).map_err(failed("the reply of a worker makes no sense"))?;
        Ok(reply?)
    }
}
