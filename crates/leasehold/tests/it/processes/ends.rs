//! Programs that return from `main` while releases are under way: nothing stays held.

use std::time::{Duration, Instant};

use leasehold::{Client, LeaseOptions};
use tokio::runtime::{Builder, Runtime};

use super::child::run;
use crate::fixture::{Fixture, fresh_name, with_options};
use crate::leftovers::nothing_is_left;

const HOUR: Duration = Duration::from_secs(3_600);

/// How long a program waits for its releases at its end.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The number of starts of a program that has too little time for its release.
const STARTS_MAX: usize = 5;

/// How a program ends.
const WAYS: [&str; 6] = [
    "guard is dropped at the end of main",
    "guard outlives the runtime",
    "guards live in tasks",
    "acquisition is under way",
    "a blocking guard is dropped",
    "a blocking client was dropped before its guard",
];

fn a_program_that_returns_from_main_leaves_nothing_held(fixture: &Fixture) {
    let runtime = Runtime::new().unwrap();
    for way in WAYS {
        for threads in ["one", "many"] {
            let name = ends_well(fixture, threads, way);
            runtime.block_on(async {
                let client = fixture.client().await;
                nothing_is_left(fixture, &fixture.key(&name), &[&client]).await;
            });
        }
    }
}

/// A runtime that ends drops its tasks in an order that depends on their numbers: those of a connection before or behind
/// those that wait for a release.
fn a_guard_is_released_whichever_tasks_are_dropped_first(fixture: &Fixture) {
    for earlier_tasks in ["one", "one+1", "one+2", "one+3"] {
        ends_well(fixture, earlier_tasks, WAYS[0]);
    }
}

/// Checks that a program leaves nothing held. Returns the name of its lock. A busy server may not reply in the time that the
/// program waits.
fn ends_well(fixture: &Fixture, threads: &str, way: &str) -> String {
    let url = fixture.url().expect("a store that processes share");
    let ended = (0..STARTS_MAX).find_map(|_| {
        let name = fresh_name("ends");
        let begun = Instant::now();
        run(&format!("end {url} {name} {threads} {way}"));
        let took = begun.elapsed();
        let is_well = holds_only_kept(fixture, &name, way);
        assert!(is_well || took >= WAIT_MAX, "{threads} {way}: {took:?}");
        is_well.then_some(name)
    });
    ended.unwrap_or_else(|| panic!("{threads} {way}"))
}

/// Whether the lock in its minimum hold is the only one that a program has left held. A blocking program has no such lock.
fn holds_only_kept(fixture: &Fixture, name: &str, way: &str) -> bool {
    Runtime::new().unwrap().block_on(async {
        let client = fixture.client().await;
        let holder = async |name: &str| client.mutex(name).unwrap().inspect().await.unwrap();
        let kept = holder(&format!("{name}/kept")).await;
        let is_kept = way.contains("blocking") || kept.is_some_and(|kept| kept.min_hold);
        let others = [holder(name).await, holder(&format!("{name}/other")).await];
        is_kept && others.iter().all(Option::is_none)
    })
}

/// In a helper: acquires locks and returns.
pub(super) fn end(url: &str, name: &str, way: &str) {
    let (threads, way) = way.split_once(' ').unwrap();
    if way.contains("blocking") {
        return end_blocking(url, name, way);
    }
    let mut builder = match threads {
        "many" => Builder::new_multi_thread(),
        _ => Builder::new_current_thread(),
    };
    let runtime = builder.enable_all().build().unwrap();
    let earlier_tasks = threads.strip_prefix("one+").unwrap_or("0");
    for _ in 0..earlier_tasks.parse().unwrap() {
        runtime.spawn(std::future::pending::<()>());
    }
    let guard = runtime.block_on(async {
        let client = Client::connect(url).await.unwrap();
        let mutex = client.mutex(name).unwrap();
        let other = client.mutex(format!("{name}/other")).unwrap();
        let guard = mutex.lock().await.unwrap();
        // The runtime may end before this release is sent.
        let kept = client.mutex(format!("{name}/kept")).unwrap();
        let kept = with_options(&kept, LeaseOptions::new().min_hold(HOUR));
        drop(kept.lock().await.unwrap());
        match way {
            "guard outlives the runtime" => return Some(guard),
            "guards live in tasks" => {
                let other = other.lock().await.unwrap();
                for guard in [guard, other] {
                    tokio::spawn(async move {
                        std::future::pending::<()>().await;
                        drop(guard);
                    });
                }
                tokio::task::yield_now().await;
            }
            "acquisition is under way" => {
                tokio::spawn(async move { other.lock().await });
                tokio::task::yield_now().await;
                drop(guard);
            }
            _ => drop(guard),
        }
        None
    });
    drop(runtime);
    drop(guard);
}

fn end_blocking(url: &str, name: &str, way: &str) {
    let client = leasehold::blocking::Client::connect(url).unwrap();
    let guard = client.mutex(name).unwrap().lock().unwrap();
    if way == "a blocking guard is dropped" {
        drop(guard);
        drop(client);
    } else {
        drop(client);
        assert!(guard.time_left() > Duration::ZERO);
        drop(guard);
    }
}

over_shared_stores! {
    a_program_that_returns_from_main_leaves_nothing_held,
}

mod order {
    use super::a_guard_is_released_whichever_tasks_are_dropped_first;

    macro_rules! over_connected_stores {
        ($($store:ident),+) => {
            $(over_shared_stores!($store: a_guard_is_released_whichever_tasks_are_dropped_first);)+
        };
    }

    over_connected_stores!(
        redis, cluster, sentinel, redlock3, postgres, etcd, zookeeper, objects
    );
}
