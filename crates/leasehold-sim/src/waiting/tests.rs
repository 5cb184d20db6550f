//! No grant and no wake-up is lost, and every part that is taken out is missed.

use super::*;
use crate::seed;
use crate::world::Deception;

const CHAOS: Setup = Setup {
    clients: 5,
    story: Story::Chaos(600),
    broken: None,
};

/// How many worlds a part that is taken out may survive.
const WORLDS_TO_CONVICT: u64 = 400;

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

fn story(story: Story) -> Setup {
    Setup { story, ..CHAOS }
}

/// The first thing that goes wrong in a kind of world with a part taken out.
fn convict(broken: Broken, setup: Setup) -> Wrong {
    let setup = Setup {
        broken: Some(broken),
        ..setup
    };
    (0..WORLDS_TO_CONVICT)
        .find_map(|seed| run(seed, &setup).err())
        .map(|failure| failure.wrong)
        .unwrap_or_else(|| panic!("nobody misses {broken:?}"))
}

#[test]
fn nobody_is_deceived_or_forgotten_in_any_world() {
    const WORLDS: u64 = 400;
    let Report {
        begun,
        passed_over,
        late,
        piled_up,
        counts,
    } = run_all(0..WORLDS, &CHAOS);
    // All that the model is about did happen.
    for (what, times) in [
        ("begun", begun),
        ("passed over", passed_over),
        ("late", late),
        ("piled up", piled_up),
        ("accepted", counts.accepted),
        ("timers", counts.timers),
        ("looked", counts.looked),
        ("asked again", counts.asked_again),
        ("unanswered", counts.unanswered),
        ("gave up", counts.gave_up),
    ] {
        assert!(times > WORLDS / 4, "{what}: {times}");
    }
    for (what, times) in [
        ("too late", counts.too_late),
        ("strays", counts.strays),
        ("dead", counts.dead),
    ] {
        assert!(times > WORLDS / 40, "{what}: {times}");
    }
}

/// Worlds that nobody has seen before.
#[test]
fn a_fresh_world_is_as_good() {
    let seed = seed::from_environment();
    run_all((0..50).map(|nth| seed.wrapping_add(nth)), &CHAOS);
}

#[test]
fn each_fault_costs_no_more_than_it_must() {
    for fault in [
        Story::DeadHeads,
        Story::DeafHead,
        Story::DeafHeadDeadSecond,
        Story::DeadHolder,
        Story::LostGrant,
        Story::LeavingHead,
        Story::LateQuestion,
    ] {
        run_all(0..300, &story(fault));
    }
}

#[test]
fn without_passing_over_the_dead_the_next_one_waits() {
    let wrong = convict(Broken::NoSkip, story(Story::DeadHeads));
    assert_eq!(wrong, Wrong::NotServed);
}

#[test]
fn a_grant_notified_to_a_dead_waiter_alone_is_noticed_too_late() {
    let wrong = convict(Broken::NextMayBeDead, story(Story::DeafHeadDeadSecond));
    assert_eq!(wrong, Wrong::NotServed);
}

#[test]
fn without_the_acceptance_ttl_a_deaf_head_stops_everybody() {
    let wrong = convict(Broken::NoAcceptance, story(Story::DeafHead));
    assert_eq!(wrong, Wrong::NotServed);
}

#[test]
fn without_a_word_to_the_next_a_deaf_head_is_noticed_too_late() {
    let wrong = convict(Broken::NoNext, story(Story::DeafHead));
    assert_eq!(wrong, Wrong::NotServed);
}

#[test]
fn without_timers_a_dead_holder_stops_everybody() {
    let wrong = convict(Broken::NoTimer, story(Story::DeadHolder));
    assert_eq!(wrong, Wrong::NotServed);
}

#[test]
fn without_asking_again_a_lost_grant_stays_lost() {
    let wrong = convict(Broken::NoQuestionAfterReconnect, story(Story::LostGrant));
    assert_eq!(wrong, Wrong::NotServed);
}

#[test]
fn a_grant_from_before_a_refusal_is_noticed() {
    let wrong = convict(Broken::TakesOldGrants, CHAOS);
    assert!(matches!(wrong, Wrong::Deceived(_)), "{wrong:?}");
}

#[test]
fn a_deadline_counted_from_the_message_is_noticed() {
    let wrong = convict(Broken::DeadlineFromMessage, CHAOS);
    assert!(matches!(wrong, Wrong::Deceived(_)), "{wrong:?}");
}

#[test]
fn a_grant_for_all_the_ttl_makes_a_deaf_head_cost_that() {
    let wrong = convict(Broken::FullAcceptance, story(Story::DeafHead));
    assert_eq!(wrong, Wrong::NotServed);
}

#[test]
fn a_waiter_that_leaves_without_a_word_costs_a_round_trip() {
    let wrong = convict(Broken::NoLeave, story(Story::LeavingHead));
    assert_eq!(wrong, Wrong::NotServed);
}

#[test]
fn a_grant_that_nobody_waits_for_and_that_is_kept_stops_everybody() {
    let wrong = convict(Broken::KeepsStrays, story(Story::LateQuestion));
    assert_eq!(wrong, Wrong::NotServed);
}

#[test]
fn a_grant_taken_for_all_the_ttl_is_noticed() {
    let wrong = convict(Broken::TakesFullTtl, CHAOS);
    assert_eq!(wrong, Wrong::Deceived(Deception::TwoHolders));
}
