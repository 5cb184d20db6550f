//! Each day has one completed run. That every mutation is noticed, is tested with those of the other scenarios.

use super::*;
use crate::simulation::tests::run_all;
use crate::simulation::{ClockChange, Report, Setup};

/// How many seeds of each timetable run.
const SEEDS: u64 = 40;

#[test]
fn each_day_has_exactly_one_completed_run() {
    let mut total = Report::default();
    for timetable in Timetable::ALL {
        total.add(&run_all(0..SEEDS, &Setup::daily(timetable)));
    }
    println!("{total:?}");
    // Each month has many of these.
    let months = Timetable::ALL.len() as u64 * SEEDS;
    let (failed, taken_over) = (Occurrence::RunFailed, Occurrence::RunTakenOver);
    assert!(total.times(failed) > 10 * months, "{total:?}");
    assert!(total.times(taken_over) > 5 * months, "{total:?}");
    let found = total.times(Occurrence::FoundComplete) + total.times(Occurrence::ToldComplete);
    assert!(found > 50 * months, "{total:?}");
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
