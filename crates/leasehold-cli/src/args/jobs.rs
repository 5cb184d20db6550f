//! The arguments of jobs: `run --every`, `once` and `jobs`.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use jiff::Timestamp;
use jiff::civil::Time;

use super::{RunArgs, ShareArgs};
use crate::exit::Failure;
use crate::{duration, help};

/// The bounds of a period.
const PERIOD_MIN: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_secs(365 * SECONDS_PER_DAY);

/// The bounds of the time for which a record is kept.
const KEEP_MAX: Duration = Duration::from_secs(3_650 * SECONDS_PER_DAY);

/// Below this number of seconds a period needs its unit.
const SMALL_MAX: Duration = Duration::from_secs(60);

/// The longest delay after a failed run.
const DELAY_MAX: Duration = Duration::from_secs(SECONDS_PER_DAY);

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;

/// Acquire a lock, run a command, release the lock.
///
/// The lease is renewed while the command runs. If renewals fail, the command is stopped before
/// another client can acquire the lock. Options stand before COMMAND; all that follows its first word belongs to it.
#[derive(Debug, Args)]
#[command(
    override_usage = help::RUN_USAGE,
    after_long_help = help::RUN,
    next_help_heading = "Job",
    mut_group("job", |options| options.requires("every"))
)]
pub(crate) struct RunCommand {
    /// Run the command once in each period: the others wait until the run is complete, and exit with 0.
    /// Two runs can be close: --at-least keeps a distance
    // Each by its own name: an error lists all options of a group.
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = period,
        conflicts_with_all = ["and", "shared", "exclusive", "permits", "weight", "numbered"]
    )]
    pub(crate) every: Option<Duration>,
    /// The time of the timer, as 02:00 in UTC or 2026-01-05T02:00:00Z; default: when the first run was started
    #[arg(long, value_name = "TIME", value_parser = Anchor::parse, allow_hyphen_values = true, requires = "every")]
    pub(crate) anchor: Option<Anchor>,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten)]
    pub(crate) share: ShareArgs,
    // Last, as its options are many.
    #[command(flatten, next_help_heading = None::<&'static str>)]
    pub(crate) run: RunArgs,
}

/// Run a command once for a key, on one of several machines.
///
/// The others wait until the run is complete, and exit with 0 without running the command. If the run fails, is lost or
/// its machine dies, one of them takes over. Options stand before COMMAND; all that follows its first word belongs to it.
#[derive(Debug, Args)]
#[command(override_usage = help::ONCE_USAGE, after_long_help = help::ONCE, next_help_heading = "Job")]
pub(crate) struct OnceCommand {
    /// The key, such as a version: 1 to 256 bytes, no control characters or outer spaces
    #[arg(long, value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    #[command(flatten, next_help_heading = None::<&'static str>)]
    pub(crate) run: RunArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Job")]
#[group(id = "job")]
pub(crate) struct JobArgs {
    /// Keep the lock for this time after a run that failed: nobody tries again before
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = duration::within(Duration::from_millis(1)..=DELAY_MAX, "from 1ms to 24h")
    )]
    pub(crate) retry_after: Option<Duration>,
    /// Keep the record of the run for this time; if not given, 30d with --every and 3650d with --key
    #[arg(long, value_name = "DURATION", value_parser = keep)]
    pub(crate) keep: Option<Duration>,
    /// The exit code if the run was complete already, instead of 0
    #[arg(long, value_name = "CODE", allow_negative_numbers = true)]
    pub(crate) done_exit_code: Option<u8>,
    /// Try it: run the command even if the run is complete, and record nothing; no --at-least or --retry-after
    #[arg(long)]
    pub(crate) no_record: bool,
}

