//! `leasehold bench` with several processes. How fast they are depends on the machine; that what
//! they tell fits together does not.

use std::process::{Child, Stdio};

use leasehold_testkit::{RedisServer, eventually};
use serde_json::Value;

use crate::tools::{Place, RunToEnd, SOON, children_of, finish, kill, lives, stderr, stdout};

/// The report of a short run.
fn report(place: &Place, args: &[&str]) -> Value {
    report_of(place, "1", args)
}

fn report_of(place: &Place, seconds: &str, args: &[&str]) -> Value {
    let mut bench = place.leasehold(["bench", "--json", "--seconds", seconds, "--scenario"]);
    let output = bench.args(args).run_to_end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn near(figure: f64, expected: f64, within: f64) {
    assert!(
        (figure - expected).abs() <= within,
        "{figure}, not {expected}"
    );
}

fn sqlite() -> (tempfile::TempDir, Place) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/locks.db", folder.path().display());
    (folder, Place::with_store(url))
}

/// What is true of every crowd.
fn check_crowd(report: &Value, processes: usize) {
    let parts = report["by_process"].as_array().unwrap();
    assert_eq!(parts.len(), processes);
    let sum = |name: &str| parts.iter().map(|part| number(&part[name])).sum::<f64>();
    assert_eq!(sum("acquisitions"), number(&report["acquisitions"]));
    assert_eq!(sum("handoffs"), number(&report["handoffs"]));
    near(sum("share"), 1.0, 0.001);
    let acquisitions = number(&report["acquisitions"]);
    // It ran for a second.
    assert_eq!(number(&report["acquisitions_per_second"]), acquisitions);
    assert!(acquisitions > 0.0);
    for got in parts.iter().chain([report]) {
        let wait = |name: &str| number(&got["wait"][name]);
        assert!(wait("p50_us") <= wait("p99_us"), "{got}");
        assert!(wait("p99_us") <= wait("max_us"), "{got}");
    }
    let calls = |part: &Value| number(&part["commands_per_acquisition"]);
    let all_calls: f64 = parts
        .iter()
        .map(|part| calls(part) * number(&part["acquisitions"]))
        .sum();
    near(all_calls / acquisitions, calls(report), 0.001);
    let fairness = |name: &str| number(&report["fairness"][name]);
    let shares = parts.iter().map(|part| number(&part["share"]));
    assert_eq!(
        fairness("process_share_max"),
        shares.clone().fold(0.0, f64::max)
    );
    assert_eq!(fairness("process_share_min"), shares.fold(1.0, f64::min));
    assert!(fairness("task_per_second_min") <= fairness("task_per_second_median"));
    assert!(fairness("task_per_second_median") <= fairness("task_per_second_max"));
    let exclusion = &report["exclusion"];
    assert_eq!(exclusion["held"], true, "{exclusion}");
    assert!(number(&exclusion["acquisitions"]) >= acquisitions);
}

#[test]
fn contended_fits_together() {
    let server = RedisServer::start();
    let (_folder, file) = sqlite();
    for place in [Place::with_store(server.url()), file] {
        let args = ["contended", "--tasks", "4", "--processes", "3"];
        let report = report(&place, &args);
        check_crowd(&report, 3);
        assert_eq!(report["scenario"], "contended");
        assert_eq!((&report["tasks"], &report["names"]), (&4.into(), &1.into()));
        assert!(report["section"].is_null());
        assert!(number(&report["commands_per_acquisition"]) > 0.0);
    }
}

#[test]
fn the_critical_section_is_as_long_as_was_asked_for() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let args = ["contended", "--tasks", "4", "--section", "2ms"];
    let report = report(&place, &args);
    check_crowd(&report, 1);
    let section = |name: &str| number(&report["section"][name]);
    assert_eq!(section("asked_us"), 2_000.0);
    assert!(section("mean_us") >= 2_000.0);
    // At most the sections that the ends of the run cut are counted in the one and not the other.
    let in_sections = number(&report["acquisitions"]) * section("mean_us") / 1e6;
    near(section("in_use"), in_sections, 0.05);
    assert!(section("in_use") <= 1.0);
}

#[test]
fn many_fits_together() {
    let server = RedisServer::start();
    let (_folder, file) = sqlite();
    for place in [Place::with_store(server.url()), file] {
        let args = ["many", "--names", "50", "--tasks", "8", "--processes", "2"];
        let report = report(&place, &args);
        check_crowd(&report, 2);
        assert_eq!(
            (&report["scenario"], &report["names"]),
            (&"many".into(), &50.into())
        );
    }
}

