//! The rules keep their promises in every world, and every broken one is found out.

use super::*;
use crate::seed;

/// How many worlds the normal test runs.
const WORLDS: u64 = 2_000;

/// How many worlds a broken rule may survive. The slowest to be caught shows in one
/// of a hundred.
const WORLDS_TO_CONVICT: u64 = 500;

/// Runs the worlds of some seeds and adds up what happened in them.
fn run_all(seeds: impl Iterator<Item = u64>, setup: &Setup) -> Report {
    let mut total = Report::default();
    for seed in seeds {
        match run(seed, setup) {
            Ok(report) => total = total.plus(&report),
            Err(failure) => panic!("{failure}; LEASEHOLD_SEED={seed} replays it"),
        }
    }
    total
}

/// The first thing that goes wrong.
fn convict(broken: Option<Broken>, setup: Setup) -> Wrong {
    let setup = Setup { broken, ..setup };
    (0..WORLDS_TO_CONVICT)
        .find_map(|seed| run(seed, &setup).err())
        .map(|failure| failure.wrong)
        .unwrap_or_else(|| panic!("nobody noticed {broken:?}"))
}

#[test]
fn nobody_is_deceived_in_any_world() {
    let total = run_all(0..WORLDS, &Setup::default());
    // Everything that the judges are to judge did happen, and more than once a world.
    for (what, times) in [
        ("begun", total.begun),
        ("refused", total.refused),
        ("renewed", total.renewed),
        ("called lost", total.called_lost),
        ("lost", total.lost),
        ("doubled", total.doubled),
        ("cut off", total.cut_off),
        ("stops", total.stops),
    ] {
        assert!(times > WORLDS, "{what}: {total:?}");
    }
    assert!(total.kills > WORLDS / 2, "{total:?}");
}

#[test]
fn fixed_leases_alone_are_safe_within_the_drift_allowance() {
    let setup = Setup {
        leases: Leases::Fixed,
        ..Setup::default()
    };
    run_all(0..WORLDS / 4, &setup);
}

/// Worlds that nobody has seen before.
#[test]
fn a_fresh_world_is_as_safe() {
    let seed = seed::from_environment();
    let fresh = (0..50).map(|nth| seed.wrapping_add(nth));
    run_all(fresh, &Setup::default());
}

#[test]
fn a_deadline_counted_from_the_reply_is_noticed() {
    let setup = Setup {
        leases: Leases::Fixed,
        ..Setup::default()
    };
    let wrong = convict(Some(Broken::DeadlineFromReply), setup);
    assert!(matches!(wrong, Wrong::Deceived(_)), "{wrong:?}");
}

#[test]
fn clocks_beyond_the_drift_allowance_are_noticed() {
    let setup = Setup {
        leases: Leases::Fixed,
        drift_ppm: (-50_000, -30_000),
        ..Setup::default()
    };
    let wrong = convict(None, setup);
    assert_eq!(wrong, Wrong::Deceived(Deception::TwoHolders));
}

#[test]
fn a_lease_id_used_again_is_noticed() {
    let wrong = convict(Some(Broken::ReusedLeaseId), Setup::default());
    assert!(matches!(wrong, Wrong::Deceived(_)), "{wrong:?}");
}

#[test]
fn a_lost_lease_that_comes_back_is_noticed() {
    let wrong = convict(Some(Broken::RevivedLease), Setup::default());
    assert_eq!(wrong, Wrong::Deceived(Deception::Revived));
}

#[test]
fn a_lease_without_a_deadline_is_noticed() {
    let wrong = convict(Some(Broken::NoDeadline), Setup::default());
    assert_eq!(wrong, Wrong::Deceived(Deception::TwoHolders));
}
