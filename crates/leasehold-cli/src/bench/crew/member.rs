//! A member's own life.

use std::io::{self, BufRead as _, Write as _};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::{Job, Part, Word};
use crate::bench::{crowd, runtime, wakeup};
use crate::exit::{self, Failure};

/// What the run says.
#[derive(Debug)]
pub(in crate::bench) struct Orders(mpsc::UnboundedReceiver<String>);

/// Takes part in a run until it is over.
pub(crate) fn serve() -> u8 {
    match work() {
        Ok(()) => 0,
        Err(failure) => {
            let word: Word<()> = Err(failure.to_string());
            // If nobody listens, nobody cares.
            let _ = say_word(&word);
            exit::FAILED
        }
    }
}

fn work() -> Result<(), Failure> {
    let mut orders = Orders::listen();
    let job = orders.0.blocking_recv();
    let Some(job) = job.map(|job| read::<Job>(&job)).transpose()? else {
        return Ok(());
    };
    let runtime = runtime(job.threads)?;
    runtime.block_on(async {
        match job.part {
            Part::Crowd(part) => crowd::work::serve(&job.place, &part, &mut orders).await,
            Part::Wakeup(part) => wakeup::work::serve(&job.place, &part, &mut orders).await,
        }
    })
}

impl Orders {
    /// Listens from now on. The process ends when the run does, whatever it is doing.
    fn listen() -> Self {
        let (sender, orders) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in io::stdin().lock().lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
            // Leases that are still held end by themselves: nobody else wants their names.
            std::process::exit(0);
        });
        Self(orders)
    }

    /// The next order. `None`: there is none any more.
    pub(in crate::bench) async fn next<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, Failure> {
        let line = self.0.recv().await;
        line.map(|line| read(&line)).transpose()
    }
}

/// Answers the run.
pub(in crate::bench) fn say(answer: &impl Serialize) -> Result<(), Failure> {
    let word: Word<_> = Ok(answer);
    say_word(&word).map_err(|error| Failure::own("the run does not listen", error))
}

fn say_word<T: Serialize>(word: &Word<T>) -> io::Result<()> {
    let mut line = serde_json::to_vec(word)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

fn read<T: DeserializeOwned>(line: &str) -> Result<T, Failure> {
    serde_json::from_str(line).map_err(|error| Failure::own("the run talks nonsense", error))
}
