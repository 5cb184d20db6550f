//! Two runs of one name never overlap.

use std::thread;

use leasehold_checker::Sequence;

use crate::tools::{Fixture, RunToEnd};

const PROCESSES: usize = 8;
const RUNS: usize = 25;

/// 200 short runs from 8 processes at a time write their begin and end into one file.
fn never_overlap(fixture: &Fixture) {
    thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                for _ in 0..RUNS {
                    let script = "echo begin $LEASEHOLD_TOKEN >> log; echo end >> log";
                    let status = fixture.run_script(&["job"], script).run_to_end().status;
                    assert!(status.success());
                }
            });
        }
    });
    let log = fixture.read("log");
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), PROCESSES * RUNS * 2);
    let mut sequence = Sequence::of_tokens();
    for line in lines {
        match line.strip_prefix("begin ") {
            Some(token) => {
                let token = token.parse().unwrap();
                sequence.acquired(token, token).unwrap();
            }
            None => sequence.ended(sequence.current().expect(line)),
        }
    }
    assert_eq!(sequence.acquisitions(), (PROCESSES * RUNS) as u64);
    assert!(!fixture.is_held("job"));
}

#[test]
fn on_sqlite() {
    never_overlap(&Fixture::new());
}

#[test]
fn on_redis() {
    let (_server, fixture) = Fixture::redis();
    never_overlap(&fixture);
}
