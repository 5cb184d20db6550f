//! How far a run has come.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often it is drawn: seldom enough to cost nothing.
const EVERY: Duration = Duration::from_millis(250);

/// A bar on stderr, drawn by a thread of its own as the work goes on. Gone when it is dropped.
pub(super) struct Progress {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Of measuring for so long.
    pub(super) fn over(span: Duration) -> Self {
        let start = Instant::now();
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self::of("measuring", millis(span), move || millis(start.elapsed()))
    }

    /// Of work with a name, of which so much is done. Draws nothing where stderr is no terminal.
    pub(super) fn of(
        name: &'static str,
        length: u64,
        done: impl Fn() -> u64 + Send + 'static,
    ) -> Self {
        let bar = styled(name, ProgressBar::new(length));
        if bar.is_hidden() {
            return Self {
                stop: None,
                thread: None,
            };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                bar.set_position(done().min(length));
            }
            bar.finish_and_clear();
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It only draws; what became of that does not matter.
            let _ = thread.join();
        }
    }
}

/// The look of every bar.
pub(super) fn styled(name: &'static str, bar: ProgressBar) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:40} {eta}") {
        bar.set_style(style);
    }
    bar.with_message(name)
}
