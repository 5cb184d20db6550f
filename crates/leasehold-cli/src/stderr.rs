//! Writes to stderr. A process that holds a lock writes on a thread of its own: it must renew its lock and handle signals
//! also while the reader of its stderr is stalled.

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// The number of lines that are kept for a stalled reader. Further ones are dropped.
const QUEUE_LENGTH: usize = 256;

/// How long an exit waits for the reader.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(300);

/// The lines for the thread that writes. Unset if there is no such thread.
static QUEUE: OnceLock<Queue> = OnceLock::new();

/// Has a thread write all further lines, so that no caller is blocked. If the system has no thread left, lines are
/// written directly.
pub(crate) fn start_thread() {
    let builder = thread::Builder::new().name("stderr".into());
    let started = builder.spawn(|| QUEUE.get_or_init(Queue::default).write_lines());
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
        None => io::stderr().write_all(line.as_bytes()),
    }
}

/// Waits for a short time until all lines are written.
pub(crate) fn flush() {
    if let Some(queue) = QUEUE.get() {
        queue.flush(FLUSH_TIMEOUT);
    }
}

#[derive(Default)]
struct Queue {
    buffer: Mutex<Buffer>,
    changed: Condvar,
}

#[derive(Default)]
struct Buffer {
    /// The head is an empty placeholder while it is written.
    queued: VecDeque<String>,
    /// The number of lines that were dropped after the last queued one.
    dropped: usize,
}

impl Queue {
    fn push(&self, line: String) {
        self.lock().push(line);
        self.changed.notify_all();
    }

    fn flush(&self, timeout: Duration) {
        let has_lines = |buffer: &mut Buffer| !buffer.queued.is_empty();
        let _ = self
            .changed
            .wait_timeout_while(self.lock(), timeout, has_lines);
    }

    /// Writes lines in their order, for as long as the process lives.
    fn write_lines(&self) {
        let mut buffer = self.lock();
        loop {
            if let Some(head) = buffer.queued.front_mut() {
                let line = std::mem::take(head);
                drop(buffer);
                // A closed stderr must not end a run.
                let _ = io::stderr().write_all(line.as_bytes());
                buffer = self.lock();
                buffer.queued.pop_front();
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
            self.dropped += 1;
            return;
        }
        if self.dropped > 0 {
            let dropped = std::mem::take(&mut self.dropped);
            let report = format!("leasehold: stderr was blocked, lines dropped: {dropped}\n");
            self.queued.push_back(report);
        }
        self.queued.push_back(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_dropped_while_the_queue_is_full_and_a_later_line_reports_it() {
        let mut buffer = Buffer::default();
        for number in 0..QUEUE_LENGTH + 2 {
            buffer.push(format!("{number}\n"));
        }
        assert_eq!(buffer.queued.len(), QUEUE_LENGTH);
        for number in 0..QUEUE_LENGTH {
            assert_eq!(buffer.queued.pop_front(), Some(format!("{number}\n")));
        }
        buffer.push("last\n".to_owned());
        let report = "leasehold: stderr was blocked, lines dropped: 2\n";
        assert_eq!(buffer.queued, [report, "last\n"]);
    }
}
