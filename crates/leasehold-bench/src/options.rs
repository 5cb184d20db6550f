//! The command line, and which options belong to which scenario.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use jiff::SignedDuration;
use leasehold::Secret;
use leasehold::watchdog::Watchdog;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::target::Target;

/// The default tasks of `independent` and `renew` where a call costs little.
const INDEPENDENT_TASKS: u16 = 256;

/// The default tasks where they compete, or wait for a disk.
const TASKS: u16 = 64;

/// The default number of locks of `many`.
const NAMES: u32 = 1_000;

/// The default number of locks of `renew`, and their ttl.
const LEASES: u32 = 100_000;
const TTL: Duration = Duration::from_secs(30);

/// The default duration.
const DURATION: Duration = Duration::from_secs(5);

/// A lease is renewed once in such a part of its ttl.
const RENEWALS_PER_TTL: u32 = 3;

/// The longest critical section: every task shall have the lock at least once in a while.
const SECTION_MAX: Duration = Duration::from_secs(1);

/// Measure what a lock costs at a store.
///
/// Acquires only locks under its own names. Uncontended scenarios alternate with bare calls that do the
/// same to the store without leasehold: in the same process and in short slices, so that other load on
/// the machine affects both. Contended scenarios also check mutual exclusion, and renew checks that no
/// lease is lost.
#[derive(Debug, Parser)]
#[command(name = "leasehold-bench", version, max_term_width = 100, after_long_help = EXAMPLES)]
pub(crate) struct Options {
    /// The store: sqlite:PATH, redis://HOST, redis+cluster://HOST,HOST, redlock://HOST,HOST,HOST, memory:
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
    /// What to measure
    #[arg(long, value_enum, default_value_t = Scenario::Uncontended)]
    scenario: Scenario,
    /// Tasks in each process; 64 if not given, for independent and renew 256 (64 with SQLite)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    tasks: Option<u16>,
    /// contended, many: number of processes; 1 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    processes: Option<u16>,
    /// contended: duration of the critical section; empty if not given
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    section: Option<Duration>,
    /// many: number of locks; 1000 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    names: Option<u32>,
    /// wakeup: number of waiters while the server's work is measured; 1 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=500))]
    waiters: Option<u16>,
    /// renew: number of locks held at once; 100000 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    leases: Option<u32>,
    /// renew: ttl of these locks; 30s if not given
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    ttl: Option<Duration>,
    /// watched: address of the watchdog, unix:PATH or tcp://HOST:PORT; the one on this machine if not given
    #[arg(long, value_name = "ADDRESS")]
    watchdog: Option<String>,
    /// Seconds to measure; 5 if not given
    ///
    /// wakeup takes six seconds more. renew observes renewals for that long, two thirds of the ttl if
    /// not given, so that every lease is renewed twice; the whole run takes two and a half times that,
    /// and the time to take and release the locks.
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u16).range(1..=3_600))]
    seconds: Option<u16>,
    /// Threads that run the tasks of a process; 1 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// One JSON object instead of text
    #[arg(long)]
    pub(crate) json: bool,
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
    /// A lock passes to and fro between processes: the time from a release to the next acquisition,
    /// and what waiting costs the server
    Wakeup,
    /// Many tasks and many locks, some wanted more often than others
    Many,
    /// One process holds very many locks: the cost of renewing their leases, and what becomes slower
    /// meanwhile
    Renew,
    /// Tasks with a lock each, kept alive by a watchdog and not, in turn: the cost of the watchdog
    Watched,
}

