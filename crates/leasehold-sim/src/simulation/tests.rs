//! The rules keep their promises in every simulation, and every mutation is noticed.

use leasehold_checker as checker;

use super::*;
use crate::seed;

/// How many seeds the tests without a mutation run on datagrams. On connections it is a fifth: those
/// simulations are five times as long.
const SEEDS: u64 = 2_000;

/// How many seeds a mutation may survive. The least frequent one fails in one of a hundred.
const MUTATION_SEEDS: u64 = 500;

/// More clients than elsewhere, since only the drift allowance separates two fixed leases.
const FIXED: Setup = Setup {
    clients: 5,
    leases: Leases::Fixed,
    scenario: Scenario::Random(2_000),
    ..Setup::DATAGRAMS
};

/// The clocks of the clients are slower than the drift allowance covers.
const SLOW_CLOCKS: Setup = Setup {
    drift_ppm: (-50_000, -30_000),
    ..FIXED
};

/// Runs some seeds and adds up what happened.
fn run_all(seeds: impl Iterator<Item = u64>, setup: &Setup) -> Report {
    let mut total = Report::default();
    for seed in seeds {
        match run(seed, setup) {
            Ok(report) => total.add(&report),
            Err(failure) => panic!("{failure}; LEASEHOLD_SEED={seed} replays it"),
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

const fn scenario(scenario: Scenario) -> Setup {
    Setup {
        scenario,
        ..Setup::CONNECTIONS
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
    run_all(0..SEEDS / 4, &FIXED);
}

#[test]
fn connections_violate_no_promise() {
    let seeds = SEEDS / 5;
    let total = run_all(0..seeds, &Setup::CONNECTIONS);
    let often = [
        Occurrence::PassedOver,
        Occurrence::LateRequest,
        Occurrence::DelayedByStore,
        Occurrence::Accepted,
        Occurrence::RetryTimer,
        Occurrence::NextTimer,
        Occurrence::RequestAfterReconnect,
        Occurrence::Unanswered,
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
    run_all(0..SEEDS / 20, &mixed);
}

#[test]
fn fresh_seeds_violate_no_promise() {
    let seed = seed::from_environment();
    for setup in [Setup::DATAGRAMS, Setup::CONNECTIONS] {
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
    ] {
        run_all(0..300, &scenario(fault));
    }
}

#[test]
fn clocks_beyond_the_drift_allowance_are_noticed() {
    let violation = first_violation(&SLOW_CLOCKS);
    assert_eq!(
        violation,
        Violation::Holders(checker::Violation::TwoHolders)
    );
}

fn first_violation(setup: &Setup) -> Violation {
    (0..MUTATION_SEEDS)
        .find_map(|seed| run(seed, setup).err())
        .map(|failure| failure.violation)
        .unwrap_or_else(|| panic!("no seed notices {:?}", setup.mutation))
}

/// A test for each mutation, with a setup that notices it and the violations by which it may, and one
/// that none is left out.
macro_rules! mutations {
    ($($name:ident: $mutation:ident, $setup:expr => $violation:pat,)*) => {
        $(
            #[test]
            fn $name() {
                let mutation = Some(Mutation::$mutation);
                let violation = first_violation(&Setup { mutation, ..$setup });
                assert!(matches!(violation, $violation), "{violation:?}");
            }
        )*

        const NOTICED: &[(Mutation, Setup)] = &[$((Mutation::$mutation, $setup)),*];

        /// Fails to compile when a mutation has no test.
        const fn _is_tested(mutation: Mutation) {
            match mutation {
                $(Mutation::$mutation => {})*
            }
        }
    };
}

mutations! {
    a_deadline_from_the_reply_is_noticed:
        DeadlineFromReply, FIXED => Violation::Holders(_),
    a_deadline_from_the_notice_is_noticed:
        DeadlineFromNotice, Setup::CONNECTIONS => Violation::Holders(_),
    a_lease_without_a_deadline_is_noticed:
        NoDeadline, Setup::DATAGRAMS => Violation::Holders(checker::Violation::TwoHolders),
    a_revived_lease_is_noticed:
        RevivedLease, Setup::DATAGRAMS => Violation::Holders(checker::Violation::Revived),
    a_reused_lease_id_is_noticed:
        ReusedLeaseId, Setup::DATAGRAMS => Violation::Holders(_),
    a_grant_from_before_a_refusal_is_noticed:
        AcceptsOldGrants, Setup::CONNECTIONS => Violation::Holders(_),
    a_grant_accepted_for_the_whole_ttl_is_noticed:
        AcceptsFullTtl, Setup::CONNECTIONS => Violation::Holders(checker::Violation::TwoHolders),
    without_a_notice_to_the_next_waiter_a_silent_head_delays_it:
        IgnoresNext, scenario(Scenario::SilentHead) => Violation::NotServed,
    without_retries_a_dead_holder_stops_every_waiter:
        NoRetryTimer, scenario(Scenario::DeadHolder) => Violation::NotServed,
    without_a_request_after_a_reconnect_a_lost_grant_stays_lost:
        NoRequestAfterReconnect, scenario(Scenario::LostGrant) => Violation::NotServed,
    a_waiter_that_leaves_without_a_release_costs_a_round_trip:
        NoRelease, scenario(Scenario::LeavingHead) => Violation::NotServed,
    an_orphan_that_is_kept_stops_every_waiter:
        KeepsOrphans, scenario(Scenario::LateRequest) => Violation::NotServed,
    without_passing_over_dead_heads_the_next_one_waits:
        NotifiesDeadHeads, scenario(Scenario::DeadHeads) => Violation::NotServed,
    a_notice_to_a_dead_next_waiter_delays_the_living_one:
        NotifiesDeadNext, scenario(Scenario::SilentHeadDeadSecond) => Violation::NotServed,
    without_the_acceptance_ttl_a_silent_head_stops_every_waiter:
        UnlimitedAcceptance, scenario(Scenario::SilentHead) => Violation::NotServed,
    an_acceptance_for_the_whole_ttl_delays_the_next_waiter:
        FullAcceptance, scenario(Scenario::SilentHead) => Violation::NotServed,
}

/// Prints how many seeds of a thousand notice each mutation.
#[test]
#[ignore = "a measurement for changes of the simulation"]
fn how_often_each_mutation_is_noticed() {
    let mutated = NOTICED.iter().map(|(mutation, setup)| Setup {
        mutation: Some(*mutation),
        ..*setup
    });
    for setup in mutated.chain([SLOW_CLOCKS]) {
        let noticed = (0..1_000).filter(|seed| run(*seed, &setup).is_err());
        println!("{:?}: {}", setup.mutation, noticed.count());
    }
}
