//! Many waiters in each of four processes.

use std::fs;
use std::time::Duration;

use leasehold_checker::Sequence;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::child::Child;
use crate::fixture::{Fixture, fresh_name};
use crate::leftovers::nothing_is_left;
use crate::waiters::SOON;

const PROCESSES: usize = 4;
const WAITERS_EACH: usize = 50;

/// Far longer than it takes, also on a busy machine.
const DONE: Duration = Duration::from_secs(60);

fn all_are_served_once(fixture: &Fixture) {
    let name = fresh_name("many");
    let directory = TempDir::new().unwrap();
    let log = directory.path().join("log");
    Runtime::new().unwrap().block_on(async {
        let client = fixture.client().await;
        let guard = client.mutex(&name).unwrap().lock().await.unwrap();
        let children = [(); PROCESSES].map(|()| Child::start(fixture, &name));
        for child in &children {
            child.send(&format!("many {WAITERS_EACH} {}", log.display()));
        }
        for child in &children {
            child.expect("queued", SOON);
        }
        guard.release().await.unwrap();
        for child in &children {
            child.expect("done", DONE);
        }
        nothing_is_left(fixture, &fixture.key(&name), &[&client]).await;
    });
    let log = fs::read_to_string(log).unwrap();
    // A task writes while it relies on the lock, so the lines are in the order of the holders.
    let mut sequence = Sequence::default();
    for line in log.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let task = (words[1], words[2]);
        match words[0] {
            "acquired" => sequence.acquired(task, words[3].parse().unwrap()).unwrap(),
            _ => sequence.ended(task),
        }
    }
    assert_eq!(sequence.current(), None);
    let waiters = PROCESSES * WAITERS_EACH;
    assert_eq!(sequence.acquisitions(), waiters as u64);
}

over_shared_stores! {
    all_are_served_once,
}
