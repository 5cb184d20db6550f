//! The rules keep their promises in every simulation, and every mutation is noticed.

use super::*;
use crate::seed;

/// How many seeds run on datagrams without a mutation.
const SEEDS: u64 = 1_000;

/// How many seeds run with each mutation.
const MUTATION_SEEDS: u64 = 100;

/// More clients than elsewhere, since only the drift allowance separates two fixed leases.
const FIXED: Setup = Setup {
    clients: 5,
    leases: Leases::Fixed,
    scenario: Scenario::Random(2_000),
    ..Setup::DATAGRAMS
};

/// Runs some seeds and adds up what happened.
pub(super) fn run_all(seeds: impl Iterator<Item = u64>, setup: &Setup) -> Report {
    let mut total = Report::default();
    for seed in seeds {
        match run(seed, setup, false) {
            Ok(report) => total.add(&report),
            Err(violation) => {
                let traced = run(seed, setup, true);
                panic!("{violation:?}, then {traced:?}; LEASEHOLD_SEED={seed} replays it");
            }
        }
    }
    total
}

/// Asserts that each of these happened more often.
macro_rules! assert_frequent {
    ($total:expr, $times:expr; $($occurrence:ident)*) => {
        check_frequent(&$total, $times, &[$(Occurrence::$occurrence),*])
    };
}

fn check_frequent(total: &Report, times: u64, occurrences: &[Occurrence]) {
    assert!(total.acquisitions > times, "{total:?}");
    for occurrence in occurrences {
        let found = total.times(*occurrence);
        assert!(found > times, "{occurrence:?}: {found}, {total:?}");
    }
}

/// An election whose leaders replace their values all the time.
const fn elections(setup: Setup) -> Setup {
    Setup {
        elects: true,
        leases: Leases::Renewed,
        ..setup
    }
}

const fn scenario(scenario: Scenario) -> Setup {
    Setup {
        scenario,
        ..Setup::CONNECTIONS
    }
}

/// A scenario whose holder a node of the watchdog watches.
const fn watched(scenario: Scenario, watchdog: Watchdog) -> Setup {
    Setup {
        scenario,
        watchdog: Some(watchdog),
        ..Setup::WATCHED
    }
}

#[test]
fn datagrams_violate_no_promise() {
    let total = run_all(0..SEEDS, &Setup::DATAGRAMS);
    assert_frequent!(total, SEEDS; Refused Renewed Lost LostMessage DoubledMessage Disconnected Stopped RepeatedRelease);
    assert_frequent!(total, SEEDS / 2; Killed);
    assert_frequent!(total, SEEDS / 40; Abandoned GrantExpired);
}

#[test]
fn fixed_leases_are_safe_within_the_drift_allowance() {
    run_all(0..SEEDS / 8, &FIXED);
}

#[test]
fn connections_violate_no_promise() {
    let seeds = SEEDS * 2 / 5;
    let total = run_all(0..seeds, &Setup::CONNECTIONS);
    assert_frequent!(total, seeds / 4; PassedOver LateRequest DelayedByStore Accepted RetryTimer NextTimer);
    assert_frequent!(total, seeds / 4; RequestAfterReconnect NoReply GaveUp);
    assert_frequent!(total, seeds / 40; Outdated Orphan Abandoned);
}

#[test]
fn mixed_leases_in_the_queue_violate_no_promise() {
    let mixed = Setup {
        leases: Leases::Mixed,
        ..Setup::CONNECTIONS
    };
    run_all(0..SEEDS / 10, &mixed);
}

/// On datagrams, releases with completions are lost, doubled, and late.
const RUN_DATAGRAMS: Setup = Setup {
    runs: true,
    ..Setup::DATAGRAMS
};

#[test]
fn a_run_is_completed_once_and_every_waiter_is_told() {
    let seeds = SEEDS / 5;
    let mut total = run_all(0..seeds, &Setup::RUNS);
    assert_frequent!(total, seeds; Completed ToldComplete);
    assert_frequent!(total, seeds / 4; NoteWritten);
    total.add(&run_all(0..seeds, &RUN_DATAGRAMS));
    assert_frequent!(total, seeds; CompletedBefore FoundComplete);
}

