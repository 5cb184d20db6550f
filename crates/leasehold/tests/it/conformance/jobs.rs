//! Jobs: once in a period, and once for a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use leasehold::__private::store::Feature;
use leasehold::{Client, Error, ErrorKind, Guard, Job, LeaseOptions, Owner, Ran, Run};
use leasehold_testkit::eventually_async;

use crate::fixture::{Fixture, fresh_name};
use crate::jobs::granted;
use crate::waiters::{SOON, soon, spawn_polled, spawn_waiter};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The work of a run that succeeds.
async fn succeed(_: &Run) -> leasehold::Result<u32> {
    Ok(1)
}

async fn fail(_: &Run) -> leasehold::Result<u32> {
    Err(Error::new(ErrorKind::Store, "failed"))
}

/// A run, and another hold of its owner, which keeps the lock held when the run is complete.
async fn held_for(job: &Job) -> (Guard, Run) {
    let job = job.with(LeaseOptions::new().owner(&Owner::new())).unwrap();
    let outer = job.mutex().lock().await.unwrap();
    (outer, granted(&job).await)
}

fn is_completed(outcome: &Ran<u32>) -> bool {
    matches!(outcome, Ran::Before(_))
}

/// The same job for some clients.
async fn shared<const CLIENTS: usize>(fixture: &Fixture, name: &str) -> [Job; CLIENTS] {
    let clients = fixture.clients::<CLIENTS>().await;
    clients.map(|client| client.job(name, DAY).unwrap())
}

/// A task that waits for a job that another client runs.
fn spawn_waiting(job: &Job, runs: &Arc<AtomicU32>) -> tokio::task::JoinHandle<Ran<u32>> {
    let (job, runs) = (job.clone(), Arc::clone(runs));
    spawn_polled(async move {
        let outcome = job.run(async |_| {
            runs.fetch_add(1, Ordering::SeqCst);
            Ok::<_, leasehold::Error>(1)
        });
        outcome.await.unwrap()
    })
}

/// Waits until so many clients wait for a job.
async fn until_waiting(job: &Job, waiters: usize) {
    eventually_async(SOON, async || {
        let holder = job.mutex().inspect().await.unwrap();
        holder.is_some_and(|info| info.waiters.len() == waiters)
    })
    .await;
}

/// Where no completion is kept, a job would be repeated, so it is not made.
pub(super) async fn jobs_are_refused_where_no_completions_are_kept(fixture: Fixture) {
    let client = fixture.client().await;
    let name = fresh_name("refused");
    if fixture.has(Feature::Completions).await {
        client.job(&name, DAY).unwrap();
        client.once(&name, "v1").unwrap();
        return;
    }
    let errors = [
        client.job(&name, DAY).unwrap_err(),
        client.once(&name, "v1").unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!(error.lock(), Some(&*name));
        let message = error.to_string();
        assert!(message.contains("redlock://"), "{message}");
        assert!(message.contains("completion records"), "{message}");
    }
}

pub(super) async fn a_completed_run_is_not_repeated(fixture: Fixture) {
    let name = fresh_name("nightly");
    let builder = Client::builder().label("first").program("report");
    let client = fixture.client_with(builder).await;
    let first = client.job(&name, DAY).unwrap();
    let [second] = shared(&fixture, &name).await;
    assert_eq!(first.last_run().await.unwrap(), None);
    let before = SystemTime::now() - Duration::from_secs(60);
    let ran = first.run(succeed).await.unwrap();
    assert_eq!(ran, Ran::Now(1));
    let Ran::Before(run) = second.run(fail).await.unwrap() else {
        panic!("it ran again");
    };
    assert_eq!((&*run.name, run.key.as_deref()), (&*name, None));
    assert_eq!((&*run.label, &*run.program), ("first", "report"));
    assert_eq!(run.lease.client, client.id());
    assert!(before < run.started && run.started <= run.finished);
    assert!(run.took() < SOON);
    assert_eq!(run.period, Some(DAY));
    assert_eq!(run.next_slot, run.slot.map(|slot| slot + DAY));
    assert_eq!(run.valid_until, run.slot.map(|slot| slot + DAY / 2));
    assert!(!run.is_overdue(run.finished + DAY) && run.is_overdue(run.finished + 2 * DAY));
    assert_eq!(first.last_run().await.unwrap(), Some(run.clone()));
    let listed = client.completions().await.unwrap();
    assert_eq!(listed.iter().find(|run| run.name == name), Some(&run));

    // With another period it counts by its time. A slot of its own is at most a day away.
    let other = client.job(&name, 30 * DAY).unwrap();
    assert!(is_completed(&other.run(succeed).await.unwrap()));
    let anchored = second.anchor(run.started - 10 * DAY).unwrap();
    assert!(is_completed(&anchored.run(succeed).await.unwrap()));
    assert!(second.reset().await.unwrap());
    assert!(!other.reset().await.unwrap());
    assert!(!is_completed(&first.run(succeed).await.unwrap()));
    assert!(second.mutex().inspect().await.unwrap().is_none());
}

