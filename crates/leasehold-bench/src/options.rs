//! The command line, and which options belong to which scenario.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use jiff::SignedDuration;
use leasehold::Secret;
use serde::{Deserialize, Serialize};

use self::Scenario::{
    Contended, Independent, Many, Observe, Primitives, Renew, Uncontended, Wakeup, Watched,
};
use crate::Result;
use crate::baseline::Advisory;
use crate::target::Target;

/// The default tasks of `independent` and `renew` where tasks wait for a disk.
const TASKS_ON_DISK: u16 = 64;

/// The default duration.
const DURATION: Duration = Duration::from_secs(5);

/// A lease is renewed once in such a part of its ttl.
const RENEWALS_PER_TTL: u32 = 3;

/// The longest critical section: every task shall have the lock at least once in a while.
const SECTION_MAX: Duration = Duration::from_secs(1);

/// The most waiters of `wakeup`, each of which has connections and a timer of its own.
const WAKEUP_WAITERS_MAX: u16 = 500;

const WITH_TASKS: &[Scenario] = &[Uncontended, Independent, Contended, Many, Renew, Watched];

/// The options that only some scenarios have.
const SCENARIOS_OF: [(&str, &[Scenario]); 11] = [
    ("tasks", WITH_TASKS),
    ("threads", WITH_TASKS),
    ("processes", &[Contended, Many, Observe]),
    ("section", &[Contended]),
    ("reads", &[Contended]),
    ("names", &[Many]),
    ("waiters", &[Wakeup, Primitives]),
    ("observers", &[Observe]),
    ("election", &[Wakeup, Observe]),
    ("leases", &[Renew]),
    ("ttl", &[Renew]),
];

