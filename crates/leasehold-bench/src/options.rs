//! The command line, and which options belong to which scenario.

use std::ffi::OsString;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, ValueEnum};
use jiff::SignedDuration;
use leasehold::Secret;
use leasehold::watchdog::Watchdog;
use serde::{Deserialize, Serialize};

use self::Scenario::{Contended, Independent, Many, Observe, Renew, Uncontended, Wakeup, Watched};
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

const WITH_TASKS: &[Scenario] = &[Uncontended, Independent, Contended, Many, Renew, Watched];

/// The options that only some scenarios have.
const SCENARIOS_OF: [(&str, &[Scenario]); 12] = [
    ("tasks", WITH_TASKS),
    ("threads", WITH_TASKS),
    ("processes", &[Contended, Many, Observe]),
    ("section", &[Contended]),
    ("names", &[Many]),
    ("waiters", &[Wakeup]),
    ("observers", &[Observe]),
    ("election", &[Wakeup, Observe]),
    ("leases", &[Renew]),
    ("ttl", &[Renew]),
    ("watchdog", &[Watched]),
    ("advisory", &[Uncontended, Independent, Contended]),
];

/// Measure what a lock costs at a store.
///
/// Acquires only locks under its own names. Uncontended scenarios alternate with baseline calls that do the
/// same to the store without leasehold: in the same process and in short slices, so that other load on
/// the machine affects both. Contended scenarios also check mutual exclusion, and renew checks that no
/// lease is lost.
#[derive(Debug, Parser)]
#[command(name = "leasehold-bench", version, max_term_width = 100, after_long_help = EXAMPLES)]
pub(crate) struct Options {
    /// The store: sqlite:PATH, redis://HOST, postgres://USER@HOST/DATABASE, etcd://HOST, ..., memory:
    #[arg(
        long,
        value_name = "URL",
        env = "LEASEHOLD_STORE",
        hide_env_values = true
    )]
    store: String,
    /// A file whose first line is the store's password; LEASEHOLD_PASSWORD without it
    #[arg(long, value_name = "FILE", env = "LEASEHOLD_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
    /// The namespace of the locks
    #[arg(
        long,
        value_name = "TEXT",
        env = "LEASEHOLD_NAMESPACE",
        default_value = "leasehold"
    )]
    namespace: String,
    /// The tenant inside the namespace
    #[arg(
        long,
        value_name = "TEXT",
        env = "LEASEHOLD_TENANT",
        default_value = "default"
    )]
    tenant: String,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Seconds to measure; 5 if not given
    ///
    /// wakeup takes six seconds more. renew observes renewals for that long, two thirds of the ttl if
    /// not given, so that every lease is renewed twice; the whole run takes two and a half times that,
    /// and the time to take and release the locks.
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
    /// Tasks in each process; 64 if not given, 256 for independent and renew without SQLite, 1 for uncontended and
    /// watched
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
    /// many: number of locks; 1000 if not given
    #[arg(long, value_name = "N", value_parser = up_to::<u32>(1_000_000))]
    #[arg(default_value = "1", hide_default_value = true)]
    #[arg(default_value_if("scenario", "many", "1000"))]
    pub(crate) names: u32,
    /// wakeup: number of waiters while the server's work is measured
    #[arg(long, value_name = "N", value_parser = up_to::<u16>(500), default_value_t = 1)]
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
    /// watched: address of the watchdog, unix:PATH or tcp://HOST:PORT; the one on this machine if not given
    #[arg(long, value_name = "ADDRESS", value_parser = |address: &str| Watchdog::at(address))]
    #[serde(skip)]
    pub(crate) watchdog: Option<Watchdog>,
    /// postgres:// advisory locks as the baseline, by one connection for each task; contended measures them instead of
    /// leasehold
    #[arg(long, value_enum)]
    pub(crate) advisory: Option<Advisory>,
    /// Threads that run the tasks of a process
    #[arg(long, value_name = "N", value_parser = up_to::<u16>(256), default_value_t = 1)]
    pub(crate) threads: u16,
    /// The time that counts.
    #[arg(skip)]
    pub(crate) duration: Duration,
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
    /// Tasks with a lock each, kept alive by a watchdog and not, in turn: the cost of the watchdog
    Watched,
}

