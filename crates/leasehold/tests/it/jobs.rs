//! Completions that cannot be read, and the bounds and metrics of jobs.

use std::time::Duration;

use leasehold::__private::store::{Annotation, Name, Slot};
use leasehold::{ErrorKind, Job, Ran, Run};

use crate::harness::{Harness, SECOND, TTL};
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
