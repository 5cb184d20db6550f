//! Runs the bench for a second at real stores. What it measures depends on the machine; what it
//! counts does not.

use leasehold::Client;
use leasehold_testkit::RedisServer;

use super::*;

fn bench(url: &str, scenario: Scenario, tasks: u16, threads: u16) -> Report {
    let place = Place::new(url.into(), None, "leasehold".into(), "default".into());
    let alone = Alone {
        scenario,
        tasks,
        threads,
        span: Duration::from_secs(1),
        watchdog: None,
    };
    alone.measure(&place).unwrap()
}

/// One acquisition alone costs two calls on either side. With many at once ours travel together
/// and bare calls do not.
#[test]
fn calls_are_counted_and_ours_travel_together() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}/locks.db", folder.path().display());
    for url in [server.url(), file] {
        let alone = bench(&url, Scenario::Uncontended, 1, 1);
        let calls = alone.ours.commands_per_acquisition.unwrap();
        // The client also writes down who it is, once.
        assert!((2.0..2.2).contains(&calls), "{url}: {calls}");
        assert_eq!(alone.raw.commands_per_acquisition, Some(2.0), "{url}");

        let many = bench(&url, Scenario::Independent, 32, 1);
        let calls = many.ours.commands_per_acquisition.unwrap();
        assert!(calls < 1.0, "{url}: {calls}");
        assert_eq!(many.raw.commands_per_acquisition, Some(2.0), "{url}");
        assert!(many.ours.p50_us <= many.ours.p99_us);
    }
}

#[test]
fn memory_has_no_calls_and_many_threads_count_as_one() {
    let report = bench("memory:", Scenario::Independent, 8, 2);
    assert_eq!(report.ours.commands_per_acquisition, None);
    assert!(report.ours.acquisitions_per_second > 0.0);
    assert!(report.raw.acquisitions_per_second > 0.0);
    let ratio = report.ours.p50_us / report.raw.p50_us;
    assert!((report.ratio.p50 - ratio).abs() < 0.01);
}

/// Neither form of the answer tells the password, and no lock stays behind.
#[test]
fn a_bench_leaves_no_lock_and_tells_no_password() {
    let server = RedisServer::options().requirepass("hunter2").start();
    let report = bench(&server.url(), Scenario::Independent, 4, 1);
    let json = serde_json::to_string(&report).unwrap();
    let text = picture::draw(&report);
    assert!(json.contains("\"store\":\"redis://"), "{json}");
    assert!(!json.contains("hunter2") && !text.contains("hunter2"));
    let runtime = runtime(1).unwrap();
    let locks = runtime.block_on(async {
        let client = Client::connect(&server.url()).await.unwrap();
        client.locks().await.unwrap()
    });
    assert!(locks.is_empty(), "{locks:?}");
}
