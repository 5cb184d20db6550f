//! Other processes of this very program that take part in a run.
//!
//! They talk by lines of JSON, one word or order each:
//!
//! ```text
//! run    -> member   the job, then orders
//! member -> run      one word for each, the first when it is ready; or what went wrong
//! ```
//!
//! A member ends when its standard input does, so none outlives the run, however that ends.

pub(super) mod member;

use std::io;
use std::process::Stdio;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::place::Place;
use super::{crowd, wakeup};
use crate::exit::Failure;

/// The hidden command that starts a member.
pub(crate) const COMMAND: &str = "__bench-member";

/// What a member is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) threads: u16,
    pub(super) part: Part,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Part {
    Crowd(crowd::Part),
    Wakeup(wakeup::Part),
}

/// What a member says: an answer, or why there is none.
type Word<T> = Result<T, String>;

/// The members of a run.
#[derive(Debug)]
pub(super) struct Crew {
    members: Vec<Member>,
    heard: mpsc::UnboundedReceiver<(usize, io::Result<Option<String>>)>,
}

#[derive(Debug)]
struct Member {
    process: Child,
    orders: ChildStdin,
}

impl Crew {
    /// Starts a member for each job and waits until all are ready.
    pub(super) async fn start(jobs: &[Job]) -> Result<Self, Failure> {
        let (hear, heard) = mpsc::unbounded_channel();
        let mut members = Vec::with_capacity(jobs.len());
        for number in 0..jobs.len() {
            let (member, words) = Member::start()
                .map_err(|error| Failure::own("a process for the bench cannot start", error))?;
            members.push(member);
            tokio::spawn(listen(number, words, hear.clone()));
        }
        let mut crew = Self { members, heard };
        for (member, job) in crew.members.iter_mut().zip(jobs) {
            member.tell(job).await?;
        }
        crew.hear::<()>().await?;
        Ok(crew)
    }

    /// Gives all of them the same order and waits for the answer of each.
    pub(super) async fn ask<T: DeserializeOwned>(
        &mut self,
        order: &impl Serialize,
    ) -> Result<Vec<T>, Failure> {
        for member in &mut self.members {
            member.tell(order).await?;
        }
        self.hear().await
    }

    /// The next word of each, in the order of their jobs. The first failure is that of all.
    async fn hear<T: DeserializeOwned>(&mut self) -> Result<Vec<T>, Failure> {
        let mut words: Vec<Option<T>> = Vec::new();
        words.resize_with(self.members.len(), || None);
        while words.iter().any(Option::is_none) {
            let Some((number, Ok(Some(line)))) = self.heard.recv().await else {
                return Err(Failure::usage(
                    "a process of the bench ended before its time",
                ));
            };
            let word: Word<T> = serde_json::from_str(&line)
                .map_err(|error| Failure::own("a process of the bench talks nonsense", error))?;
            words[number] = Some(word.map_err(Failure::usage)?);
        }
        Ok(words.into_iter().flatten().collect())
    }

    /// Sends them home and waits until they have gone.
    pub(super) async fn dismiss(self) -> Result<(), Failure> {
        for member in self.members {
            let mut process = member.process;
            drop(member.orders);
            let ended = process.wait().await;
            ended.map_err(|error| Failure::own("a process of the bench cannot end", error))?;
        }
        Ok(())
    }
}

impl Member {
    fn start() -> io::Result<(Self, ChildStdout)> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let pipes = process.stdin.take().zip(process.stdout.take());
        let (orders, words) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((Self { process, orders }, words))
    }

    async fn tell(&mut self, order: &impl Serialize) -> Result<(), Failure> {
        let untold = |error| Failure::own("a process of the bench does not listen", error);
        let mut line = serde_json::to_vec(order).map_err(|error| untold(error.into()))?;
        line.push(b'\n');
        self.orders.write_all(&line).await.map_err(untold)
    }
}

async fn listen(
    number: usize,
    words: ChildStdout,
    hear: mpsc::UnboundedSender<(usize, io::Result<Option<String>>)>,
) {
    let mut lines = BufReader::new(words).lines();
    loop {
        let line = lines.next_line().await;
        let last = !matches!(line, Ok(Some(_)));
        if hear.send((number, line)).is_err() || last {
            return;
        }
    }
}
