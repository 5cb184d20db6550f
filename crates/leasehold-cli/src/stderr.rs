//! Writes to stderr. A process that keeps leases writes on a thread of its own: it must renew them and handle signals
//! also while the reader of its stderr is stalled.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The number of lines that are kept for a stalled reader. Older ones are dropped: the last line of a run is the reason
/// for its exit code.
const QUEUE_LENGTH: usize = 1_024;

/// How long an exit waits until a stalled reader takes a line.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(300);

/// How often an exit waits for that time if the reader would take a line, but a busy machine does not run the thread.
const FLUSHES_MAX: u32 = 30;

/// The lines for the thread that writes. Unset if there is no such thread.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Has a thread write all further lines, so that no caller is blocked. If the system has no thread left, lines are
/// written directly.
pub(crate) fn start_thread() {
    let builder = thread::Builder::new().name("stderr".into());
    let started = builder.spawn(|| QUEUE.get_or_init(Queue::default).write_lines(write_line));
    if started.is_ok() {
        QUEUE.get_or_init(Queue::default);
    }
}

/// Writes a line, which ends with its line break.
pub(crate) fn write(line: String) -> io::Result<()> {
    match QUEUE.get() {
        Some(queue) => {
            queue.push(line);
            Ok(())
        }
        None => write_line(line.as_bytes()),
    }
}

/// Waits until all lines are written, as long as the reader takes them.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_TIMEOUT, reader_is_stalled);
    }
}

fn reader_is_stalled() -> bool {
    let stderr = io::stderr();
    let writable = poll(
        &mut [PollFd::new(&stderr, PollFlags::OUT)],
        Some(&Timespec::default()),
    );
    writable != Ok(1)
}

fn write_line(line: &[u8]) -> io::Result<()> {
    write_all(&mut io::stderr(), line)
}

/// Writes all bytes to a stream, also where another process has made it non-blocking.
pub(crate) fn write_all<S: Write + AsFd>(stream: &mut S, mut bytes: &[u8]) -> io::Result<()> {
    loop {
        let written = match bytes {
            [] => stream.flush().map(|()| 0),
            bytes => stream.write(bytes),
        };
        match written {
            Ok(0) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = poll(&mut [PollFd::new(stream, PollFlags::OUT)], None);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[derive(Default)]
struct Queue {
    buffer: Mutex<Buffer>,
    changed: Condvar,
}

#[derive(Default)]
struct Buffer {
    queued: VecDeque<String>,
    /// The number of lines that were dropped before the first queued one.
    dropped: usize,
    /// Whether the thread writes a line.
    writes: bool,
    /// The number of lines that the thread has written.
    written: u64,
}

impl Queue {
    fn push(&self, line: String) {
        self.lock().push(line);
        self.changed.notify_all();
    }

    /// Waits until all lines are written, or until the thread has written none for a time because the reader is stalled.
    fn flush(&self, timeout: Duration, reader_is_stalled: impl Fn() -> bool) {
        let mut buffer = self.lock();
        let mut flushes = 0;
        while !buffer.is_empty() {
            let before = buffer.written;
            let is_blocked = |buffer: &mut Buffer| !buffer.is_empty() && buffer.written == before;
            let waited = self.changed.wait_timeout_while(buffer, timeout, is_blocked);
            let (after, result) = waited.unwrap_or_else(PoisonError::into_inner);
            flushes += u32::from(result.timed_out());
            if result.timed_out() && (flushes >= FLUSHES_MAX || reader_is_stalled()) {
                return;
            }
            buffer = after;
        }
    }

    /// Writes lines in their order, for as long as the process lives.
    fn write_lines(&self, mut write: impl FnMut(&[u8]) -> io::Result<()>) {
        let mut buffer = self.lock();
        loop {
            if let Some(line) = buffer.next() {
                buffer.writes = true;
                drop(buffer);
                // A closed stderr must not end a run.
                let _ = write(line.as_bytes());
                buffer = self.lock();
                buffer.writes = false;
                buffer.written += 1;
                self.changed.notify_all();
            } else {
                let woken = self.changed.wait(buffer);
                buffer = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer {
    fn push(&mut self, line: String) {
        if self.queued.len() >= QUEUE_LENGTH {
            self.queued.pop_front();
            self.dropped += 1;
        }
        self.queued.push_back(line);
    }

    /// Removes the next line, which reports those that were dropped before.
    fn next(&mut self) -> Option<String> {
        match std::mem::take(&mut self.dropped) {
            0 => self.queued.pop_front(),
            dropped => Some(format!(
                "leasehold: stderr was blocked, lines dropped: {dropped}\n"
            )),
        }
    }

    /// Whether all lines are written.
    fn is_empty(&self) -> bool {
        self.queued.is_empty() && !self.writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_are_dropped_while_the_queue_is_full_and_a_line_reports_it() {
        let mut buffer = Buffer::default();
        for number in 0..QUEUE_LENGTH + 2 {
            buffer.push(format!("{number}\n"));
        }
        let report = "leasehold: stderr was blocked, lines dropped: 2\n";
        assert_eq!(buffer.next().as_deref(), Some(report));
        for number in 2..QUEUE_LENGTH + 2 {
            assert_eq!(buffer.next(), Some(format!("{number}\n")));
        }
        assert!(buffer.next().is_none() && buffer.is_empty());
    }

    /// The reader takes a line now and then, all of them in more than the time limit.
    #[test]
    fn an_exit_waits_for_a_slow_reader_and_not_for_a_stalled_one() {
        let (interval, lines) = (Duration::from_millis(200), 8);
        let queue: &Queue = Box::leak(Box::default());
        let (permit, permits) = std::sync::mpsc::channel();
        for number in 0..lines + 1 {
            queue.push(format!("{number}\n"));
        }
        thread::spawn(move || {
            queue.write_lines(|_| permits.recv().map_err(io::Error::other));
        });
        let reader = thread::spawn(move || {
            for _ in 0..lines {
                thread::sleep(interval);
                permit.send(()).unwrap();
            }
            // The writer is blocked from now on.
            permit
        });
        queue.flush(interval * 4, || true);
        assert_eq!(queue.lock().written, lines);
        reader.join().unwrap();
    }

    #[test]
    fn an_exit_waits_for_a_thread_that_a_busy_machine_does_not_run() {
        let queue: &Queue = Box::leak(Box::default());
        queue.push("the reason for the exit code\n".to_owned());
        let timeouts = std::cell::Cell::new(0);
        queue.flush(FLUSH_TIMEOUT, || {
            timeouts.set(timeouts.get() + 1);
            if timeouts.get() == 2 {
                thread::spawn(|| queue.write_lines(|_| Ok(())));
            }
            false
        });
        assert_eq!(queue.lock().written, 1);
    }
}
