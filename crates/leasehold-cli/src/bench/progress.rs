//! How far a run has come.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often it is drawn: seldom enough to cost nothing.
const EVERY: Duration = Duration::from_millis(250);

/// A bar on stderr, drawn by a thread of its own as the time goes by. Gone when it is dropped.
pub(super) struct Progress {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Of work that takes so long. Draws nothing where stderr is no terminal.
    pub(super) fn over(span: Duration) -> Self {
        let length = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let bar = styled(ProgressBar::new(length));
        if bar.is_hidden() {
            return Self {
                stop: None,
                thread: None,
            };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let start = Instant::now();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let position = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
                bar.set_position(position.min(length));
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
pub(super) fn styled(bar: ProgressBar) -> ProgressBar {
    if let Ok(style) = ProgressStyle::with_template("measuring {bar:40} {eta}") {
        bar.set_style(style);
    }
    bar
}