pub(super) async fn each_key_has_one_run(fixture: Fixture) {
    let client = fixture.client().await;
    let name = fresh_name("migrate");
    let job = |key: &str| client.once(&name, key).unwrap();
    let keys = ["v1", "v2 ünï:%", &"k".repeat(256)];
    for key in keys {
        let error = job(key).run(fail).await.unwrap_err();
        assert_eq!(error.to_string(), "failed");
        assert!(!is_completed(&job(key).run(succeed).await.unwrap()));
        assert!(is_completed(&job(key).run(succeed).await.unwrap()));
    }
    // The periodic job of that name has a record of its own.
    let [periodic] = shared(&fixture, &name).await;
    assert!(!is_completed(&periodic.run(succeed).await.unwrap()));
    let listed = client.completions().await.unwrap();
    let listed = listed.iter().filter(|run| run.name == name);
    let mut listed: Vec<_> = listed.map(|run| run.key.as_deref()).collect();
    listed.sort_unstable();
    let mut expected: Vec<_> = keys.into_iter().map(Some).chain([None]).collect();
    expected.sort_unstable();
    assert_eq!(listed, expected);
    assert!(job("v1").reset().await.unwrap());
    assert!(!is_completed(&job("v1").run(succeed).await.unwrap()));
    assert!(is_completed(&job(keys[1]).run(succeed).await.unwrap()));

    // A record is kept for its time.
    let short = job("short").keep(Duration::from_secs(1)).unwrap();
    assert!(!is_completed(&short.run(succeed).await.unwrap()));
    eventually_async(SOON, async || short.last_run().await.unwrap().is_none()).await;
    for key in ["", "a\nb", &"k".repeat(257)] {
        let error = client.once(&name, key).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidName, "{key:?}");
        assert_eq!(error.lock(), Some(&*name));
        assert!(error.store().is_some());
    }
}

