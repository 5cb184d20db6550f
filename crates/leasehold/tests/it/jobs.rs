//! Completions that are stored through faults, those that cannot be read, and the bounds and metrics of jobs.

use std::pin::pin;
use std::time::Duration;

use leasehold::__private::store::{Annotation, Name, Slot};
use leasehold::{ErrorKind, Guard, Job, LeaseOptions, Owner, Ran, Run};

use crate::faulty_store::FaultMode;
use crate::harness::{Harness, SECOND, TTL, poll_once, settle};
use crate::isolation::listeners::Metrics;
use crate::store_client::{assert_error, keyspace};
use crate::store_ext::StoreExt as _;

fn job(harness: &Harness) -> Job {
    let hour = Duration::from_secs(3_600);
    harness.client.job("harness", hour).unwrap()
}

/// A run of a job whose time has come.
pub(crate) async fn granted(job: &Job) -> Run {
    match job.lock().await.unwrap() {
        Ran::Now(run) => run,
        other => panic!("{other:?}"),
    }
}

/// A run, and perhaps another hold of its owner: then its note is written before the lock is released, not with it.
async fn granted_inside(harness: &Harness, has_outer: bool) -> (Job, Option<Guard>, Run) {
    let owner = LeaseOptions::new().owner(&Owner::new());
    let job = job(harness).with(owner).unwrap();
    let outer = match has_outer {
        true => Some(job.mutex().lock().await.unwrap()),
        false => None,
    };
    let run = granted(&job).await;
    (job, outer, run)
}

/// The store is away, or its reply is lost; with another hold of the owner, and without.
fn faults() -> impl Iterator<Item = (FaultMode, bool)> {
    let modes = [FaultMode::Unreachable, FaultMode::ReplyLost];
    modes
        .into_iter()
        .flat_map(|mode| [(mode, false), (mode, true)])
}

#[tokio::test]
async fn a_completion_without_a_reply_is_stored_again() {
    for (fault_mode, has_outer) in faults() {
        let harness = Harness::new();
        let (job, outer, run) = granted_inside(&harness, has_outer).await;
        harness.advance(2 * SECOND).await;
        harness.store.set(fault_mode);
        let mut completing = pin!(run.complete());
        assert!(poll_once(completing.as_mut()).await.is_none());
        harness.advance(SECOND).await;
        assert!(poll_once(completing.as_mut()).await.is_none());
        harness.store.set(FaultMode::None);
        harness.advance(SECOND).await;
        let completed = completing.await.unwrap();
        assert!(completed.took() >= 2 * SECOND && completed.took() < TTL);
        assert_eq!(job.last_run().await.unwrap(), Some(completed));
        if let Some(outer) = outer {
            outer.release().await.unwrap();
        }
        assert!(harness.mutex().inspect().await.unwrap().is_none());
    }
}

/// The only attempt was applied or not, and an operator revokes the lease before the next one.
#[tokio::test]
async fn after_a_loss_the_record_tells_whether_the_run_is_complete() {
    for (fault_mode, has_outer) in faults() {
        let is_complete = fault_mode == FaultMode::ReplyLost;
        let harness = Harness::new();
        let (job, _outer, run) = granted_inside(&harness, has_outer).await;
        harness.store.set(fault_mode);
        let mut completing = pin!(run.complete());
        assert!(poll_once(completing.as_mut()).await.is_none());
        let cut_off = harness.stranger().revoke().await.unwrap();
        assert_eq!(cut_off.is_some(), has_outer || !is_complete);
        harness.store.set(FaultMode::None);
        harness.advance(SECOND).await;
        match completing.await {
            Ok(_) => assert!(is_complete),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
                assert!(!is_complete);
            }
        }
        assert_eq!(job.last_run().await.unwrap().is_some(), is_complete);
    }
}

