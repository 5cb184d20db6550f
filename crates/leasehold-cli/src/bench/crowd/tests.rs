//! The figures of a crowd, from counts that are known and from a real crowd in one process.

use super::work::Share;
use super::*;
use crate::bench::times::Times;
use crate::bench::witness::Testimony;

fn crowd(processes: u16) -> Crowd {
    Crowd {
        scenario: Scenario::Contended,
        names: 1,
        processes,
        tasks: 2,
        threads: 1,
        section: Duration::from_millis(1),
        span: Duration::from_secs(2),
    }
}

/// A process whose tasks got so many, each after so many microseconds, with a call for every four.
fn share(by_task: [u64; 2], wait_us: u64) -> Share {
    let acquisitions = by_task.iter().sum();
    let mut waits = Times::new().unwrap();
    waits.record_nanos(wait_us * 1_000, acquisitions);
    Share {
        acquisitions,
        by_task: by_task.into(),
        waits,
        in_section_ns: acquisitions * 1_000_000,
        section_ns: acquisitions * 1_000_000,
        sections: acquisitions,
        calls: Some(acquisitions / 4),
        handoffs: acquisitions / 2,
        witnessed: acquisitions + 10,
        testimony: Testimony::default(),
    }
}

#[test]
fn figures_are_what_was_counted() {
    let shares = [share([200, 280], 100), share([360, 360], 300)];
    let report = Report::new(&crowd(2), "redis://host".into(), &shares).unwrap();
    let all = report.all;
    assert_eq!((all.acquisitions, all.handoffs), (1_200, 600));
    assert_eq!(all.acquisitions_per_second, 600.0);
    assert_eq!(all.commands_per_acquisition, Some(0.25));
    assert_eq!(all.handoffs_per_acquisition, 0.5);
    // 480 waits of 100 and 720 of 300.
    for (figure, expected) in [
        (all.wait.p50_us, 300.0),
        (all.wait.p99_us, 300.0),
        (all.wait.max_us, 300.0),
        (report.by_process[0].got.wait.p99_us, 100.0),
    ] {
        assert!((figure / expected - 1.0_f64).abs() < 0.001, "{figure}");
    }
    assert_eq!(report.by_process[0].share, 0.4);
    assert_eq!(report.by_process[1].got.acquisitions_per_second, 360.0);
    let fairness = report.fairness;
    assert_eq!(fairness.wait_p99_per_p50, 1.0);
    assert_eq!(
        (fairness.process_share_min, fairness.process_share_max),
        (0.4, 0.6)
    );
    // An equal share is 600 for a process and 300 for a task.
    assert_eq!(fairness.process_departure, 0.2);
    assert_eq!(fairness.task_departure, 0.333_33);
    assert_eq!(fairness.task_per_second_min, 100.0);
    assert_eq!(fairness.task_per_second_median, 180.0);
    assert_eq!(fairness.task_per_second_max, 180.0);
    let section = report.section.unwrap();
    assert_eq!((section.asked_us, section.mean_us), (1_000.0, 1_000.0));
    // 1,200 sections of a millisecond in 2 s.
    assert_eq!(section.in_use, 0.6);
    assert!(report.exclusion.held && report.verdict().is_ok());
    assert_eq!(report.exclusion.acquisitions, 1_220);
}

#[test]
fn what_nobody_counted_is_not_known() {
    let mut shares = [share([1, 2], 3), share([4, 5], 6)];
    shares[1].calls = None;
    let report = Report::new(&crowd(2), "memory:".into(), &shares).unwrap();
    assert_eq!(report.all.commands_per_acquisition, None);
    assert!(report.by_process[0].got.commands_per_acquisition.is_some());
}

#[test]
fn nobody_got_anything() {
    let shares = [share([0, 0], 0)];
    let report = Report::new(&crowd(1), "redis://host".into(), &shares).unwrap();
    let json = serde_json::to_string(&report).unwrap();
    // What is no number is null in JSON.
    assert!(!json.contains("null"), "{json}");
    assert!(!draw(&report).contains("NaN"));
}

#[test]
fn a_broken_lock_is_no_success() {
    let mut shares = [share([1, 2], 3), share([4, 5], 6)];
    shares[0].testimony.overlaps = 1;
    let report = Report::new(&crowd(2), "redis://host".into(), &shares).unwrap();
    assert!(!report.exclusion.held);
    let verdict = report.verdict().unwrap_err().to_string();
    assert!(verdict.contains("1 holders at once"), "{verdict}");
    assert!(draw(&report).contains("BROKEN"));
}

#[test]
fn the_picture_has_a_bar_for_each_process() {
    let shares = [share([200, 280], 100), share([360, 360], 300)];
    let report = Report::new(&crowd(2), "redis://host".into(), &shares).unwrap();
    let picture = draw(&report);
    for name in ["all", "process 1", "process 2"] {
        let barred = picture.lines().filter(|line| {
            let line = line.trim_start();
            line.starts_with(name) && line.contains('█')
        });
        // Acquisitions and waits.
        assert_eq!(barred.count(), 2, "{name}:\n{picture}");
    }
    assert!(picture.contains(" 60.0 %"), "{picture}");
    let widest = picture.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(84), "{widest:?}:\n{picture}");
}

/// Two threads, so that holders could overlap if the lock let them.
#[test]
fn a_crowd_in_one_process_takes_turns() {
    let place = Place::new("memory:".into(), None, "leasehold".into(), "default".into());
    let crowd = Crowd {
        tasks: 8,
        threads: 2,
        section: Duration::from_micros(100),
        span: Duration::from_millis(300),
        ..crowd(1)
    };
    let report = crowd.measure(&place).unwrap();
    report.verdict().unwrap();
    assert!(report.all.acquisitions > 0);
    assert!(report.exclusion.acquisitions >= report.all.acquisitions);
    assert_eq!(report.by_process.len(), 1);
    assert_eq!(
        report.by_process[0].got.acquisitions,
        report.all.acquisitions
    );
    let section = report.section.unwrap();
    assert!(section.mean_us >= 100.0, "{section:?}");
    assert!(section.in_use > 0.0 && section.in_use <= 1.0, "{section:?}");
}
