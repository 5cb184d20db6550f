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
fn run_all(seeds: impl Iterator<Item = u64>, setup: &Setup) -> Report {
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
fn assert_frequent(total: &Report, times: u64, occurrences: &[Occurrence]) {
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
    let often = [
        Occurrence::Refused,
        Occurrence::Renewed,
        Occurrence::Lost,
        Occurrence::LostMessage,
        Occurrence::DoubledMessage,
        Occurrence::Disconnected,
        Occurrence::Stopped,
        Occurrence::RepeatedRelease,
    ];
    assert_frequent(&total, SEEDS, &often);
    assert_frequent(&total, SEEDS / 2, &[Occurrence::Killed]);
    let seldom = [Occurrence::Abandoned, Occurrence::GrantExpired];
    assert_frequent(&total, SEEDS / 40, &seldom);
}

#[test]
fn fixed_leases_are_safe_within_the_drift_allowance() {
    run_all(0..SEEDS / 8, &FIXED);
}

#[test]
fn connections_violate_no_promise() {
    let seeds = SEEDS * 2 / 5;
    let total = run_all(0..seeds, &Setup::CONNECTIONS);
    let often = [
        Occurrence::PassedOver,
        Occurrence::LateRequest,
        Occurrence::DelayedByStore,
        Occurrence::Accepted,
        Occurrence::RetryTimer,
        Occurrence::NextTimer,
        Occurrence::RequestAfterReconnect,
        Occurrence::NoReply,
        Occurrence::GaveUp,
    ];
    assert_frequent(&total, seeds / 4, &often);
    let seldom = [
        Occurrence::Outdated,
        Occurrence::Orphan,
        Occurrence::Abandoned,
    ];
    assert_frequent(&total, seeds / 40, &seldom);
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
    let often = [Occurrence::Completed, Occurrence::ToldComplete];
    assert_frequent(&total, seeds, &often);
    total.add(&run_all(0..seeds, &RUN_DATAGRAMS));
    let seldom = [Occurrence::CompletedBefore, Occurrence::FoundComplete];
    assert_frequent(&total, seeds, &seldom);
}

#[test]
fn values_of_leaders_do_not_go_back_and_reach_all_observers() {
    let seeds = SEEDS / 5;
    let often = [Occurrence::LateValue, Occurrence::Silence];
    for (setup, often) in [
        (Setup::DATAGRAMS, &often[..]),
        (Setup::CONNECTIONS, &often[1..]),
    ] {
        assert_frequent(&run_all(0..seeds, &elections(setup)), seeds / 4, often);
    }
}

#[test]
fn a_watchdog_violates_no_promise() {
    let seeds = SEEDS / 5;
    let often = [Occurrence::RenewedByNode, Occurrence::NodeRestarted];
    let local = run_all(0..seeds, &Setup::WATCHED);
    assert_frequent(&local, seeds / 10, &often);
    assert_frequent(&local, seeds / 10, &[Occurrence::ReleasedByNode]);
    assert_frequent(&local, 0, &[Occurrence::WentOn]);
    let remote = watched(Setup::WATCHED.scenario, Watchdog::Remote);
    let remote = run_all(0..seeds, &remote);
    assert_frequent(&remote, seeds / 10, &often);
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
        Scenario::LateRequest,
        Scenario::SlowNetwork,
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

/// A test for each mutation: its setup, how many seeds notice it at least (about half of those that do), and the
/// expected violation.
macro_rules! mutations {
    ($($name:ident: $mutation:ident, $setup:expr, $seeds_min:literal => $violation:pat,)*) => {
        $(
            #[test]
            fn $name() {
                let mutation = Some(Mutation::$mutation);
                let setup = Setup { mutation, ..$setup };
                assert_noticed(&setup, $seeds_min, |violation| matches!(violation, $violation));
            }
        )*

        /// Does not compile if a mutation has no test.
        const fn _is_tested(mutation: Mutation) {
            match mutation {
                $(Mutation::$mutation => {})*
            }
        }
    };
}

mutations! {
    a_deadline_from_the_reply_is_noticed:
        DeadlineFromReply, FIXED, 7 => Violation::Holders(_),
    a_deadline_from_the_notice_is_noticed:
        DeadlineFromNotice, Setup::CONNECTIONS, 30 => Violation::Holders(_),
    a_lease_without_a_deadline_is_noticed:
        NoDeadline, Setup::DATAGRAMS, 50 => Violation::Holders(checker::Violation::TwoHolders),
    a_revived_lease_is_noticed:
        RevivedLease, Setup::DATAGRAMS, 1 => Violation::Holders(checker::Violation::Revived),
    a_reused_lease_id_is_noticed:
        ReusedLeaseId, Setup::DATAGRAMS, 40 => Violation::Holders(_),
    a_grant_from_before_a_refusal_is_noticed:
        AcceptsOldGrants, Setup::CONNECTIONS, 25 => Violation::Holders(_),
    a_grant_accepted_for_the_whole_ttl_is_noticed:
        AcceptsFullTtl, Setup::CONNECTIONS, 45
            => Violation::Holders(checker::Violation::TwoHolders),
    without_a_notice_to_the_next_waiter_a_silent_head_delays_it:
        IgnoresNext, scenario(Scenario::SilentHead), 30 => Violation::NotServed,
    without_retries_a_dead_holder_stops_every_waiter:
        NoRetryTimer, scenario(Scenario::DeadHolder), 50 => Violation::NotServed,
    without_a_request_after_a_reconnect_a_lost_grant_stays_lost:
        NoRequestAfterReconnect, scenario(Scenario::LostGrant), 45 => Violation::NotServed,
    a_waiter_that_leaves_without_a_release_costs_a_round_trip:
        NoRelease, scenario(Scenario::LeavingHead), 15 => Violation::NotServed,
    an_orphan_that_is_kept_stops_every_waiter:
        KeepsOrphans, scenario(Scenario::LateRequest), 50 => Violation::NotServed,
    without_passing_over_dead_heads_the_next_one_waits:
        NotifiesDeadHeads, scenario(Scenario::DeadHeads), 50 => Violation::NotServed,
    a_notice_to_a_dead_next_waiter_delays_the_living_one:
        NotifiesDeadNext, scenario(Scenario::SilentHeadDeadSecond), 40 => Violation::NotServed,
    without_the_acceptance_ttl_a_silent_head_stops_every_waiter:
        UnlimitedAcceptance, scenario(Scenario::SilentHead), 50 => Violation::NotServed,
    an_acceptance_for_the_whole_ttl_delays_the_next_waiter:
        FullAcceptance, scenario(Scenario::SilentHead), 45 => Violation::NotServed,
    a_completion_without_the_lock_is_noticed:
        CompletesUnheld, RUN_DATAGRAMS, 3 => Violation::Forgotten,
    a_release_before_its_completion_is_noticed:
        ReleasesFirst, Setup::RUNS, 50 => Violation::Forgotten,
    a_condition_that_is_not_checked_again_is_noticed:
        DecidesOnce, Setup::RUNS, 50 => Violation::Repeated,
    slots_that_begin_at_midnight_are_noticed:
        SlotByFloor, Setup::daily(Timetable::MIDNIGHT), 40
            => Violation::Repeated | Violation::NotRun,
    a_trial_in_the_nearest_slot_is_noticed:
        TrialByNearestSlot, Setup::daily(Timetable::NIGHTLY), 45
            => Violation::Repeated | Violation::NotRun,
    a_client_that_skips_its_run_is_noticed:
        SkipsIfHeld, Setup::daily(Timetable::MIDNIGHT), 50 => Violation::NotRun,
    a_value_without_a_number_that_is_late_is_noticed:
        WritesWithoutNumber, elections(Setup::DATAGRAMS), 15 => Violation::ValueWentBack,
    a_leader_that_does_not_repeat_a_write_is_noticed:
        NoRepeatedWrite, elections(Setup::DATAGRAMS), 18 => Violation::NotObserved,
    an_observer_that_begins_with_an_old_reading_is_noticed:
        SharesOldReadings, elections(Setup::CONNECTIONS), 30 => Violation::OldReading,
    observers_that_ignore_pushes_are_noticed:
        IgnoresPushes, elections(Setup::CONNECTIONS), 45 => Violation::NotObserved,
    observers_that_do_not_repeat_a_reading_are_noticed:
        NoRepeatedRead, elections(Setup::DATAGRAMS), 50 => Violation::NotObserved,
    observers_that_do_not_read_the_end_of_a_lease_are_noticed:
        NoReadAtEnd, elections(Setup::CONNECTIONS), 45 => Violation::NotObserved,
    a_holder_that_relies_on_its_lease_over_a_pause_is_noticed:
        IgnoresPauses, watched(Scenario::NodeRestartInPause, Watchdog::Local), 30
            => Violation::Holders(checker::Violation::TwoHolders),
    a_holder_that_gives_up_its_lease_after_a_pause_is_noticed:
        TakesPausesForLosses, watched(Scenario::PausedHolder, Watchdog::Local), 30
            => Violation::NotServed,
    a_holder_that_ignores_the_loss_of_its_lease_is_noticed:
        IgnoresLosses, watched(Scenario::LongPause, Watchdog::Local), 30
            => Violation::NotNotified,
    a_lost_lease_that_stays_registered_is_noticed:
        KeepsRegistrations, watched(Scenario::PausedLoser, Watchdog::Local), 30
            => Violation::NotServed,
    a_client_without_heartbeats_is_noticed:
        NoHeartbeats, watched(Scenario::PausedHolder, Watchdog::Remote), 30
            => Violation::NotServed,
    a_lease_that_is_not_registered_with_a_restarted_node_is_noticed:
        NoRegistrationAfterReconnect, watched(Scenario::NodeRestart, Watchdog::Local), 30
            => Violation::NotServed,
    a_node_that_ignores_a_death_is_noticed:
        IgnoresDeath, watched(Scenario::WatchedDeath, Watchdog::Local), 30
            => Violation::NotServed | Violation::UnknownRenewed,
    a_node_that_takes_the_end_of_a_connection_for_a_death_is_noticed:
        DiesWithConnection, Setup::WATCHED, 20 => Violation::LivingReleased,
    a_node_that_renews_what_was_unregistered_is_noticed:
        IgnoresUnregistrations, Setup::WATCHED, 10 => Violation::UnknownRenewed,
    a_node_that_renews_for_ever_is_noticed:
        RenewsForEver, watched(Scenario::LongPause, Watchdog::Remote), 30
            => Violation::NotServed,
    a_restarted_node_that_renews_what_it_does_not_know_is_noticed:
        NodeKeepsLeases, watched(Scenario::NodeRestartInPause, Watchdog::Local), 30
            => Violation::UnknownRenewed,
}