#[tokio::test]
async fn a_completion_is_tried_until_the_lock_is_lost() {
    for has_outer in [false, true] {
        let harness = Harness::new();
        let (job, _outer, run) = granted_inside(&harness, has_outer).await;
        harness.store.set(FaultMode::Unreachable);
        let completing = tokio::spawn(run.complete());
        settle().await;
        harness.advance(SECOND * 10).await;
        assert!(!completing.is_finished());
        for _ in 0..30 {
            harness.advance(SECOND).await;
        }
        let error = completing.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
        harness.store.set(FaultMode::None);
        assert!(job.last_run().await.unwrap().is_none());
    }
}

/// The lock does not stay taken for it.
#[tokio::test]
async fn a_completion_that_the_store_refuses_is_an_error_and_frees_the_lock() {
    for has_outer in [false, true] {
        let harness = Harness::new();
        let (job, outer, run) = granted_inside(&harness, has_outer).await;
        harness.store.set(FaultMode::RefusesNotes);
        let error = run.complete().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Store, "{error}");
        assert!(job.last_run().await.unwrap().is_none());
        if let Some(outer) = outer {
            outer.release().await.unwrap();
        }
        harness.advance(SECOND).await;
        assert!(harness.mutex().inspect().await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_an_error_and_can_be_removed() {
    let harness = Harness::new();
    let job = job(&harness);
    let run = granted(&job).await;
    let key = keyspace("leasehold", "default").key(Name::parse(run.name()).unwrap());
    let annotation = Annotation {
        lease: run.lease_id(),
        token: run.token(),
        text: "2 of a later version".into(),
    };
    let kind = Slot::Period;
    let stored = harness.store.annotate(&key, &kind, &annotation, TTL);
    stored.await.unwrap().unwrap();
    run.release().await.unwrap();
    let error = job.lock().await.unwrap_err();
    let parts = ["cannot be read: its version is not 1", "\"harness\""];
    assert_error(&error, ErrorKind::Store, &parts);
    assert!(harness.client.completions().await.unwrap().is_empty());
    let records = harness.client.completion_records().await.unwrap();
    assert_eq!(records, [Err((job.mutex().name().to_owned(), None))]);
    assert!(job.reset().await.unwrap());
    drop(granted(&job).await);
}

#[tokio::test]
async fn settings_outside_their_bounds_are_refused() {
    let harness = Harness::new();
    let every = |period| harness.client.job("job", period);
    let (short, day) = (
        Duration::from_millis(999),
        Duration::from_secs(24 * 60 * 60),
    );
    let job = every(Duration::from_secs(1)).unwrap();
    let once = harness.client.once("job", "v1").unwrap();
    let before_1970 = std::time::UNIX_EPOCH - SECOND;
    for error in [
        every(short).unwrap_err(),
        every(366 * day).unwrap_err(),
        job.keep(short).unwrap_err(),
        job.keep(3_651 * day).unwrap_err(),
        job.retry_after(Duration::ZERO).unwrap_err(),
        job.retry_after(day + SECOND).unwrap_err(),
        job.anchor(before_1970).unwrap_err(),
        once.anchor(std::time::SystemTime::now()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert_eq!(
            (error.lock(), error.store()),
            (Some("job"), Some("faulty:"))
        );
    }
}

#[tokio::test]
async fn the_end_of_the_last_completed_run_is_a_metric() {
    const METRIC: &str = "leasehold_job_last_success_timestamp_seconds";
    let metrics = Metrics::default();
    let _recorder = metrics::set_default_local_recorder(&metrics);
    let harness = Harness::new();
    let job = job(&harness);
    let run = granted(&job).await;
    let completed = run.complete().await.unwrap();
    let finished = completed
        .finished
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    assert_eq!(metrics.gauge(METRIC), finished.as_secs_f64());
    let overdue_at = completed.next_slot.unwrap() + completed.period.unwrap() / 2;
    assert_eq!(completed.overdue_at(), Some(overdue_at));
    let overdue_at = overdue_at.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(
        metrics.gauge("leasehold_job_overdue_timestamp_seconds"),
        overdue_at.as_secs_f64()
    );
}