const EXAMPLES: &str = "\
EXAMPLES
  leasehold-bench --store redis://db --scenario contended --tasks 16 --processes 4
  leasehold-bench --store redis://db --scenario contended --section 1ms --seconds 10 --json
  leasehold-bench --store redis://db --scenario wakeup --waiters 100
  leasehold-bench --store redis://db --scenario many --names 10000
  leasehold-bench --store redis://db --scenario renew --leases 1000000
  leasehold watchdog & leasehold-bench --store redis://db --scenario watched";

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// The settings of a run, with the defaults of its scenario.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) scenario: Scenario,
    /// In each process.
    pub(crate) tasks: u16,
    pub(crate) threads: u16,
    pub(crate) processes: u16,
    pub(crate) names: u32,
    pub(crate) section: Duration,
    pub(crate) waiters: u16,
    pub(crate) leases: u32,
    pub(crate) ttl: Duration,
    /// If there is one, locks with it are compared with locks without.
    #[serde(skip)]
    pub(crate) watchdog: Option<Watchdog>,
    /// The time that counts.
    pub(crate) duration: Duration,
}

impl Options {
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

    /// The settings, with what is not given.
    pub(crate) fn settings(&self, target: &Target) -> Result<Settings> {
        self.refuse_foreign()?;
        let scenario = self.scenario;
        let processes = self.processes.unwrap_or(1);
        if target.is_private() && (processes > 1 || scenario == Scenario::Wakeup) {
            return Err("memory: is inside one process, which no other can reach; \
                        choose a store that processes share"
                .into());
        }
        let section = self.section.unwrap_or_default();
        if section > SECTION_MAX {
            return Err("--section can be 1 s at most".into());
        }
        Ok(Settings {
            scenario,
            tasks: self.tasks(target)?,
            threads: self.threads.unwrap_or(1),
            processes,
            names: match scenario {
                Scenario::Many => self.names.unwrap_or(NAMES),
                _ => 1,
            },
            section,
            waiters: self.waiters.unwrap_or(1),
            leases: self.leases.unwrap_or(LEASES),
            ttl: self.ttl.unwrap_or(TTL),
            watchdog: match (scenario, &self.watchdog) {
                (Scenario::Watched, None) => Some(Watchdog::local()),
                (_, Some(address)) => Some(Watchdog::at(address)?),
                _ => None,
            },
            duration: self.duration()?,
        })
    }

    /// An option that would change nothing is a mistake.
    fn refuse_foreign(&self) -> Result<()> {
        use Scenario::{Contended, Independent, Many, Renew, Uncontended, Wakeup, Watched};
        let with_tasks = [Uncontended, Independent, Contended, Many, Renew, Watched];
        let given: [(&str, bool, &[Scenario]); 9] = [
            ("--tasks", self.tasks.is_some(), &with_tasks),
            ("--threads", self.threads.is_some(), &with_tasks),
            ("--processes", self.processes.is_some(), &[Contended, Many]),
            ("--section", self.section.is_some(), &[Contended]),
            ("--names", self.names.is_some(), &[Many]),
            ("--waiters", self.waiters.is_some(), &[Wakeup]),
            ("--leases", self.leases.is_some(), &[Renew]),
            ("--ttl", self.ttl.is_some(), &[Renew]),
            ("--watchdog", self.watchdog.is_some(), &[Watched]),
        ];
        for (option, given, scenarios) in given {
            if given && !scenarios.contains(&self.scenario) {
                let names: Vec<_> = scenarios.iter().map(Scenario::to_string).collect();
                let (scenario, names) = (self.scenario, names.join(", "));
                let message = format!("{option} has no meaning for {scenario}; it is for {names}");
                return Err(message.into());
            }
        }
        Ok(())
    }

    fn tasks(&self, target: &Target) -> Result<u16> {
        Ok(match (self.scenario, self.tasks) {
            (Scenario::Uncontended, Some(2..)) => {
                return Err(
                    "uncontended is one task; measure many with --scenario independent".into(),
                );
            }
            (_, Some(tasks)) => tasks,
            (Scenario::Uncontended | Scenario::Watched, None) => 1,
            (Scenario::Independent | Scenario::Renew, None) if !target.is_on_disk() => {
                INDEPENDENT_TASKS
            }
            (_, None) => TASKS,
        })
    }

