//! The program that a lock is held for: it closes stdin to release the lock, and reads lines from stdout.
//!
//! Both streams may block for as long as the program likes, so each has a thread. The lock is renewed and released
//! meanwhile.

use std::io::{self, Stdin};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, SyncSender};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::process::{Pid, getpgrp, getppid};
use rustix::termios::tcgetpgrp;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::exit::Failure;
use crate::output;

/// The number of lines that are kept for a stalled reader. Further ones are dropped.
const QUEUE_LENGTH: usize = 256;

/// How long an exit waits for the reader.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(300);

/// How often a process in the background of a terminal checks whether it may read from there.
const BACKGROUND_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// How much of stdin is read at a time, and how often before the lock is requested. A pipe has room for 64 KiB.
const READ_LENGTH: usize = 4096;
const FIRST_READS: usize = 16;

/// Why a lock is not kept any longer.
pub(super) enum End {
    /// stdin has ended.
    Closed,
    /// Nobody can still read stdout.
    NoReader,
    /// stdout cannot be written, or neither stream be watched.
    Failed(Failure),
    Signal(i32),
    Lost,
}

/// The caller, by its two streams.
pub(super) struct Caller {
    process: Option<Pid>,
    ends: UnboundedReceiver<End>,
    lines: SyncSender<String>,
    written: oneshot::Receiver<()>,
}

impl Caller {
    /// Refuses a stdin that has ended already: the lock would be released immediately.
    pub(super) fn listen(name: &str) -> Result<Self, Failure> {
        if has_ended_already(&io::stdin()) {
            return Err(Failure::usage(format!(
                "{name}: stdin has ended already, and its end releases the lock; connect it to a pipe that stays open \
                 while the lock is needed"
            )));
        }
        let (sender, ends) = unbounded_channel();
        let (lines, queued) = mpsc::sync_channel::<String>(QUEUE_LENGTH);
        let (done, written) = oneshot::channel();
        let of_stdout = sender.clone();
        start("stdout", move || {
            // An error is returned immediately, and the lines behind it are dropped.
            if let Some(end) = queued.iter().find_map(|line| write(&line)) {
                let _ = of_stdout.send(end);
            }
            let _ = done.send(());
        })?;
        start("stdin", move || watch(&sender))?;
        Ok(Self {
            // The first process is the parent of all whose own has ended.
            process: getppid().filter(|process| !process.is_init()),
            ends,
            lines,
            written,
        })
    }

    /// Whether its process is known to live.
    pub(super) fn lives(&self) -> bool {
        self.process.is_some() && getppid() == self.process
    }

    /// Waits for the end of a stream, once for each.
    ///
    /// Dropped, it has lost none.
    pub(super) async fn ended(&mut self) -> End {
        match self.ends.recv().await {
            Some(end) => end,
            None => std::future::pending().await,
        }
    }

    /// Prints a line, which a stalled reader gets later.
    pub(super) fn print(&self, line: String) {
        let _ = self.lines.try_send(line + "\n");
    }

    /// Waits for a short time until all lines are written.
    pub(super) async fn flush(self) {
        drop(self.lines);
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.written).await;
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    let failed = |error| Failure::own(format!("the thread for {name} cannot be started"), error);
    started.map(drop).map_err(failed)
}

/// Writes to stdout. Returns why no more can be written.
fn write(line: &str) -> Option<End> {
    match output::write_to_reader(line.as_bytes()) {
        Ok(true) => None,
        Ok(false) => Some(End::NoReader),
        Err(failure) => Some(End::Failed(failure)),
    }
}

/// Waits until stdin has ended, and reports that and the end of the reader of stdout.
fn watch(ends: &UnboundedSender<End>) {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    loop {
        let mut streams = [
            PollFd::new(&stdout, PollFlags::empty()),
            PollFd::new(&stdin, PollFlags::IN),
        ];
        // A process in the background would be stopped by the terminal, and would lose the lock.
        let (count, timeout) = match may_read(&stdin) {
            true => (2, None),
            false => (1, Some(&BACKGROUND_INTERVAL)),
        };
        let polled = poll(&mut streams[..count], timeout);
        let [has_no_reader, is_readable] = streams.map(|stream| !stream.revents().is_empty());
        let end = match polled {
            // It may be in the background by now.
            Ok(_) if is_readable && may_read(&stdin) && has_ended(&stdin) => End::Closed,
            Ok(_) if has_no_reader => End::NoReader,
            Ok(_) | Err(Errno::INTR) => continue,
            Err(error) => End::Failed(Failure::own("stdin and stdout cannot be watched", error)),
        };
        let _ = ends.send(end);
        return;
    }
}

/// Whether stdin has ended before it was of any use.
fn has_ended_already(stdin: &Stdin) -> bool {
    let is_readable = || {
        let mut streams = [PollFd::new(stdin, PollFlags::IN)];
        let no_time = Timespec::default();
        may_read(stdin) && poll(&mut streams, Some(&no_time)).is_ok_and(|ready| ready > 0)
    };
    (0..FIRST_READS).any(|_| is_readable() && has_ended(stdin))
}

/// Reads from a stream that is ready. What is read means nothing.
fn has_ended(stdin: &Stdin) -> bool {
    match read(stdin, &mut [0; READ_LENGTH]) {
        Ok(length) => length == 0,
        Err(Errno::INTR | Errno::AGAIN) => false,
        // Such as a terminal that is gone.
        Err(_) => true,
    }
}

/// Whether this process is in the foreground of a terminal at stdin, or there is no terminal.
fn may_read(stdin: &impl AsFd) -> bool {
    tcgetpgrp(stdin).map_or(true, |foreground| foreground == getpgrp())
}
