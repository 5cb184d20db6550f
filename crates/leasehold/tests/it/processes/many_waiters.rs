//! A thousand waiters in four processes.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use leasehold::Client;
use tempfile::TempDir;

use super::child::{Child, serve};
use crate::fixture::{Fixture, fresh_name};
use crate::leftovers::{default_key, nothing_is_left};

const PROCESSES: usize = 4;
const WAITERS_EACH: usize = 250;

/// Far longer than it takes, on a busy machine, too.
const DONE: Duration = Duration::from_secs(60);

fn all_are_served_once(test: &str, fixture: impl FnOnce() -> Fixture) {
    if serve() {
        return;
    }
    let fixture = fixture();
    let name = fresh_name("many");
    let directory = TempDir::new().unwrap();
    let journal = directory.path().join("journal");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let client = fixture.client_with(Client::builder()).await;
        let guard = client.mutex(&name).unwrap().lock().await.unwrap();
        let children = [(); PROCESSES].map(|()| Child::start(test, &fixture, &name));
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

/// The order of the journal is the order of holding: a process that writes into it relies on the lock.
fn check(journal: &str) {
    let lines: Vec<Vec<_>> = journal
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    assert_eq!(lines.len(), 2 * PROCESSES * WAITERS_EACH);
    let (mut served, mut last) = (HashSet::new(), 0);
    for pair in lines.chunks(2) {
        assert_eq!((pair[0][0], pair[1][0]), ("enter", "leave"), "two holders");
        assert_eq!(pair[0][1..], pair[1][1..], "two holders");
        let token: u64 = pair[0][3].parse().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        assert!(served.insert((pair[0][1], pair[0][2])), "served twice");
    }
    assert_eq!(served.len(), PROCESSES * WAITERS_EACH);
}

over_shared_stores! {
    all_are_served_once,
}
