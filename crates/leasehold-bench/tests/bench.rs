//! Whole runs, with several processes. Speed depends on the machine; that the figures fit together
//! does not.

// In a test and its helpers a panic is the answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::Client;
use leasehold_testkit::helper::process_state;
use leasehold_testkit::{
    PostgresServer, RedisServer, RunToEnd, eventually, finish, kill, temp_dir,
};
use rustix::process::Pid;
use serde_json::Value;

/// How long a test waits for what must happen.
const SOON: Duration = Duration::from_secs(20);

/// The program without the variables of whoever runs the tests.
fn bench(store: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-bench"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    command.args(args).env("LEASEHOLD_STORE", store);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The report of a run of one second.
fn report(store: &str, args: &[&str]) -> Value {
    report_of(store, "1", args)
}

fn report_of(store: &str, seconds: &str, args: &[&str]) -> Value {
    let mut command = bench(store, &["--json", "--seconds", seconds, "--scenario"]);
    let output = command.args(args).run_to_end();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The number at a path such as `held.renewals`.
#[track_caller]
fn number(report: &Value, path: &str) -> f64 {
    let value = report.pointer(&format!("/{}", path.replace('.', "/")));
    let number = value.and_then(Value::as_f64);
    number.unwrap_or_else(|| panic!("{path} is {value:?} in {report}"))
}

#[track_caller]
fn assert_near(figure: f64, expected: f64, within: f64) {
    let near = (figure - expected).abs() <= within;
    assert!(near, "{figure}, not {expected}");
}

fn sqlite() -> (tempfile::TempDir, String) {
    let directory = temp_dir();
    let url = format!("sqlite:{}/locks.db", directory.path().display());
    (directory, url)
}

/// Checks that the files of the baselines are removed.
fn check_only_the_store_is_left(directory: &tempfile::TempDir) {
    let entries = fs::read_dir(directory.path()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<_> = names.filter(|name| !name.starts_with("locks.db")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The names of the locks that are held.
fn held(store: &str) -> Vec<String> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let locks = runtime.block_on(async {
        let client = Client::connect(store).await.unwrap();
        client.locks().await.unwrap()
    });
    locks.into_iter().map(|lock| lock.name).collect()
}

/// A pair of a single task costs two calls on either side, unless a busy server lets a release be repeated. With many tasks
/// ours travel together, and baseline calls do not.
#[test]
fn calls_are_counted_and_ours_travel_together() {
    let server = RedisServer::start();
    let (_directory, file) = sqlite();
    for store in [server.url(), file] {
        let one = report(&store, &["uncontended"]);
        for side in ["commands_per_acquisition", "raw.commands_per_acquisition"] {
            assert_near(number(&one, side), 2.0, 0.05);
        }
        let ratio = number(&one, "p50_us") / number(&one, "raw.p50_us");
        assert_near(number(&one, "ratio.p50"), ratio, 0.001);

        let many = report(&store, &["independent", "--tasks", "32"]);
        assert!(number(&many, "commands_per_acquisition") < 1.0, "{many}");
        for one_by_one in ["raw", "one_task"] {
            let calls = number(&many[one_by_one], "commands_per_acquisition");
            assert_near(calls, 2.0, 0.05);
        }
        assert!(number(&many, "ratio.throughput_to_one_task") > 0.0);
        assert!(held(&store).is_empty());
    }
    // In memory there are no calls.
    let memory = report("memory:", &["independent", "--threads", "2"]);
    assert!(memory["commands_per_acquisition"].is_null(), "{memory}");
    assert!(number(&memory, "raw.acquisitions_per_second") > 0.0);
}

/// Checks a run with contention: the shares of processes, and mutual exclusion between them.
fn check_contention(store: &str, args: &[&str], processes: usize) -> Value {
    let report = report(store, args);
    assert_eq!(report["scenario"], args[0]);
    let parts = report["by_process"].as_array().unwrap();
    assert_eq!(parts.len(), processes);
    let sum = |path: &str| parts.iter().map(|part| number(part, path)).sum::<f64>();
    let acquisitions = number(&report, "acquisitions");
    assert!(acquisitions > 0.0);
    assert_eq!(sum("acquisitions"), acquisitions);
    assert_eq!(sum("handoffs"), number(&report, "handoffs"));
    assert_near(sum("share"), 1.0, 0.001);
    // It ran for a second.
    assert_eq!(number(&report, "acquisitions_per_second"), acquisitions);
    assert!(
        number(&report, "wait.p99_us") > 0.0 && number(&report, "commands_per_acquisition") > 0.0
    );
    assert_eq!(report["exclusion"]["held"], true, "{report}");
    assert!(number(&report, "exclusion.acquisitions") >= acquisitions);
    report
}

#[test]
fn tasks_of_several_processes_exclude_each_other() {
    let server = RedisServer::start();
    let (directory, file) = sqlite();
    for store in [server.url(), file] {
        let args = ["contended", "--tasks", "4", "--processes", "3"];
        let report = check_contention(&store, &args, 3);
        assert!(report["section"].is_null() && report["writers"].is_null());
        let args = [
            "contended",
            "--tasks",
            "4",
            "--processes",
            "3",
            "--reads",
            "50",
        ];
        let report = check_contention(&store, &args, 3);
        let writers = number(&report, "writers.wait.count");
        assert!(writers > 0.0 && writers < number(&report, "wait.count"));
        let ratio = number(&report, "acquisitions") / number(&report, "mutex.acquisitions");
        assert_near(number(&report, "mutex.ratio.throughput"), ratio, 0.001);
        let apart = &report["writer_apart"];
        // All others read in the first process.
        let writes = number(apart, "by_process.1.acquisitions");
        assert!(writes > 0.0 && writes < number(apart, "acquisitions"));
        assert!(number(apart, "writers.wait.count") >= writes);
        for other in [&report["mutex"], apart] {
            assert_eq!(other["exclusion"]["held"], true, "{report}");
        }
        let args = ["many", "--names", "50", "--tasks", "8", "--processes", "2"];
        assert_eq!(check_contention(&store, &args, 2)["names"], 50);
    }
    check_only_the_store_is_left(&directory);
}

#[test]
fn primitives_are_measured_beside_the_mutex() {
    let server = RedisServer::start();
    let report = report(&server.url(), &["primitives", "--waiters", "100"]);
    for row in ["mutex", "permit", "permit_beside_1000_holders"] {
        assert_near(number(&report[row], "commands_per_acquisition"), 2.0, 0.5);
    }
    for row in ["mutexes", "permits", "reads"] {
        assert!(number(&report[row], "ratio.server_cpu") > 0.0, "{report}");
    }
    let readers = &report["local_readers"];
    assert!(
        number(readers, "commands_per_acquisition") < 0.5,
        "{report}"
    );
    assert!(number(&report, "renewal.permits.renewals") >= 64.0);
    for (at, readers) in [("0", 10.0), ("1", 100.0)] {
        let queue = |name: &str| number(&report, &format!("behind_a_writer.{at}.{name}"));
        assert_eq!(queue("readers"), readers);
        assert!(queue("memory_bytes_each") >= 0.0 && queue("script_us_each") > 0.0);
    }
    let slow_log = server.cli(&["CONFIG", "GET", "slowlog-max-len"]);
    assert!(slow_log.contains("128"), "{slow_log}");
    eventually(SOON, || held(&server.url()).is_empty());
}

#[test]
fn advisory_locks_exclude_each_other() {
    let server = PostgresServer::start();
    // Never through a pooler: a session holds the lock.
    let url = format!("postgres://testkit@127.0.0.1:{}/postgres", server.port());
    let report = report(&url, &["uncontended"]);
    assert_near(number(&report, "raw.commands_per_acquisition"), 2.0, 0.1);
    let args = ["contended", "--tasks", "4", "--processes", "2"];
    let report = check_contention(&url, &args, 2);
    for advisory in ["advisory_wait", "advisory_poll"] {
        let advisory = &report[advisory];
        assert_eq!(advisory["exclusion"]["held"], true, "{report}");
        let ratio = number(&report, "acquisitions") / number(advisory, "acquisitions");
        assert_near(number(advisory, "ratio.throughput"), ratio, 0.001);
        assert!(number(advisory, "wait.p99_us") > 0.0);
    }
}

#[test]
fn the_critical_section_is_as_long_as_requested() {
    let server = RedisServer::start();
    // Two threads, so that holders could overlap if the lock let them.
    let args = ["contended", "--threads", "2", "--section", "2ms"];
    let report = check_contention(&server.url(), &args, 1);
    assert_eq!(number(&report, "section.requested_us"), 2_000.0);
    assert!(number(&report, "section.mean_us") >= 2_000.0);
    let in_use = number(&report, "section.in_use");
    assert!(in_use > 0.0 && in_use <= 1.0, "{report}");
}

#[test]
fn wakeup_measures_the_server_and_leaves_no_lock() {
    let server = RedisServer::start();
    let report = report(&server.url(), &["wakeup", "--waiters", "3"]);
    for name in ["wakeup", "round_trip"] {
        assert!(number(&report[name], "count") > 0.0, "{name}");
        assert!(number(&report[name], "p50_us") > 0.0, "{name}");
    }
    for (name, waiters) in [("one_waiter", 1), ("many_waiters", 3)] {
        let work = &report[name];
        assert_eq!(work["waiters"], waiters);
        assert!(number(work, "releases") > 0.0);
        assert!(number(work, "commands_per_release") >= 1.0);
        assert!(number(work, "server_cpu_us_per_release") > 0.0);
        assert!(number(work, "script_us_per_release") > 0.0);
    }
    assert!(number(&report, "server_cpu_ratio") > 0.0);
    assert_eq!(report["while_waiting"]["waiters"], 3);
    assert!(number(&report, "while_waiting.requests") >= 0.0);
    // The waiters have left, and the holder has released.
    assert!(held(&server.url()).is_empty());
}

#[test]
fn wakeup_needs_no_server() {
    let (directory, file) = sqlite();
    let report = report(&file, &["wakeup", "--election"]);
    assert!(number(&report, "wakeup.count") > 0.0);
    let proclaimed = number(&report, "proclaimed.p50_us");
    assert!(proclaimed >= number(&report, "wakeup.p50_us"), "{report}");
    assert!(number(&report, "round_trip.p50_us") > 0.0);
    assert!(number(&report, "while_waiting.requests_per_waiter_and_ttl") >= 0.0);
    for name in ["many_waiters", "server_cpu_ratio"] {
        assert!(report[name].is_null(), "{name}");
    }
    assert!(report["one_waiter"]["server_cpu_us_per_release"].is_null());
    check_only_the_store_is_left(&directory);
}

/// Checks a run with observers: each of them is notified of each change.
fn check_observe(store: &str, args: &[&str]) -> Value {
    let report = report(store, &[&["observe", "--observers", "3"], args].concat());
    let changes = number(&report, "changes");
    assert!(changes > 0.0);
    assert_eq!(number(&report, "granted.count"), changes);
    for name in ["notified", "notified_since_grant"] {
        assert_eq!(number(&report[name], "count"), 3.0 * changes, "{report}");
    }
    assert!(number(&report, "notified.p50_us") > 0.0);
    report
}

#[test]
fn every_observer_is_notified_of_each_change() {
    let server = RedisServer::start();
    let report = check_observe(&server.url(), &["--election", "--processes", "2"]);
    assert!(number(&report, "readings_per_change") > 0.0);
    assert!(number(&report, "server_cpu_us_per_change") > 0.0);
    assert!(held(&server.url()).is_empty());
    let report = check_observe("memory:", &[]);
    assert!(report["readings_per_change"].is_null());
}

/// Checks what is true wherever locks are renewed: each in every third of its ttl, and none is lost.
fn check_renew(store: &str, leases: u32) -> Value {
    let count = leases.to_string();
    let report = report_of(store, "9", &["renew", "--leases", &count, "--ttl", "9s"]);
    assert_eq!(report["scenario"], "renew");
    assert_eq!(number(&report, "ttl_ms"), 9_000.0);
    // Observed for nine seconds: each lease was due three times in them, and on a busy machine at least once.
    let renewals = number(&report, "held.renewals");
    let leases = f64::from(leases);
    assert!((leases * 0.5..leases * 5.0).contains(&renewals), "{report}");
    let observed = number(&report, "held.renewed_every_s") * renewals / leases;
    assert_near(observed, number(&report, "seconds"), 0.01);
    assert!(number(&report, "held.process_cpu") > 0.0);
    assert_eq!(number(&report, "trouble.lost"), 0.0);
    assert_eq!(number(&report, "trouble.held"), leases);
    assert_eq!(report["still_held"], 0);
    assert!(number(&report, "memory.renewed") > number(&report, "memory.before"));
    for side in ["without_renewals", "with_renewals"] {
        assert!(number(&report["pairs"][side], "count") > 0.0, "{side}");
    }
    report
}

#[test]
fn renew_measures_the_server_and_leaves_nothing() {
    let server = RedisServer::start();
    let report = check_renew(&server.url(), 1_000);
    let held = |name: &str| number(&report["held"], name);
    assert!(held("server_cpu") > 0.0);
    assert!(
        held("calls") > 0.0 && held("calls") < held("renewals"),
        "{report}"
    );
    // All may fall between the slices that are compared.
    if !report["renewal"].is_null() {
        assert!(number(&report, "renewal.baseline.renewals") > 0.0);
    }
    // Not even the counters of all those names.
    assert!(self::held(&server.url()).is_empty());
    assert_eq!(server.cli(&["KEYS", "*held*"]).trim(), "");
}

#[test]
fn renew_measures_a_database() {
    let server = PostgresServer::start();
    let url = format!("postgres://testkit@127.0.0.1:{}/postgres", server.port());
    let report = check_renew(&url, 200);
    assert!(number(&report, "held.server_cpu") > 0.0);
    let sizes = report["tables"]["bytes"].as_array().unwrap();
    assert_eq!(sizes.len(), 4);
    assert!(sizes.iter().all(|size| size.as_i64() > Some(0)));
    assert!(report["renewal"].is_null());
}

/// Checks a run in a file or in memory. Only those in a file are calls.
fn check_local_renew(store: &str, calls: bool) {
    let report = check_renew(store, 200);
    assert_eq!(report["held"]["calls"].is_number(), calls);
    assert!(report["held"]["server_cpu"].is_null() && report["renewal"].is_null());
}

#[test]
fn renew_needs_no_server() {
    let (_directory, file) = sqlite();
    check_local_renew(&file, true);
}

#[test]
fn renew_needs_no_file() {
    check_local_renew("memory:", false);
}

#[test]
fn failures_are_reported_and_exit_with_125() {
    let unreachable = "redis://127.0.0.1:1";
    for (store, args, hint) in [
        (unreachable, &["--seconds", "0"][..], "--seconds"),
        (unreachable, &["--processes", "2"], "contended, many"),
        (
            unreachable,
            &["--scenario", "contended", "--processes", "2"],
            "127.0.0.1:1",
        ),
        (unreachable, &["--scenario", "wakeup"], "127.0.0.1:1"),
        (unreachable, &["--scenario", "renew"], "127.0.0.1:1"),
        ("memory:", &["--scenario", "renew", "--ttl", "10ms"], "ttl"),
    ] {
        let output = bench(store, args).run_to_end();
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            text.contains(hint) && !text.contains("panicked"),
            "{args:?}: {text}"
        );
    }
}

/// The workers of a run that have not ended.
fn workers_of(run: &Child) -> Vec<String> {
    let run = run.id();
    // Its main thread has started them.
    let children = fs::read_to_string(format!("/proc/{run}/task/{run}/children")).unwrap();
    children.split_whitespace().map(str::to_owned).collect()
}

/// A run of two processes, and its workers.
fn run_of_two(store: &str, seconds: &str, password: &str) -> (Child, Vec<String>) {
    let args = ["--scenario=contended", "--processes=2", "--seconds"];
    let mut command = bench(store, &args);
    command.arg(seconds).env("LEASEHOLD_PASSWORD", password);
    let run = command.spawn().unwrap();
    eventually(SOON, || workers_of(&run).len() == 2);
    let workers = workers_of(&run);
    (run, workers)
}

/// Waits until no process lives; a zombie does not.
fn wait_for_ends(workers: &[String]) {
    for worker in workers {
        let pid = worker.parse().ok().and_then(Pid::from_raw).unwrap();
        eventually(SOON, || {
            matches!(process_state(pid), None | Some('Z' | 'X'))
        });
    }
}

#[test]
fn a_killed_run_leaves_no_process_behind() {
    let server = RedisServer::start();
    for signal in ["KILL", "TERM"] {
        let (run, workers) = run_of_two(&server.url(), "600", "");
        kill(signal, run.id());
        finish(run);
        wait_for_ends(&workers);
    }
}

/// The others do not go on for ten minutes.
#[test]
fn a_killed_worker_ends_the_run() {
    let server = RedisServer::start();
    let (run, workers) = run_of_two(&server.url(), "600", "");
    kill("KILL", workers[1].parse().unwrap());
    let output = finish(run);
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("before its time"), "{text}");
    wait_for_ends(&workers);
}

/// The workers receive the password through a pipe. Without JSON, each figure is a line.
#[test]
fn the_password_is_in_no_argument_and_in_no_output() {
    let server = RedisServer::options().requirepass("hunter2").start();
    let store = format!("redis://127.0.0.1:{}", server.port());
    let (run, workers) = run_of_two(&store, "2", "hunter2");
    for worker in workers {
        // Once it is no longer a copy of its parent.
        let arguments = || fs::read_to_string(format!("/proc/{worker}/cmdline")).unwrap();
        eventually(SOON, || arguments().contains("__worker"));
        assert!(!arguments().contains("hunter2"));
    }
    let output = finish(run);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(!text.contains("hunter2"));
    for part in ["by_process.1.wait.p99_us", "exclusion.held"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_worker_without_a_run_ends() {
    let output = bench("memory:", &["__worker"]).run_to_end();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b""[..]));
    let mut command = bench("memory:", &["__worker"]);
    let mut worker = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut orders = worker.stdin.take().unwrap();
    orders.write_all(b"{\"order\":1}\n").unwrap();
    let output = finish(worker);
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("makes no sense"), "{text}");
    drop(orders);
}
