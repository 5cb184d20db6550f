//! A line on stderr while a run lasts.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The interval of redrawing: long enough to cost nothing.
const EVERY: Duration = Duration::from_millis(250);

/// A line with the present step and its duration. Removed when it is dropped; hidden where stderr is not a
/// terminal.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn start(what: &'static str) -> Self {
        let line = ProgressBar::new_spinner().with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            line.set_style(style);
        }
        if !line.is_hidden() {
            line.enable_steady_tick(EVERY);
        }
        Self(line)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
