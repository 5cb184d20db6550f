//! Which options belong to which scenario, and what they are if not given.

use std::time::Duration;

use leasehold::watchdog::Watchdog;

use super::alone::Alone;
use super::crowd::Crowd;
use super::drawing::name_of;
use super::renew::Renew;
use super::wakeup::Wakeup;
use super::{BenchArgs, Place, Scenario};
use crate::exit::Failure;

/// The tasks of `independent` and `renew` where a call costs little.
const INDEPENDENT: u16 = 256;

/// The tasks where several want the same, and where each waits for a disk.
const TASKS: u16 = 64;

/// The names of `many`.
const NAMES: u32 = 1_000;

/// The locks of `renew`, and their ttl.
const LEASES: u32 = 100_000;
const TTL: Duration = Duration::from_secs(30);

/// How long to measure.
const SECONDS: u16 = 5;

/// A lease is renewed once in such a part of its ttl.
const RENEWALS_PER_TTL: u32 = 3;

/// The longest critical section: every task shall have the lock at least once in a while.
const SECTION_MAX: Duration = Duration::from_secs(1);

/// What is to be done.
#[derive(Debug)]
pub(super) enum Plan {
    Alone(Alone),
    Crowd(Crowd),
    Wakeup(Wakeup),
    Renew(Renew),
}

/// Reads the options as their scenario means them.
pub(super) fn plan(args: &BenchArgs, place: &Place) -> Result<Plan, Failure> {
    refuse_foreign(args)?;
    let scenario = args.scenario;
    let span = Duration::from_secs(args.seconds.unwrap_or(SECONDS).into());
    let threads = args.threads.unwrap_or(1);
    let processes = args.processes.unwrap_or(1);
    if place.is_private() && (processes > 1 || scenario == Scenario::Wakeup) {
        return Err(Failure::usage(
            "memory: is inside one process, where no other can come; \
             choose a store that processes share",
        ));
    }
    Ok(match scenario {
        Scenario::Uncontended | Scenario::Independent | Scenario::Watched => Plan::Alone(Alone {
            scenario,
            tasks: tasks(args, place)?,
            threads,
            span,
            watchdog: watchdog(args)?,
        }),
        Scenario::Contended | Scenario::Many => Plan::Crowd(Crowd {
            scenario,
            names: match scenario {
                Scenario::Many => args.names.unwrap_or(NAMES),
                _ => 1,
            },
            processes,
            tasks: tasks(args, place)?,
            threads,
            section: section(args)?,
            span,
        }),
        Scenario::Wakeup => Plan::Wakeup(Wakeup {
            waiters: args.waiters.unwrap_or(1),
            span,
        }),
        Scenario::Renew => Plan::Renew(renew(args, place)?),
    })
}

fn renew(args: &BenchArgs, place: &Place) -> Result<Renew, Failure> {
    let ttl = args.ttl.unwrap_or(TTL);
    let every = ttl / RENEWALS_PER_TTL;
    let span = match args.seconds {
        Some(seconds) => Duration::from_secs(seconds.into()),
        None => 2 * every,
    };
    if span < every {
        return Err(Failure::usage(format!(
            "--seconds must be a third of the ttl at least, here {}: every lease is renewed once in \
             that time",
            every.as_secs_f64().ceil()
        )));
    }
    Ok(Renew {
        leases: args.leases.unwrap_or(LEASES),
        ttl,
        tasks: tasks(args, place)?,
        threads: args.threads.unwrap_or(1),
        span,
    })
}

/// An option that would change nothing is a mistake.
fn refuse_foreign(args: &BenchArgs) -> Result<(), Failure> {
    use Scenario::{Contended, Independent, Many, Renew, Uncontended, Watched};
    let with_tasks = [Uncontended, Independent, Contended, Many, Renew, Watched];
    let given: [(&str, bool, &[Scenario]); 9] = [
        ("--tasks", args.tasks.is_some(), &with_tasks),
        ("--threads", args.threads.is_some(), &with_tasks),
        ("--processes", args.processes.is_some(), &[Contended, Many]),
        ("--section", args.section.is_some(), &[Contended]),
        ("--names", args.names.is_some(), &[Many]),
        ("--waiters", args.waiters.is_some(), &[Scenario::Wakeup]),
        ("--leases", args.leases.is_some(), &[Renew]),
        ("--ttl", args.ttl.is_some(), &[Renew]),
        ("--watchdog", args.watchdog.is_some(), &[Watched]),
    ];
    for (option, given, scenarios) in given {
        if given && !scenarios.contains(&args.scenario) {
            let names: Vec<_> = scenarios.iter().map(name_of).collect();
            return Err(Failure::usage(format!(
                "{option} has no meaning for --scenario {}; it is for {}",
                name_of(&args.scenario),
                names.join(", ")
            )));
        }
    }
    Ok(())
}