#[test]
fn values_of_leaders_do_not_go_back_and_reach_all_observers() {
    let seeds = SEEDS / 5;
    let on_datagrams = run_all(0..seeds, &elections(Setup::DATAGRAMS));
    assert_frequent!(on_datagrams, seeds / 4; LateValue Silence);
    let on_connections = run_all(0..seeds, &elections(Setup::CONNECTIONS));
    assert_frequent!(on_connections, seeds / 4; Silence);
}

#[test]
fn a_watchdog_violates_no_promise() {
    let seeds = SEEDS / 5;
    let local = run_all(0..seeds, &Setup::WATCHED);
    assert_frequent!(local, seeds / 10; RenewedByNode NodeRestarted ReleasedByNode);
    assert_frequent!(local, 0; WentOn);
    let remote = watched(Setup::WATCHED.scenario, Watchdog::Remote);
    let remote = run_all(0..seeds, &remote);
    assert_frequent!(remote, seeds / 10; RenewedByNode NodeRestarted);
    assert_eq!(remote.times(Occurrence::ReleasedByNode), 0, "{remote:?}");
}

#[test]
fn fresh_seeds_violate_no_promise() {
    let seed = seed::from_environment();
    for setup in [
        Setup::DATAGRAMS,
        Setup::CONNECTIONS,
        Setup::RUNS,
        RUN_DATAGRAMS,
        elections(Setup::CONNECTIONS),
        Setup::WATCHED,
    ] {
        assert_eq!(run(seed, &setup, false), run(seed, &setup, false));
        run_all((0..50).map(|nth| seed.wrapping_add(nth)), &setup);
    }
}

#[test]
fn each_fault_costs_no_more_than_promised() {
    for fault in [
        Scenario::DeadHeads,
        Scenario::SilentHead,
        Scenario::SilentHeadDeadSecond,
        Scenario::DeadHolder,
        Scenario::LostGrant,
        Scenario::LeavingHead,
        Scenario::RefusedHead,
        Scenario::LateRequest,
        Scenario::LateNotice,
        Scenario::SlowNetwork,
        Scenario::LostNote,
    ] {
        run_all(0..300, &scenario(fault));
    }
}

#[test]
fn a_watchdog_keeps_the_lease_of_a_paused_holder_and_ends_that_of_a_dead_one() {
    for watchdog in [Watchdog::Local, Watchdog::Remote] {
        for scenario in [
            Scenario::PausedHolder,
            Scenario::LongPause,
            Scenario::PausedLoser,
            Scenario::NodeRestart,
            Scenario::NodeRestartInPause,
        ] {
            run_all(0..100, &watched(scenario, watchdog));
        }
    }
    run_all(0..300, &watched(Scenario::WatchedDeath, Watchdog::Local));
}

/// Asserts that enough seeds notice a mutation, and that the first one does by an expected violation.
fn assert_noticed(setup: &Setup, seeds_min: usize, is_expected: fn(&Violation) -> bool) {
    let violations = (0..MUTATION_SEEDS).filter_map(|seed| run(seed, setup, false).err());
    let violations: Vec<_> = violations.collect();
    let noticed = violations.len();
    assert!(noticed >= seeds_min, "{noticed} seeds notice {setup:?}");
    assert!(is_expected(&violations[0]), "{:?}", violations[0]);
}

#[test]
fn clocks_beyond_the_drift_allowance_are_noticed() {
    let slow = Setup {
        drift_ppm: (-50_000, -30_000),
        ..FIXED
    };
    assert_noticed(&slow, 5, |violation| {
        *violation == Violation::Holders(checker::Violation::TwoHolders)
    });
}

/// Tests of mutations: the setup of each, how many seeds notice it at least (about half of those that do), and the expected
/// violation.
macro_rules! mutations {
    ($($name:ident { $($mutation:ident, $setup:expr, $seeds_min:literal => $violation:pat,)+ })+) => {
        $(
            #[test]
            fn $name() {
                $(
                    let mutation = Some(Mutation::$mutation);
                    let setup = Setup { mutation, ..$setup };
                    assert_noticed(&setup, $seeds_min, |violation| matches!(violation, $violation));
                )+
            }
        )+

        /// Does not compile if a mutation has no test.
        const fn _is_tested(mutation: Mutation) {
            match mutation {
                $($(Mutation::$mutation => {})+)+
            }
        }
    };
}