const EXAMPLES: &str = "\
EXAMPLES
  leasehold-bench --store redis://db --scenario contended --tasks 16 --processes 4
  leasehold-bench --store redis://db --scenario contended --section 1ms --seconds 10 --json
  leasehold-bench --store redis://db --scenario wakeup --waiters 100
  leasehold-bench --store redis://db --scenario observe --election --processes 5
  leasehold-bench --store redis://db --scenario many --names 10000
  leasehold-bench --store redis://db --scenario renew --leases 1000000
  leasehold-bench --store redis://db --scenario primitives
  leasehold-bench --store postgres://app@db/shop --scenario contended --advisory poll
  leasehold watchdog & leasehold-bench --store redis://db --scenario watched";

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
        if settings.advisory.is_some() && !self.store.starts_with("postgres") {
            return Err("--advisory is for postgres://".into());
        }
        if scenario == Observe && settings.observers < settings.processes {
            return Err("--observers must be at least as many as --processes".into());
        }
        if settings.section > SECTION_MAX {
            return Err("--section can be 1 s at most".into());
        }
        if self.store.starts_with("sqlite:") && !given("tasks") {
            settings.tasks = settings.tasks.min(TASKS_ON_DISK);
        }
        if scenario == Watched {
            settings.watchdog.get_or_insert_with(Watchdog::local);
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

    /// The store, and names in it that nobody else uses.
    pub(crate) fn target(&self) -> Result<Target> {
        let password = match &self.password_file {
            Some(file) => {
                let failed = |why: String| format!("the password file {}: {why}", file.display());
                let text = std::fs::read_to_string(file);
                let text = text.map_err(|error| failed(error.to_string()))?;
                let line = text.lines().next().filter(|line| !line.is_empty());
                Some(line.ok_or_else(|| failed("it is empty".into()))?.into())
            }
            None => {
                let password = std::env::var("LEASEHOLD_PASSWORD").ok();
                password.filter(|text| !text.is_empty()).map(Secret::from)
            }
        };
        Ok(Target::new(
            &self.store,
            password,
            &self.namespace,
            &self.tenant,
        ))
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
    fn defaults_suit_the_scenario_and_the_store() {
        for (line, part) in [
            ("redis://host", "tasks: 1,"),
            ("redis://host --scenario watched", "tasks: 1,"),
            ("redis://host --scenario independent", "tasks: 256,"),
            ("sqlite:/file --scenario independent", "tasks: 64,"),
            ("redis://host --scenario contended", "tasks: 64,"),
            ("redis://host --scenario contended", "names: 1,"),
            ("sqlite:/file --scenario many", "names: 1000,"),
            ("redis://host --scenario renew", "tasks: 256,"),
            ("sqlite:/file --scenario renew", "tasks: 64,"),
            (
                "memory: --scenario contended --section 0.5",
                "section: 500ms,",
            ),
            ("redis://host --scenario wakeup", "waiters: 1,"),
            ("redis://host --scenario wakeup", "duration: 5s"),
            ("memory: --scenario observe", "observers: 100,"),
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
        for (option, scenarios) in SCENARIOS_OF {
            let value = match option {
                "election" => "",
                "section" | "ttl" => "1s",
                "watchdog" => "unix:/path",
                "advisory" => "poll",
                _ => "5",
            };
            for scenario in Scenario::value_variants() {
                let line = format!("redis://h --scenario {scenario} --{option} {value}");
                let error = settings(&line).err().unwrap_or_default();
                let refused = error.contains("has no meaning for");
                assert_eq!(refused, !scenarios.contains(scenario), "{line}: {error}");
            }
        }
        for (line, hint) in [
            ("redis://h --scenario renew --leases 0", "--leases"),
            ("redis://h --tasks 2", "independent"),
            ("redis://h --scenario contended --section 2s", "at most"),
            (
                "redis://h --scenario contended --section 1x",
                "not a duration",
            ),
            ("redis://h --scenario contended --tasks 0", "--tasks"),
            ("memory: --scenario wakeup", "one process"),
            ("memory: --scenario contended --advisory wait", "postgres"),
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