fn tasks(args: &BenchArgs, place: &Place) -> Result<u16, Failure> {
    match (args.scenario, args.tasks) {
        (Scenario::Uncontended, None | Some(1)) => Ok(1),
        (Scenario::Uncontended, Some(_)) => Err(Failure::usage(
            "uncontended is one task; measure many with --scenario independent",
        )),
        (_, Some(tasks)) => Ok(tasks),
        (Scenario::Watched, None) => Ok(1),
        (Scenario::Independent | Scenario::Renew, None) if !place.is_on_disk() => Ok(INDEPENDENT),
        (_, None) => Ok(TASKS),
    }
}

/// Who looks after the locks, where that is measured.
fn watchdog(args: &BenchArgs) -> Result<Option<Watchdog>, Failure> {
    match (args.scenario, &args.watchdog) {
        (Scenario::Watched, None) => Ok(Some(Watchdog::local())),
        (Scenario::Watched, Some(address)) => Ok(Some(Watchdog::at(address)?)),
        _ => Ok(None),
    }
}

fn section(args: &BenchArgs) -> Result<Duration, Failure> {
    let section = args.section.unwrap_or_default();
    if section > SECTION_MAX {
        return Err(Failure::usage("--section can be 1 s at most"));
    }
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(scenario: Scenario) -> BenchArgs {
        BenchArgs {
            scenario,
            tasks: None,
            processes: None,
            section: None,
            names: None,
            waiters: None,
            leases: None,
            ttl: None,
            seconds: None,
            threads: None,
            watchdog: None,
            json: false,
        }
    }

    fn plan_at(url: &str, args: &BenchArgs) -> Result<Plan, String> {
        let place = Place::new(url.into(), None, "leasehold".into(), "default".into());
        plan(args, &place).map_err(|failure| failure.to_string())
    }

    #[test]
    fn tasks_are_as_many_as_suit_the_scenario() {
        for (scenario, url, tasks) in [
            (Scenario::Uncontended, "redis://host", 1),
            (Scenario::Independent, "redis://host", 256),
            (Scenario::Independent, "sqlite:/file", 64),
            (Scenario::Contended, "redis://host", 64),
            (Scenario::Many, "sqlite:/file", 64),
            (Scenario::Renew, "redis://host", 256),
            (Scenario::Renew, "sqlite:/file", 64),
        ] {
            let planned = match plan_at(url, &args(scenario)).unwrap() {
                Plan::Alone(alone) => alone.tasks,
                Plan::Crowd(crowd) => crowd.tasks,
                Plan::Renew(renew) => renew.tasks,
                Plan::Wakeup(_) => 0,
            };
            assert_eq!(planned, tasks, "{scenario:?} {url}");
        }
        let two = BenchArgs {
            tasks: Some(2),
            ..args(Scenario::Uncontended)
        };
        assert!(plan_at("redis://host", &two).is_err());
    }

    #[test]
    fn only_many_has_many_names() {
        for (scenario, names) in [(Scenario::Contended, 1), (Scenario::Many, 1_000)] {
            let Ok(Plan::Crowd(crowd)) = plan_at("redis://host", &args(scenario)) else {
                panic!("{scenario:?} is no crowd");
            };
            assert_eq!(crowd.names, names);
        }
    }

    #[test]
    fn what_is_private_is_not_for_several_processes() {
        let two = BenchArgs {
            processes: Some(2),
            ..args(Scenario::Contended)
        };
        for args in [two, args(Scenario::Wakeup)] {
            let error = plan_at("memory:", &args).unwrap_err();
            assert!(error.contains("memory:"), "{error}");
            assert!(plan_at("redis://host", &args).is_ok());
        }
        assert!(plan_at("memory:", &args(Scenario::Contended)).is_ok());
    }

    #[test]
    fn every_lease_is_renewed_while_renewals_are_watched() {
        for (ttl, seconds, millis) in [
            (None, None, Some(20_000)),
            (Some(3), None, Some(2_000)),
            (Some(3), Some(1), Some(1_000)),
            (None, Some(10), Some(10_000)),
            (None, Some(9), None),
            (Some(60), Some(19), None),
        ] {
            let renew = BenchArgs {
                ttl: ttl.map(Duration::from_secs),
                seconds,
                ..args(Scenario::Renew)
            };
            let span = match plan_at("memory:", &renew) {
                Ok(Plan::Renew(renew)) => Some(renew.span.as_millis()),
                Ok(plan) => panic!("{plan:?}"),
                Err(error) => {
                    assert!(error.contains("--seconds"), "{error}");
                    None
                }
            };
            assert_eq!(span, millis, "{ttl:?} {seconds:?}");
        }
    }
}