    fn duration(&self) -> Result<Duration> {
        let given = self
            .seconds
            .map(|seconds| Duration::from_secs(seconds.into()));
        if self.scenario != Scenario::Renew {
            return Ok(given.unwrap_or(DURATION));
        }
        let every = self.ttl.unwrap_or(TTL) / RENEWALS_PER_TTL;
        match given.unwrap_or(2 * every) {
            duration if duration < every => Err(format!(
                "--seconds must be a third of the ttl at least, here {}: every lease is renewed \
                 once in that time",
                every.as_secs_f64().ceil()
            )
            .into()),
            duration => Ok(duration),
        }
    }
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
        /// Two tasks on one thread of a process, for two seconds.
        pub(crate) fn of(scenario: Scenario) -> Self {
            Self {
                scenario,
                tasks: 2,
                threads: 1,
                processes: 1,
                names: 1,
                section: Duration::ZERO,
                waiters: 1,
                leases: 1_000,
                ttl: TTL,
                watchdog: None,
                duration: Duration::from_secs(2),
            }
        }
    }

    /// The settings of a command line, as text.
    fn settings(line: &str) -> Result<String, String> {
        let words = line.split_ascii_whitespace();
        let args = ["leasehold-bench", "--store"].into_iter().chain(words);
        let options = Options::try_parse_from(args).map_err(|error| error.to_string())?;
        let target = options.target().map_err(|failure| failure.to_string())?;
        let settings = options
            .settings(&target)
            .map_err(|failure| failure.to_string())?;
        Ok(format!("{settings:?}"))
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
        ] {
            let settings = settings(line).unwrap();
            assert!(settings.contains(part), "{line}: {settings}");
        }
    }

    #[test]
    fn every_lease_is_renewed_while_renewals_are_observed() {
        for (options, duration) in [
            ("", Some("20s")),
            ("--ttl 3s", Some("2s")),
            ("--ttl 3s --seconds 1", Some("1s")),
            ("--seconds 10", Some("10s")),
            ("--seconds 9", None),
            ("--ttl 1m --seconds 19", None),
        ] {
            match (
                settings(&format!("memory: --scenario renew {options}")),
                duration,
            ) {
                (Ok(settings), Some(duration)) => {
                    let expected = format!("duration: {duration}");
                    assert!(settings.contains(&expected), "{settings}");
                }
                (Err(error), None) => assert!(error.contains("a third of the ttl"), "{error}"),
                other => panic!("{options}: {other:?}"),
            }
        }
    }

    #[test]
    fn options_without_a_meaning_are_refused() {
        for (line, hint) in [
            ("redis://h --processes 2", "contended, many"),
            (
                "redis://h --scenario independent --section 1ms",
                "contended",
            ),
            ("redis://h --scenario contended --names 5", "many"),
            ("redis://h --scenario many --section 1ms", "contended"),
            ("redis://h --scenario contended --waiters 5", "wakeup"),
            ("redis://h --scenario many --leases 5", "renew"),
            ("redis://h --ttl 5s", "renew"),
            ("redis://h --watchdog unix:/path", "watched"),
            (
                "redis://h --scenario renew --processes 2",
                "contended, many",
            ),
            ("redis://h --scenario renew --leases 0", "--leases"),
            ("redis://h --scenario wakeup --tasks 5", "--tasks"),
            ("redis://h --scenario wakeup --threads 2", "--threads"),
            ("redis://h --tasks 2", "independent"),
            ("redis://h --scenario contended --section 2s", "at most"),
            (
                "redis://h --scenario contended --section 1x",
                "not a duration",
            ),
            ("redis://h --scenario contended --tasks 0", "--tasks"),
            ("memory: --scenario wakeup", "one process"),
            ("memory: --scenario many --processes 2", "one process"),
        ] {
            let error = settings(line).unwrap_err();
            assert!(error.contains(hint), "{line}: {error}");
        }
    }
}
