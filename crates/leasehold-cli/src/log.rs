//! The log on stderr.

use std::io::{self, Write};

use leasehold::__private::store::distance;
use tracing_subscriber::filter::{LevelFilter, ParseError, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::args::LogFormat;
use crate::output::printable_lines;
use crate::{json, stderr, variables};

/// Logs what the filter in `LEASEHOLD_LOG` selects, and without one nothing.
pub(crate) fn init() {
    if let Some(filter) = filter() {
        install(filter, LogFormat::Text);
    }
}

/// Logs for a service: by default, more than failures.
pub(crate) fn init_service(format: LogFormat) {
    let default = || Targets::new().with_target("leasehold", LevelFilter::INFO);
    install(filter().unwrap_or_else(default), format);
}

/// The filter in `LEASEHOLD_LOG`, such as `leasehold=debug,warn`. `None` without a valid one.
fn filter() -> Option<Targets> {
    let text = std::env::var_os(variables::LOG)?;
    let text = text.to_str().ok_or_else(|| "it is not UTF-8".to_owned());
    let parse = |text: &str| {
        let filter = text
            .parse()
            .map_err(|error: ParseError| error.to_string())?;
        text.split(',').for_each(print_unknown_word);
        Ok(filter)
    };
    let filter = text.and_then(parse);
    let filter = filter.inspect_err(|error| {
        note!("leasehold: LEASEHOLD_LOG is not a log filter such as leasehold=debug: {error}");
    });
    filter.ok()
}

/// Prints that a word of the filter is perhaps a misspelt level: a target of this name logs nothing.
fn print_unknown_word(word: &str) {
    let is_known = word.parse::<LevelFilter>().is_ok() || word.starts_with("leasehold");
    if is_known || word.contains(['=', '[']) {
        return;
    }
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let distances = levels.map(|level| (distance(&word.to_ascii_lowercase(), level), level));
    let nearest = distances.into_iter().min().filter(|(typos, _)| *typos <= 2);
    let meant = nearest.map(|(_, level)| format!("; did you mean {level}?"));
    let meant = meant.unwrap_or_default();
    note!("leasehold: {word:?} in LEASEHOLD_LOG is no level, and no target of leasehold{meant}");
}

fn install(filter: Targets, format: LogFormat) {
    // An error of writing is not logged, because logging it would also fail, and panic.
    let log = fmt()
        .with_max_level(LevelFilter::TRACE)
        .log_internal_errors(false);
    // Fails only if a subscriber was set on purpose before.
    let _ = match format {
        LogFormat::Text => {
            let log = log.with_writer(|| LogWriter(printable_lines)).finish();
            log.with(filter).try_init()
        }
        LogFormat::Json => {
            let log = log.json().with_writer(|| LogWriter(json::escaped)).finish();
            log.with(filter).try_init()
        }
    };
}

/// The standard error stream, with the function that escapes what a terminal would not print.
struct LogWriter(fn(&str) -> String);

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self(escape) = self;
        stderr::write(escape(&String::from_utf8_lossy(bytes)))?;
        Ok(bytes.len())
    }

    /// Does nothing: stderr is not buffered, and its lock may be taken by a blocked writer.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