#[test]
fn wakeup_fits_together() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let report = report(&place, &["wakeup", "--waiters", "3"]);
    for name in ["wake_up", "round_trip", "ping"] {
        let figure = |part: &str| number(&report[name][part]);
        assert!(figure("count") > 0.0, "{name}");
        assert!(
            figure("p50_us") > 0.0 && figure("p50_us") <= figure("p99_us"),
            "{name}"
        );
        assert!(figure("p99_us") <= figure("max_us"), "{name}");
    }
    let p50 = |name: &str| number(&report[name]["p50_us"]);
    near(
        number(&report["ratio"]["p50"]),
        p50("wake_up") / p50("round_trip"),
        0.001,
    );
    for (name, waiters) in [("one_waiter", 1), ("many_waiters", 3)] {
        let work = &report[name];
        assert_eq!(work["waiters"], waiters);
        assert!(number(&work["releases"]) > 0.0);
        assert!(number(&work["commands_per_release"]) >= 1.0);
        let (all, scripts) = (
            &work["server_cpu_us_per_release"],
            &work["script_us_per_release"],
        );
        assert!(number(all) > 0.0 && number(scripts) > 0.0, "{work}");
    }
    let cpu = |name: &str| number(&report[name]["server_cpu_us_per_release"]);
    near(
        number(&report["server_cpu_ratio"]),
        cpu("many_waiters") / cpu("one_waiter"),
        0.001,
    );
    let asleep = |name: &str| number(&report["asleep"][name]);
    assert_eq!(asleep("waiters"), 3.0);
    let chances = 3.0 * asleep("ttls");
    near(
        asleep("questions_per_waiter_and_ttl"),
        asleep("questions") / chances,
        0.001,
    );
    // Who waited has gone, and who held has released.
    let locks = place.leasehold(["ls", "--json"]).run_to_end();
    assert_eq!(stdout(&locks).trim(), "[]");
}

#[test]
fn wakeup_needs_no_server() {
    let (_folder, place) = sqlite();
    let report = report(&place, &["wakeup"]);
    assert!(number(&report["wake_up"]["count"]) > 0.0);
    assert!(number(&report["round_trip"]["p50_us"]) > 0.0);
    assert!(number(&report["asleep"]["questions_per_waiter_and_ttl"]) >= 0.0);
    for name in ["ping", "many_waiters", "server_cpu_ratio"] {
        assert!(report[name].is_null(), "{name}");
    }
    assert!(report["one_waiter"]["server_cpu_us_per_release"].is_null());
}

/// What is true wherever locks are renewed: every one in every third of its ttl, and none is lost.
fn check_renew(place: &Place, leases: u32) -> Value {
    let count = leases.to_string();
    let report = report_of(place, "3", &["renew", "--leases", &count, "--ttl", "3s"]);
    assert_eq!(
        (&report["scenario"], &report["ttl_ms"]),
        (&"renew".into(), &3_000.into())
    );
    let held = |name: &str| number(&report["held"][name]);
    // Measured for three seconds: each lease was due three times in them, and on a busy machine at least once.
    let renewals = held("renewals");
    let leases = f64::from(leases);
    assert!((leases * 0.5..leases * 5.0).contains(&renewals), "{report}");
    near(
        held("renewed_every_s") * renewals / leases,
        number(&report["seconds"]),
        0.01,
    );
    assert!(held("process_cpu") > 0.0);
    let trouble = |name: &str| number(&report["trouble"][name]);
    assert_eq!((trouble("lost"), trouble("held")), (0.0, leases));
    assert_eq!(report["left"], 0);
    let memory = |name: &str| number(&report["memory"][name]);
    assert!(memory("renewed") > memory("before") && memory("guard") > 0.0);
    for side in ["alone", "beside"] {
        let pairs = |name: &str| number(&report["pairs"][side][name]);
        assert!(
            pairs("count") > 0.0 && pairs("p50_us") <= pairs("p99_us"),
            "{side}"
        );
    }
    let p50 = |side: &str| number(&report["pairs"][side]["p50_us"]);
    near(
        number(&report["pairs"]["ratio"]["p50"]),
        p50("beside") / p50("alone"),
        0.001,
    );
    report
}

#[test]
fn renew_fits_together() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let report = check_renew(&place, 1_000);
    let held = |name: &str| number(&report["held"][name]);
    assert!(held("server_cpu") > 0.0);
    assert!(
        held("calls") > 0.0 && held("calls") < held("renewals"),
        "{report}"
    );
    near(
        held("calls_per_10_s") * number(&report["seconds"]) / 10.0,
        held("calls"),
        0.1,
    );
    let renewal = &report["renewal"];
    // All may fall between the slices that are compared.
    if !renewal.is_null() {
        let script = |side: &str| number(&renewal[side]["script_us"]);
        assert!(number(&renewal["bare"]["renewals"]) > 0.0);
        near(
            number(&renewal["ratio"]["script"]),
            script("ours") / script("bare"),
            0.001,
        );
    }
    // Nothing stays, not even the counters of all those names.
    let locks = place.leasehold(["ls", "--json"]).run_to_end();
    assert_eq!(stdout(&locks).trim(), "[]");
    let counters = server.cli(&["KEYS", "*held*"]);
    assert_eq!(counters.trim(), "");
}

#[test]
fn renew_needs_no_server() {
    let (_folder, file) = sqlite();
    for (place, calls) in [(file, true), (Place::with_store("memory:".into()), false)] {
        let report = check_renew(&place, 200);
        assert_eq!(report["held"]["calls"].is_number(), calls);
        assert!(report["held"]["server_cpu"].is_null() && report["renewal"].is_null());
    }
}