mutations! {
    mutations_of_leases_are_noticed {
        RevivedLease, Setup::DATAGRAMS, 1 => Violation::Holders(checker::Violation::Revived),
        ReusedLeaseId, Setup::DATAGRAMS, 40 => Violation::Holders(_),
        AcceptsFullTtl, Setup::CONNECTIONS, 45 => Violation::Holders(checker::Violation::TwoHolders),
        RenewsForLonger, watched(Scenario::PausedHolder, Watchdog::Local), 50 => Violation::Leftover,
        TakesOldGrantForNew, scenario(Scenario::LateNotice), 50 => Violation::LostEarly,
        AcceptsLate, scenario(Scenario::SlowNetwork), 50 => Violation::LostEarly,
    }
    mutations_of_the_queue_are_noticed {
        IgnoresNext, scenario(Scenario::SilentHead), 30 => Violation::NotServed,
        NoRetryTimer, scenario(Scenario::DeadHolder), 50 => Violation::NotServed,
        NoRequestAfterReconnect, scenario(Scenario::LostGrant), 45 => Violation::NotServed,
        NoRelease, scenario(Scenario::LeavingHead), 15 => Violation::NotServed,
        KeepsOrphans, scenario(Scenario::LateRequest), 50 => Violation::NotServed,
        NotifiesDeadHeads, scenario(Scenario::DeadHeads), 50 => Violation::NotServed,
        NotifiesDeadNext, scenario(Scenario::SilentHeadDeadSecond), 40 => Violation::NotServed,
    }
    mutations_of_runs_are_noticed {
        ReleasesFirst, Setup::RUNS, 50 => Violation::Forgotten,
        DecidesOnce, Setup::RUNS, 50 => Violation::Repeated,
        TakesSilenceForRejection, scenario(Scenario::LostNote), 50 => Violation::Forgotten,
    }
    mutations_of_daily_jobs_are_noticed {
        SlotByFloor, Setup::daily(Timetable::MIDNIGHT), 40 => Violation::Repeated | Violation::NotRun,
        TrialByNearestSlot, Setup::daily(Timetable::NIGHTLY), 45 => Violation::Repeated | Violation::NotRun,
        SkipsIfHeld, Setup::daily(Timetable::MIDNIGHT), 50 => Violation::NotRun,
    }
    mutations_of_values_are_noticed {
        WritesWithoutNumber, elections(Setup::DATAGRAMS), 15 => Violation::ValueWentBack,
        SharesOldReadings, elections(Setup::CONNECTIONS), 30 => Violation::OldReading,
        IgnoresPushes, elections(Setup::CONNECTIONS), 45 => Violation::NotObserved,
        NoRepeatedRead, elections(Setup::DATAGRAMS), 50 => Violation::NotObserved,
        NoReadAtEnd, elections(Setup::CONNECTIONS), 45 => Violation::NotObserved,
    }
    mutations_of_watched_holders_are_noticed {
        TakesPausesForLosses, watched(Scenario::PausedHolder, Watchdog::Local), 30 => Violation::NotServed,
        IgnoresLosses, watched(Scenario::LongPause, Watchdog::Local), 30 => Violation::NotNotified,
        KeepsRegistrations, watched(Scenario::PausedLoser, Watchdog::Local), 30 => Violation::NotServed,
        NoHeartbeats, watched(Scenario::PausedHolder, Watchdog::Remote), 30 => Violation::NotServed,
        NoRegistrationAfterReconnect, watched(Scenario::NodeRestart, Watchdog::Local), 30 => Violation::NotServed,
    }
    mutations_of_nodes_are_noticed {
        IgnoresDeath, watched(Scenario::WatchedDeath, Watchdog::Local), 30
            => Violation::NotServed | Violation::UnknownRenewed,
        DiesWithConnection, Setup::WATCHED, 20 => Violation::LivingReleased,
        RenewsForEver, watched(Scenario::LongPause, Watchdog::Remote), 30 => Violation::NotServed,
        NodeKeepsLeases, watched(Scenario::NodeRestartInPause, Watchdog::Local), 30 => Violation::UnknownRenewed,
    }
}
