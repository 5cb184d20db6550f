//! Each day has one completed run, and every mutation is noticed.

use super::*;

/// How many seeds of each setup run.
const SEEDS: u64 = 200;

#[test]
fn each_day_has_exactly_one_completed_run() {
    let mut total = Report::default();
    for setup in SETUPS {
        for seed in 0..SEEDS {
            let report = run(seed, &setup);
            assert_eq!(
                report.wrong_days(),
                (0, 0),
                "seed {seed}, {setup:?}, {report:?}"
            );
            total.failed += report.failed;
            total.taken_over += report.taken_over;
            total.found_complete += report.found_complete;
        }
    }
    println!("{total:?}");
    // Each month has many of these.
    let months = SETUPS.len() as u32 * SEEDS as u32;
    assert!(total.failed > 10 * months, "{total:?}");
    assert!(total.taken_over > 5 * months, "{total:?}");
    assert!(total.found_complete > 50 * months, "{total:?}");
}

#[test]
fn every_mutation_is_noticed() {
    for mutation in [
        Mutation::SlotByFloor,
        Mutation::CompleteWithoutLock,
        Mutation::SkipInsteadOfWait,
        Mutation::TrialByNearestSlot,
    ] {
        let setup = match mutation {
            Mutation::TrialByNearestSlot => NIGHTLY,
            _ => MIDNIGHT,
        };
        let setup = Setup {
            mutation: Some(mutation),
            ..setup
        };
        let wrong = (0..SEEDS).map(|seed| run(seed, &setup).wrong_days());
        let (twice, none) = wrong.fold((0, 0), |sum, days| (sum.0 + days.0, sum.1 + days.1));
        println!("{mutation:?}: {twice} days twice, {none} days not at all");
        match mutation {
            Mutation::SlotByFloor | Mutation::TrialByNearestSlot => assert!(twice > 0 && none > 0),
            Mutation::CompleteWithoutLock => assert!(twice > 0),
            Mutation::SkipInsteadOfWait => assert!(none > 0),
        }
    }
}

#[test]
fn a_timer_fires_at_the_times_that_the_clock_shows() {
    let at = |day, hours: f64, change| {
        let starts = calendar::starts(day, (hours * 3600.0) as u64, change);
        let midnight = 24.0 * (day + 1) as f64;
        let hours = starts.into_iter().map(|at| at as f64 / 3600.0 - midnight);
        hours.collect::<Vec<_>>()
    };
    assert_eq!(at(14, 2.5, None), [2.5]);
    let forward = Some(ClockChange::Forward);
    assert_eq!(at(14, 2.5, forward), [2.5]);
    assert_eq!(at(15, 1.5, forward), [1.5]);
    assert_eq!(at(15, 2.5, forward), [2.0], "its clock jumps over it");
    assert_eq!(at(15, 3.5, forward), [2.5]);
    assert_eq!(at(16, 2.5, forward), [1.5]);
    let back = Some(ClockChange::Back);
    assert_eq!(at(14, 2.5, back), [1.5]);
    assert_eq!(at(15, 2.5, back), [1.5, 2.5], "its clock shows it twice");
    assert_eq!(at(16, 2.5, back), [2.5]);
}