#[test]
fn people_get_bars() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let args = [
        "bench",
        "--seconds",
        "1",
        "--scenario",
        "contended",
        "--processes",
        "2",
    ];
    let output = place.leasehold(args).run_to_end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    for part in ["process 2", "█", "p99", "hand-offs", "held, "] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn what_has_no_meaning_is_refused() {
    let place = Place::with_store("redis://127.0.0.1:1".into());
    for (args, hint) in [
        (&["uncontended", "--processes", "2"][..], "contended, many"),
        (&["independent", "--section", "1ms"], "contended"),
        (&["contended", "--names", "5"], "many"),
        (&["many", "--section", "1ms"], "contended"),
        (&["contended", "--waiters", "5"], "wakeup"),
        (&["many", "--leases", "5"], "renew"),
        (&["uncontended", "--ttl", "5s"], "renew"),
        (&["renew", "--processes", "2"], "contended, many"),
        (&["renew", "--leases", "0"], "--leases"),
        (&["renew", "--seconds", "9"], "a third of the ttl"),
        (&["renew", "--ttl", "10ms", "--store", "memory:"], "ttl"),
        (&["wakeup", "--tasks", "5"], "--tasks"),
        (&["wakeup", "--threads", "2"], "--threads"),
        (&["wakeup", "--processes", "4"], "--processes"),
        (&["uncontended", "--tasks", "2"], "independent"),
        (&["contended", "--section", "2s"], "at most"),
        (&["contended", "--tasks", "0"], "--tasks"),
        (&["wakeup", "--store", "memory:"], "one process"),
        (
            &["many", "--store", "memory:", "--processes", "2"],
            "one process",
        ),
        // Nobody is there.
        (&["contended", "--processes", "2"], "127.0.0.1:1"),
        (&["wakeup"], "127.0.0.1:1"),
        (&["renew"], "127.0.0.1:1"),
    ] {
        let mut bench = place.leasehold(["bench", "--scenario"]);
        let output = bench.args(args).run_to_end();
        assert_eq!(output.status.code(), Some(125), "{args:?}");
        assert_eq!(stdout(&output), "", "{args:?}");
        let text = stderr(&output);
        assert!(
            text.contains(hint) && !text.contains("panicked"),
            "{args:?}: {text}"
        );
    }
}

/// A long run of three processes, and their ids.
fn long_run(place: &Place) -> (Child, Vec<String>) {
    let args = [
        "bench",
        "--scenario",
        "contended",
        "--processes",
        "3",
        "--seconds",
        "600",
    ];
    let mut bench = place.leasehold(args);
    let run = bench
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually(SOON, || children_of(run.id()).len() == 3);
    let members = children_of(run.id());
    (run, members)
}

#[test]
fn a_killed_bench_leaves_no_process_behind() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    for signal in ["KILL", "TERM"] {
        let (run, members) = long_run(&place);
        kill(signal, run.id());
        finish(run);
        for member in members {
            eventually(SOON, || !lives(&member));
        }
    }
}

/// The others do not go on for ten minutes.
#[test]
fn a_killed_member_ends_the_bench() {
    let server = RedisServer::start();
    let place = Place::with_store(server.url());
    let (run, members) = long_run(&place);
    kill("KILL", members[1].parse().unwrap());
    let output = finish(run);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).contains("before its time"),
        "{}",
        stderr(&output)
    );
    for member in members {
        eventually(SOON, || !lives(&member));
    }
}

/// The other processes learn it through a pipe.
#[test]
fn the_password_is_in_no_argument_and_in_no_answer() {
    let server = RedisServer::options().requirepass("hunter2").start();
    let url = format!("redis://127.0.0.1:{}", server.port());
    let place = Place::with_store(url);
    let args = [
        "bench",
        "--seconds",
        "2",
        "--scenario",
        "contended",
        "--processes",
        "2",
    ];
    let mut bench = place.leasehold(args);
    bench.env("LEASEHOLD_PASSWORD", "hunter2");
    let run = bench
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually(SOON, || children_of(run.id()).len() == 2);
    for member in children_of(run.id()) {
        // What it was started with, once it is no copy of its parent any more.
        let arguments = || std::fs::read_to_string(format!("/proc/{member}/cmdline")).unwrap();
        eventually(SOON, || arguments().contains("__bench-member"));
        assert!(!arguments().contains("hunter2"));
    }
    let output = finish(run);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(!stdout(&output).contains("hunter2") && !stderr(&output).contains("hunter2"));
}

/// By hand it does nothing: whoever starts it must say what for.
#[test]
fn a_member_without_a_run_ends() {
    let place = Place::new();
    let output = place.leasehold(["__bench-member"]).run_to_end();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), "");
    let mut member = place.leasehold(["__bench-member"]);
    let mut member = member
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut orders = member.stdin.take().unwrap();
    std::io::Write::write_all(&mut orders, b"{\"nonsense\":1}\n").unwrap();
    let output = finish(member);
    assert_eq!(output.status.code(), Some(125));
    assert!(stdout(&output).contains("nonsense"), "{}", stdout(&output));
    drop(orders);
}