pub(super) async fn a_waiter_takes_over_a_run_that_failed(fixture: Fixture) {
    let name = fresh_name("taken-over");
    let [first, second, third] = shared(&fixture, &name).await;
    let Ran::Now(run) = first.try_lock().await.unwrap() else {
        panic!("it is free");
    };
    assert!(matches!(second.try_lock().await.unwrap(), Ran::Busy));
    // Longer than a request takes, also on a busy machine.
    let limit = Duration::from_secs(4);
    let limited = second.lock_timeout(limit).await.unwrap();
    assert!(matches!(limited, Ran::Busy));
    let runs = Arc::default();
    let waiters = [&second, &third].map(|job| spawn_waiting(job, &runs));
    until_waiting(&first, 2).await;
    run.release().await.unwrap();
    for waiter in waiters {
        assert_ne!(soon(waiter).await, Ran::Busy);
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(is_completed(&first.run(succeed).await.unwrap()));
}

/// The completion and the grant reach them together. Those that are granted the lock run nothing under it.
async fn waiters_that_run_nothing_have_no_minimum_hold(fixture: &Fixture) {
    let name = fresh_name("min-hold");
    let [first, second, third] = shared(fixture, &name).await;
    let run = granted(&first).await;
    let runs = Arc::default();
    let waiters = [&second, &third].map(|job| {
        let job = job.with(LeaseOptions::new().min_hold(DAY)).unwrap();
        spawn_waiting(&job, &runs)
    });
    until_waiting(&first, 2).await;
    run.complete().await.unwrap();
    for waiter in waiters {
        assert!(is_completed(&soon(waiter).await));
    }
    eventually_async(SOON, async || {
        first.mutex().inspect().await.unwrap().is_none()
    })
    .await;
}

/// They do not wait for the lock, which is held still.
pub(super) async fn all_waiters_return_when_the_run_is_complete(fixture: Fixture) {
    waiters_that_run_nothing_have_no_minimum_hold(&fixture).await;
    let name = fresh_name("observed");
    let [first, second, third] = shared(&fixture, &name).await;
    let (outer, run) = held_for(&first).await;
    let runs = Arc::default();
    // Two tasks of a client, and one of another.
    let waiters = [&second, &second, &third].map(|job| spawn_waiting(job, &runs));
    until_waiting(&first, 2).await;
    let completed = run.complete().await.unwrap();
    let begun = Instant::now();
    for waiter in waiters {
        assert_eq!(soon(waiter).await, Ran::Before(completed.clone()));
    }
    println!("told after {:?}", begun.elapsed());
    assert!(outer.state().is_held());
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    // Nobody is left in the queue.
    until_waiting(&first, 0).await;
    outer.release().await.unwrap();
}

pub(super) async fn a_holder_that_was_cut_off_completes_nothing(fixture: Fixture) {
    let name = fresh_name("cut-off");
    let [first, second] = shared(&fixture, &name).await;
    let run = granted(&first).await;
    let lease = run.lease_id();
    second.mutex().revoke().await.unwrap().unwrap();
    let error = run.complete().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(second.last_run().await.unwrap(), None);
    assert!(!is_completed(&second.run(succeed).await.unwrap()));
    // Its own record may not be replaced by the one that was cut off.
    let stored = second.last_run().await.unwrap().unwrap();
    assert_ne!(stored.lease, lease);
}

/// Its lease was granted for another purpose, so the client reads whether the run is complete.
pub(super) async fn an_owner_that_enters_again_repeats_no_run(fixture: Fixture) {
    let client = fixture.client().await;
    let owner = LeaseOptions::new().owner(&Owner::new());
    let job = client.job(fresh_name("entered"), DAY).unwrap();
    let job = job.with(owner).unwrap();
    let outer = job.mutex().lock().await.unwrap();
    assert!(job.run(fail).await.is_err());
    assert!(!is_completed(&job.run(succeed).await.unwrap()));
    assert!(is_completed(&job.run(fail).await.unwrap()));
    let count = async || job.mutex().inspect().await.unwrap().unwrap().count;
    eventually_async(SOON, async || count().await == 1).await;
    outer.release().await.unwrap();
    assert!(job.mutex().inspect().await.unwrap().is_none());
}

/// A job that waits for a task of its client: only the store knows whether its run is complete.
pub(super) async fn a_lease_is_not_handed_off_to_a_run(fixture: Fixture) {
    let builder = Client::builder().handoff_time(SOON);
    let client = fixture.client_with(builder).await;
    let job = client.job(fresh_name("handed-off"), DAY).unwrap();
    for is_complete in [false, true] {
        let alone = job.mutex().lock().await.unwrap();
        let next = spawn_waiter(job.mutex());
        let runs = Arc::default();
        let waiting = spawn_waiting(&job, &runs);
        alone.release().await.unwrap();
        // Its lease has tokens for a hand-off, because a task waited behind it.
        soon(next).await.release().await.unwrap();
        assert_eq!(is_completed(&soon(waiting).await), is_complete);
        assert_eq!(runs.load(Ordering::SeqCst), u32::from(!is_complete));
    }
}

pub(super) async fn a_run_that_failed_keeps_the_lock_for_a_while(fixture: Fixture) {
    let name = fresh_name("retry");
    let [first, second] = shared(&fixture, &name).await;
    let delay = Duration::from_secs(4);
    let first = first.retry_after(delay).unwrap();
    let begun = Instant::now();
    assert!(first.run(fail).await.is_err());
    assert!(matches!(second.try_lock().await.unwrap(), Ran::Busy));
    assert!(!is_completed(&second.run(succeed).await.unwrap()));
    assert!(begun.elapsed() >= delay);
    // After a run that succeeded it does not.
    let client = fixture.client().await;
    let third = client.once(&name, "another").unwrap();
    let third = third.retry_after(DAY).unwrap();
    assert!(!is_completed(&third.run(succeed).await.unwrap()));
    assert!(first.mutex().inspect().await.unwrap().is_none());
}
