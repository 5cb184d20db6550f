//! Exit codes and failures.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use tokio::runtime::{Builder, Runtime};

use crate::variables;

/// The lock was lost while the command ran.
pub(crate) const LOST: u8 = 122;
/// The wait for the lock timed out.
pub(crate) const TIMED_OUT: u8 = 124;
/// This program failed, or its arguments are invalid.
pub(crate) const FAILED: u8 = 125;
/// The command could not be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;
/// Held elsewhere, and the caller does not want to wait.
pub(crate) const REFUSED: u8 = 75;
/// The lock is free.
pub(crate) const FREE: u8 = 1;
/// There is no leader, no record to remove, or no watchdog that replies.
pub(crate) const NONE: u8 = 1;
/// A checked job is overdue, or has no record that can be read.
pub(crate) const OVERDUE: u8 = 1;
/// The diagnosis has warnings. A part that could not be checked counts as one.
pub(crate) const WARNINGS: u8 = 1;
/// The diagnosis has dangers.
pub(crate) const DANGERS: u8 = 2;

/// How many more files a command must be able to open. It opens about 15, and connects anew after a failure.
const OPEN_FILES: usize = 24;

/// The exit code for a signal.
pub(crate) fn by_signal(signal: i32) -> u8 {
    u8::try_from(signal).map_or(u8::MAX, |signal| 128_u8.saturating_add(signal))
}

/// Settings that the messages of the library name, and what they are on the command line.
const SETTINGS: [(&str, &str); 9] = [
    (
        "acquire it as a lock",
        "leave out --shared, --exclusive and --permits",
    ),
    (
        "acquire it as a read-write lock",
        "use run --shared or run --exclusive",
    ),
    ("acquire it as a semaphore", "use run --permits N"),
    (
        "ClientBuilder::password",
        "LEASEHOLD_PASSWORD or LEASEHOLD_PASSWORD_FILE",
    ),
    ("ClientBuilder::username", "the user in the URL"),
    ("the durability (replicas)", "--replicas"),
    ("Watchdog::store_name", "--watchdog-store"),
    ("Job::reset", "leasehold jobs --reset"),
    (
        "ClientBuilder::sentinel_password",
        variables::SENTINEL_PASSWORD,
    ),
];

/// A failure of the program.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Failure {
    pub(crate) fn own(
        message: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self {
            source: Some(Box::new(source)),
            ..Self::usage(message)
        }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self {
            code: FAILED,
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn with_code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    /// With a further statement, behind the causes.
    pub(crate) fn with_detail(mut self, detail: &str) -> Self {
        self.message = format!("{}; {detail}", self.with_causes());
        self
    }

    /// The message of an error with all its causes.
    fn with_causes(&self) -> String {
        let mut text = self.message.clone();
        let mut source = self.source.as_deref().map(|error| error as &dyn Error);
        while let Some(error) = source {
            let part = error.to_string();
            // Some errors repeat their source in their own text.
            if !text.contains(&part) {
                text = format!("{text}: {part}");
            }
            source = error.source();
        }
        text
    }

    /// Whether the store refuses requests for a while.
    pub(crate) fn is_transient_refusal(&self) -> bool {
        let error = self.library_error();
        error.is_some_and(leasehold::Error::is_transient_refusal)
    }

    /// Whether the same request may succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        let error = self.library_error();
        error.is_some_and(leasehold::Error::is_transient)
    }

    /// The kind of the failure, as JSON has it.
    pub(crate) fn kind(&self) -> &'static str {
        match (self.library_error(), &self.source) {
            (Some(error), _) => error.kind().as_str(),
            (None, Some(_)) => "system",
            (None, None) => "usage",
        }
    }

    /// Whether the store did not reply.
    pub(crate) fn is_unreachable(&self) -> bool {
        let error = self.library_error();
        error.is_some_and(|error| error.kind() == leasehold::ErrorKind::Unreachable)
    }

    /// The error of the library that caused it.
    pub(crate) fn library_error(&self) -> Option<&leasehold::Error> {
        self.source.as_deref()?.downcast_ref()
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Prints it to stderr.
    pub(crate) fn report(&self) {
        note!("leasehold: {self}");
    }
}

/// A message of the library, with the settings of the command line in place of those of the library.
pub(crate) fn with_options(mut message: String) -> String {
    for (setting, option) in SETTINGS {
        message = message.replace(setting, option);
    }
    message
}

/// Starts a runtime of this kind.
pub(crate) fn start_runtime(mut kind: Builder) -> Result<Runtime, Failure> {
    check_open_files()?;
    let runtime = kind.enable_all().build();
    runtime.map_err(|error| Failure::own("the runtime could not be started", error))
}

/// Checks that as many files can be opened as a command needs. A runtime that cannot open its own panics, and a command
/// that opens them later could lose its lock.
fn check_open_files() -> Result<(), Failure> {
    let opened = (0..OPEN_FILES).map(|_| io::stderr().as_fd().try_clone_to_owned());
    let opened: io::Result<Vec<OwnedFd>> = opened.collect();
    opened.map(drop).map_err(|error| {
        let message = format!("{OPEN_FILES} more open files are needed");
        Failure::own(message, error)
            .with_detail("raise the limit of open files (ulimit -n, or LimitNOFILE= of a unit)")
    })
}

/// The message of an error with all its causes, in the words of the command line.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_options(self.with_causes()))
    }
}

/// Invalid arguments, in the words of the parser.
impl From<clap::Error> for Failure {
    fn from(error: clap::Error) -> Self {
        let text = error.render().to_string();
        let text = text.trim();
        Self::usage(text.strip_prefix("error: ").unwrap_or(text))
    }
}

impl From<leasehold::Error> for Failure {
    fn from(error: leasehold::Error) -> Self {
        let message = error.to_string();
        Self::own(message, error)
    }
}
