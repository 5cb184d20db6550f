//! A thousand waiters in four processes.

use std::fs;
use std::time::Duration;

use leasehold::Client;
use leasehold_checker::Sequence;
use tempfile::TempDir;

use super::child::Child;
use crate::fixture::{Fixture, fresh_name};
use crate::leftovers::{default_key, nothing_is_left};

const PROCESSES: usize = 4;
const WAITERS_EACH: usize = 250;

/// Far longer than it takes, on a busy machine, too.
const DONE: Duration = Duration::from_secs(60);

fn all_are_served_once(_: &str, fixture: impl FnOnce() -> Fixture) {
    let fixture = fixture();
    let name = fresh_name("many");
    let directory = TempDir::new().unwrap();
    let journal = directory.path().join("journal");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = fixture.client_with(Client::builder()).await;
        let guard = client.mutex(&name).unwrap().lock().await.unwrap();
        let children = [(); PROCESSES].map(|()| Child::start(&fixture, &name));
        for child in &children {
            child.tell(&format!("many {WAITERS_EACH} {}", journal.display()));
        }
        for child in &children {
            child.says("queued");
        }
        guard.release().await.unwrap();
        for child in &children {
            child.says_within("done", DONE);
        }
        nothing_is_left(&fixture, &default_key(&name), &[&client]).await;
    });
    check(&fs::read_to_string(journal).unwrap());
}

/// The order of the journal is that of the holders: a task writes while it relies on the lock.
fn check(journal: &str) {
    let mut sequence = Sequence::default();
    for line in journal.lines() {
        let words: Vec<_> = line.split(' ').collect();
        let task = (words[1], words[2]);
        match words[0] {
            "enter" => sequence.acquired(task, words[3].parse().unwrap()).unwrap(),
            _ => sequence.ended(task),
        }
    }
    let waiters = PROCESSES * WAITERS_EACH;
    assert_eq!(sequence.acquisitions(), waiters as u64);
    assert_eq!(journal.lines().count(), 2 * waiters);
}

over_shared_stores! {
    all_are_served_once,
}