/// List the last completed runs of jobs.
///
/// A run is listed if it said that it was complete: its command ended with 0. A job is overdue if the time of its next
/// run is half a period ago. A record that cannot be read is named on stderr.
#[derive(Debug, Args)]
#[command(override_usage = "leasehold jobs [OPTIONS]", after_long_help = help::JOBS)]
pub(crate) struct JobsArgs {
    /// Remove the record of the last run of this job, so that its next start runs it
    #[arg(long, value_name = "NAME", group = "record")]
    pub(crate) reset: Option<String>,
    /// The key of the record to be removed or checked, for a job of once
    #[arg(long, value_name = "KEY", requires = "record")]
    pub(crate) key: Option<String>,
    /// Exit with 1 if a job is overdue, or one of these has no readable record, and print only that on stderr
    #[arg(
        long,
        value_name = "NAME",
        num_args = 0..,
        value_parser = clap::builder::NonEmptyStringValueParser::new(),
        group = "record"
    )]
    pub(crate) check: Option<Vec<String>>,
    /// Print a JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Print metrics for the textfile collector of node_exporter instead of a table
    #[arg(long, conflicts_with_all = ["json", "reset", "check"])]
    pub(crate) prometheus: bool,
}

/// The time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    /// On each day, in UTC.
    TimeOfDay(Time),
    Time(Timestamp),
}

impl Anchor {
    fn parse(text: &str) -> Result<Self, String> {
        // The parser of times ignores an offset.
        let time_of_day = match text.contains(|c: char| !c.is_ascii_digit() && c != ':') {
            true => None,
            false => text.parse().ok().map(Self::TimeOfDay),
        };
        let time = || text.parse().ok().map(Self::Time);
        time_of_day.or_else(time).ok_or_else(|| {
            let padded = format!("0{text}");
            let meant = padded.parse::<Time>().map(|_| format!("; did you mean {padded}?"));
            format!(
                "a time is HH:MM in UTC, or a date and time with its zone, such as 02:00 or 2026-01-05T02:00:00Z{}",
                meant.unwrap_or_default()
            )
        })
    }

    /// A time at which the slots of this period have their times.
    pub(crate) fn time(self, period: Duration) -> Result<SystemTime, Failure> {
        match self {
            Self::Time(time) => Ok(time.into()),
            Self::TimeOfDay(time) => {
                let day = Duration::from_secs(SECONDS_PER_DAY);
                if !day.as_nanos().is_multiple_of(period.as_nanos()) {
                    return Err(Failure::usage(format!(
                        "--anchor {self} is a time of day, which is not at the same distance from all runs with --every {}; \
                         also give a date, such as 2026-01-05T{self}Z",
                        duration::format(period)
                    )));
                }
                let since = time.duration_since(Time::midnight());
                let since = Duration::try_from(since).unwrap_or_default();
                Ok(UNIX_EPOCH + since)
            }
        }
    }
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeOfDay(time) => fmt::Display::fmt(time, f),
            Self::Time(time) => fmt::Display::fmt(time, f),
        }
    }
}

fn period(text: &str) -> Result<Duration, String> {
    with_unit(text)?;
    let period = duration::within(PERIOD_MIN..=PERIOD_MAX, "from 1s to 365d");
    period(text).map_err(|error| match duration::parse(text) {
        Ok(_) => error,
        Err(error) => format!("{error}; --anchor is the time of day"),
    })
}

fn keep(text: &str) -> Result<Duration, String> {
    with_unit(text)?;
    duration::within(PERIOD_MIN..=KEEP_MAX, "from 1s to 3650d")(text)
}

/// Refuses a small number without a unit: `--every 24` is hardly meant as seconds.
fn with_unit(text: &str) -> Result<(), String> {
    let number = text.trim();
    let is_small = |it| (PERIOD_MIN..SMALL_MAX).contains(&it);
    match duration::is_number(number) && duration::parse(number).is_ok_and(is_small) {
        true => Err(format!(
            "without a unit it is seconds; write {number}s, {number}m, {number}h or {number}d"
        )),
        false => Ok(()),
    }
}
