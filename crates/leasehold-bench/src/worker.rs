//! One of the processes of a run, from its own point of view.

use std::io::{self, Write as _};

use leasehold_testkit::helper::{self, Commands};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::workers::{Job, Reply};
use crate::{FAILED, Result, failed, runtime, with_sources};

/// The orders of the run. The process ends when the run does, whatever it is doing; leases that are still held expire:
/// nobody else wants their names.
#[derive(Debug)]
pub(crate) struct Orders(Commands);

/// Takes part in a run by this work until it ends. Returns the exit code.
pub(crate) fn serve(work: impl AsyncFnOnce(&Job, &mut Orders) -> Result<()>) -> u8 {
    match take_part(work) {
        Ok(()) => 0,
        Err(failure) => {
            // The run may have ended.
            let _ = send(&Reply::<()>::Err(with_sources(&*failure)));
            FAILED
        }
    }
}

fn take_part(work: impl AsyncFnOnce(&Job, &mut Orders) -> Result<()>) -> Result<()> {
    let mut orders = Orders(helper::commands());
    let Some(job) = orders.0.blocking_next() else {
        return Ok(());
    };
    let job: Job = parse(&job)?;
    runtime(job.settings.threads)?.block_on(work(&job, &mut orders))
}

impl Orders {
    /// The next order. `None`: no order will come.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let line = self.0.next().await;
        line.map(|line| parse(&line)).transpose()
    }
}

/// Replies to the run.
pub(crate) fn reply(reply: &impl Serialize) -> Result<()> {
    send(&Reply::Ok(reply)).map_err(failed("the run does not listen"))
}

fn send(reply: &Reply<impl Serialize>) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

fn parse<T: DeserializeOwned>(line: &str) -> Result<T> {
    serde_json::from_str(line).map_err(failed("an order of the run makes no sense"))
}