/// Measure what a lock costs at a store.
///
/// Acquires only locks under its own names. Uncontended scenarios alternate with baseline calls that do the
/// same to the store without leasehold: in the same process and in short slices, so that other load on
/// the machine affects both. Contended scenarios also check mutual exclusion, and renew checks that no
/// lease is lost. docs/performance.md has examples.
#[derive(Debug, Parser)]
#[command(name = "leasehold-bench", version, max_term_width = 100)]
pub(crate) struct Options {
    /// The store: sqlite:PATH, redis://HOST, postgres://USER@HOST/DATABASE, etcd://HOST, ..., memory:
    #[arg(
        long,
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        hide_env_values = true
    )]
    store: String,
    /// The namespace of the locks
    #[arg(
        long,
        value_name = "TEXT",
        env = "LEASEHOLD_NAMESPACE",
        default_value = "leasehold"
    )]
    namespace: String,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Seconds to measure; 5 if not given
    ///
    /// wakeup takes six seconds more. contended takes this time for each kind of lock. renew observes renewals for that
    /// long, two thirds of the ttl if not given, so that every lease is renewed twice; the whole run takes two and a half
    /// times that, and the time to take and release the locks.
    #[arg(long, value_name = "S", value_parser = up_to::<u16>(3_600))]
    seconds: Option<u16>,
    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// The settings of a run.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// What to measure
    #[arg(long, value_enum, default_value_t = Uncontended)]
    pub(crate) scenario: Scenario,
    /// Tasks in each process; 64 if not given, 256 for independent and renew without SQLite and PostgreSQL, 1 for
    /// uncontended and watched
    #[arg(long, value_name = "N", value_parser = up_to::<u16>(10_000))]
    #[arg(default_value = "1", hide_default_value = true, default_value_ifs = [
        ("scenario", "contended", "64"), ("scenario", "many", "64"),
        ("scenario", "independent", "256"), ("scenario", "renew", "256"),
    ])]
    pub(crate) tasks: u16,
    /// contended, many: number of processes; observe: number of processes that share the observers
    #[arg(long, value_name = "N", value_parser = up_to::<u16>(64), default_value_t = 1)]
    pub(crate) processes: u16,
    /// contended: duration of the critical section
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0")]
    pub(crate) section: Duration,
    /// contended: of a hundred acquisitions so many read, and the others write; without it the lock is a mutex
    #[arg(long, value_name = "PERCENT", value_parser = up_to::<u8>(99))]
    pub(crate) reads: Option<u8>,
    /// many: number of locks; 1000 if not given
    #[arg(long, value_name = "N", value_parser = up_to::<u32>(1_000_000))]
    #[arg(default_value = "1", hide_default_value = true)]
    #[arg(default_value_if("scenario", "many", "1000"))]
    pub(crate) names: u32,
    /// wakeup: number of waiters while the server's work is measured, 1 if not given and 500 at most; primitives: number
    /// of readers behind a writer, after a tenth of them, 10000 if not given
    #[arg(long, value_name = "N", value_parser = up_to::<u16>(10_000))]
    #[arg(default_value = "1", hide_default_value = true)]
    #[arg(default_value_if("scenario", "primitives", "10000"))]
    pub(crate) waiters: u16,
    /// observe: number of observers
    #[arg(long, value_name = "N", value_parser = up_to::<u16>(10_000), default_value_t = 100)]
    pub(crate) observers: u16,
    /// wakeup, observe: measure leaders that resign instead of holders that release
    #[arg(long)]
    pub(crate) election: bool,
    /// renew: number of locks held at once
    #[arg(long, value_name = "N", value_parser = up_to::<u32>(2_000_000), default_value_t = 100_000)]
    pub(crate) leases: u32,
    /// renew: ttl of these locks
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "30s")]
    pub(crate) ttl: Duration,
    /// Threads that run the tasks of a process
    #[arg(long, value_name = "N", value_parser = up_to::<u16>(256), default_value_t = 1)]
    pub(crate) threads: u16,
    /// The time that counts.
    #[arg(skip)]
    pub(crate) duration: Duration,
    /// contended: advisory locks of PostgreSQL instead of leasehold.
    #[arg(skip)]
    pub(crate) advisory: Option<Advisory>,
}

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub(crate) enum Scenario {
    /// One task takes one lock, over and over: the cost of an uncontended lock
    Uncontended,
    /// Many tasks with a lock each: the throughput of one process
    Independent,
    /// Many tasks in one process or several want the same lock: how often it changes hands, and how
    /// fairly
    Contended,
    /// A lock passes back and forth between processes: the time from a release to the next acquisition,
    /// and what waiting costs the server
    Wakeup,
    /// Observers of a lock or an election: the time from a release until each of them is notified of the next
    /// holder
    Observe,
    /// Many tasks and many locks, some wanted more often than others
    Many,
    /// One process holds very many locks: the cost of renewing their leases, and what becomes slower
    /// meanwhile
    Renew,
    /// Permits and reads in turn with the mutex: uncontended, beside other holders, many readers, and renewal
    Primitives,
    /// Tasks with a lock each, kept alive by the watchdog of this machine and not, in turn: the cost of the watchdog
    Watched,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl Options {
    /// Parses a command line. An option that has no effect is an error.
    pub(crate) fn parse_line(
        line: impl IntoIterator<Item = OsString>,
    ) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(line)?;
        let mut options = Self::from_arg_matches(&matches)?;
        match options.complete(&matches) {
            Ok(()) => Ok(options),
            Err(error) => Err(Self::command().error(ErrorKind::ArgumentConflict, error)),
        }
    }

    /// Checks the settings, and adds those that depend on others.
    fn complete(&mut self, matches: &ArgMatches) -> Result<(), String> {
        let given = |option| matches.value_source(option) == Some(ValueSource::CommandLine);
        let settings = &mut self.settings;
        let scenario = settings.scenario;
        for (option, scenarios) in SCENARIOS_OF {
            if given(option) && !scenarios.contains(&scenario) {
                let names: Vec<_> = scenarios.iter().map(Scenario::to_string).collect();
                let names = names.join(", ");
                return Err(format!(
                    "--{option} has no meaning for {scenario}; it is for {names}"
                ));
            }
        }
        if scenario == Uncontended && settings.tasks > 1 {
            return Err("uncontended is one task; measure many with --scenario independent".into());
        }
        if self.store.starts_with("memory:") && (settings.processes > 1 || scenario == Wakeup) {
            return Err(
                "memory: is inside one process, which no other can reach; choose a store \
                        that processes share"
                    .into(),
            );
        }
        if scenario == Observe && settings.observers < settings.processes {
            return Err("--observers must be at least as many as --processes".into());
        }
        if scenario == Wakeup && settings.waiters > WAKEUP_WAITERS_MAX {
            return Err("--waiters can be 500 at most for wakeup".into());
        }
        if settings.section > SECTION_MAX {
            return Err("--section can be 1 s at most".into());
        }
        let waits_for_disk = ["sqlite:", "postgres"];
        if waits_for_disk.iter().any(|it| self.store.starts_with(it)) && !given("tasks") {
            settings.tasks = settings.tasks.min(TASKS_ON_DISK);
        }
        let interval = settings.ttl / RENEWALS_PER_TTL;
        let seconds = self
            .seconds
            .map(|seconds| Duration::from_secs(seconds.into()));
        settings.duration = match scenario {
            Renew => seconds.unwrap_or(2 * interval),
            _ => seconds.unwrap_or(DURATION),
        };
        if scenario == Renew && settings.duration < interval {
            return Err(format!(
                "--seconds must be a third of the ttl at least, here {}: every lease is renewed \
                 once in that time",
                interval.as_secs_f64().ceil()
            ));
        }
        Ok(())
    }

    /// The store, and names in it that nobody else uses. Its password is that of the environment.
    pub(crate) fn target(&self) -> Target {
        let password = std::env::var("LEASEHOLD_PASSWORD").ok();
        let password = password.filter(|text| !text.is_empty()).map(Secret::from);
        Target::new(&self.store, password, &self.namespace)
    }
}

