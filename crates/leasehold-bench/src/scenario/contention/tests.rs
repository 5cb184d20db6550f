//! The figures of contention, from counts that are known and from tasks of this process.

use super::tasks::Counts;
use super::*;
use crate::exclusion::{ExclusionCheck, Observations};
use crate::latencies::Latencies;
use crate::options::Scenario;
use crate::report::check;

fn settings(processes: u16) -> Settings {
    Settings {
        processes,
        section: Duration::from_millis(1),
        reads: Some(90),
        ..Settings::of(Scenario::Contended)
    }
}

/// A process whose tasks acquired so often, after so many microseconds, with a call for every four.
fn share(by_task: [u64; 2], wait_us: u64) -> Share {
    let acquisitions = by_task.iter().sum();
    let mut waits = Latencies::default();
    waits.record_nanos(wait_us * 1_000, acquisitions);
    Share {
        counts: Counts {
            acquisitions,
            in_section_ns: acquisitions * 1_000_000,
            section_ns: acquisitions * 1_000_000,
            sections: acquisitions,
            checked: acquisitions + 10,
        },
        by_task: by_task.into(),
        writer_waits: waits.clone(),
        waits,
        calls: Some(acquisitions / 4),
        handoffs: acquisitions / 2,
        observations: Observations::default(),
    }
}

#[test]
fn figures_are_what_was_counted() {
    let shares = [share([200, 280], 100), share([360, 360], 3_000)];
    let (figures, failure) = findings(&settings(2), &shares);
    check(
        &figures,
        &[
            ("acquisitions", 1_200.0),
            ("acquisitions_per_second", 600.0),
            ("handoffs", 600.0),
            ("handoffs_per_acquisition", 0.5),
            ("commands_per_acquisition", 0.25),
            // 480 waits of 100 and 720 of 3,000.
            ("wait.p50_us", 3_000.0),
            ("wait.max_us", 3_000.0),
            ("fairness.wait_p99_per_p50", 1.0),
            ("writers.wait.p99_us", 3_000.0),
            ("writers.wait_p99_beyond_section_us", 2_000.0),
            ("writers.wait_p99_aim_us", 28_000.0),
            ("fairness.process_share_min", 0.4),
            ("fairness.process_share_max", 0.6),
            // An equal share is 600 for a process and 300 for a task.
            ("fairness.process_departure", 0.2),
            ("fairness.task_departure", 0.333_33),
            ("fairness.task_per_second_min", 100.0),
            ("fairness.task_per_second_median", 180.0),
            ("fairness.task_per_second_max", 180.0),
            ("section.requested_us", 1_000.0),
            ("section.mean_us", 1_000.0),
            // 1,200 sections of a millisecond in 2 s.
            ("section.in_use", 0.6),
            ("exclusion.acquisitions", 1_220.0),
            ("by_process.0.share", 0.4),
            ("by_process.1.acquisitions_per_second", 360.0),
        ],
    );
    assert_eq!(
        (&figures["exclusion"]["held"], failure),
        (&true.into(), None)
    );
}

#[test]
fn a_broken_lock_is_a_failure() {
    let check = ExclusionCheck::new(1);
    check.acquired(0, 1);
    check.acquired(0, 2);
    let mut shares = [share([1, 2], 3), share([4, 5], 6)];
    shares[0].observations = check.observations();
    let (figures, failure) = findings(&settings(2), &shares);
    assert_eq!(figures["exclusion"]["held"], false);
    assert!(failure.unwrap().contains("1 holders at once"));
}