/// A parser of numbers from 1 to a maximum.
fn up_to<T: TryFrom<u64, Error: Display> + Clone + Send + Sync>(
    max: u64,
) -> RangedU64ValueParser<T> {
    RangedU64ValueParser::new().range(1..=max)
}

/// Parses `500ms`, `2m` or `1h30m`; a plain number is seconds.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => {
            let signed: Option<SignedDuration> = text.parse().ok();
            signed.and_then(|signed| Duration::try_from(signed).ok())
        }
    };
    parsed.ok_or_else(|| format!("{text:?} is not a duration such as 90, 0.5, 500ms, 2m or 1h30m"))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Settings {
        /// Two tasks and a thousand leases for two seconds.
        pub(crate) fn of(scenario: Scenario) -> Self {
            Self {
                tasks: 2,
                names: 1,
                leases: 1_000,
                duration: Duration::from_secs(2),
                ..settings(&format!("redis://host --scenario {scenario}")).unwrap()
            }
        }
    }

    fn settings(line: &str) -> Result<Settings, String> {
        let words = line.split_ascii_whitespace();
        let args = ["leasehold-bench", "--store"].into_iter().chain(words);
        let options = Options::parse_line(args.map(OsString::from));
        options
            .map(|options| options.settings)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn tasks_that_wait_for_a_disk_are_fewer_and_durations_may_have_no_unit() {
        for (line, part) in [
            ("sqlite:/file --scenario independent", "tasks: 64,"),
            ("postgres://h/d --scenario renew", "tasks: 64,"),
            (
                "memory: --scenario contended --section 0.5",
                "section: 500ms,",
            ),
        ] {
            let settings = format!("{:?}", settings(line).unwrap());
            assert!(settings.contains(part), "{line}: {settings}");
        }
    }

    #[test]
    fn every_lease_is_renewed_while_renewals_are_observed() {
        for (options, duration) in [
            ("", Some(20)),
            ("--ttl 3s", Some(2)),
            ("--ttl 3s --seconds 1", Some(1)),
            ("--seconds 10", Some(10)),
            ("--seconds 9", None),
            ("--ttl 1m --seconds 19", None),
        ] {
            let settings = settings(&format!("memory: --scenario renew {options}"));
            let found = settings
                .as_ref()
                .map(|settings| settings.duration.as_secs());
            assert_eq!(found.ok(), duration, "{settings:?}");
            assert!(settings.map_or_else(|error| error.contains("a third of the ttl"), |_| true));
        }
    }

    #[test]
    fn options_without_a_meaning_are_refused() {
        for (line, hint) in [
            ("redis://h --scenario many --waiters 2", "it is for wakeup"),
            ("redis://h --scenario renew --leases 0", "--leases"),
            ("redis://h --scenario wakeup --waiters 501", "at most"),
            ("redis://h --tasks 2", "independent"),
            ("redis://h --scenario contended --section 2s", "at most"),
            (
                "redis://h --scenario contended --section 1x",
                "not a duration",
            ),
            ("redis://h --scenario contended --tasks 0", "--tasks"),
            ("memory: --scenario wakeup", "one process"),
            ("memory: --scenario many --processes 2", "one process"),
            (
                "redis://h --scenario observe --observers 2 --processes 3",
                "--observers",
            ),
        ] {
            let error = settings(line).unwrap_err();
            assert!(error.contains(hint), "{line}: {error}");
        }
    }
}
