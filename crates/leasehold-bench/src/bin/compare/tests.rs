//! Results are merged as they were counted, and documents contain them.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use serde_json::json;

use super::figures::{
    CHANGE, PAIR, ProcessResult, ROUND_TRIPS, SCRIPT_CALLS, SECTION, SHARE_DEVIATION, Spread, WAIT,
    WAIT_P99, spreads,
};
use super::runner::Runner;
use super::server_stats::ServerStats;
use super::*;

fn work(name: &str) -> &'static Work {
    WORKS.iter().find(|work| work.name == name).unwrap()
}

fn process(acquisitions: u64, waits: [(u32, u64); 2], held: [(u64, u64); 2]) -> ProcessResult {
    let histogram = BTreeMap::from(waits);
    let result = json!({
        "version": "1",
        "acquisitions": acquisitions,
        "wait_us": histogram,
        "wait_max_us": 1_500.0,
        "pair_us": histogram,
        "section_us": histogram,
        "held": held,
    });
    serde_json::from_value(result).unwrap()
}

fn figures(work: &Work) -> Figures {
    let processes = [
        process(300, [(200, 200), (400, 97)], [(0, 1_000), (9_000, 10_000)]),
        process(
            100,
            [(600, 2), (601, 1)],
            [(3_000, 4_000), (10_500, 11_000)],
        ),
    ];
    let stats = ServerStats {
        cpu: Duration::from_millis(10),
        script_calls: 800,
        ..ServerStats::default()
    };
    super::figures::from_processes(work, &processes, Some(stats), Duration::from_secs(2))
}

#[test]
fn results_of_processes_are_merged() {
    let figures = figures(work("ping-pong"));
    // Bucket b is around 10^(b / 200) us. The lock changed hands after 2, 5 and 0.5 us.
    for (name, expected) in [
        (RATE, 200.0..=200.0),
        (WAIT, 8.9..=9.2),
        (WAIT_P99, 98.0..=101.0),
        (SECTION, 8.9..=9.2),
        (SHARE_DEVIATION, 0.5..=0.5),
        (SERVER_TIME, 25.0..=25.0),
        (SCRIPT_CALLS, 2.0..=2.0),
        (CHANGE, 2.0..=2.0),
    ] {
        assert!(expected.contains(&figures[name]), "{name}: {figures:?}");
    }
    assert!(!figures.contains_key(PAIR));
    assert!(!figures.contains_key(ROUND_TRIPS));
}

#[test]
fn pairs_count_without_contention_and_round_trips_with_a_delay() {
    let figures = figures(work("distant-masters"));
    assert_eq!(figures[PAIR], figures[WAIT]);
    let round_trips = figures[WAIT] / 10_000.0;
    assert!((figures[ROUND_TRIPS] - round_trips).abs() < 1e-3);
}

#[test]
fn the_processor_time_of_a_server_is_the_sum_of_user_and_system() {
    let parse = |info: &str| ServerStats::parse(info.lines());
    let stats = parse(
        "# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.25\r\nused_cpu_sys_children:9\r\n\
         # Commandstats\r\ncmdstat_set:calls=3,usec=1\r\ncmdstat_evalsha:calls=4,usec=2\r\n",
    );
    let since = stats.since(&parse("used_cpu_user:1\r\ncmdstat_eval:calls=3,usec=1"));
    let found = [stats, since].map(|stats| (stats.cpu.as_millis(), stats.script_calls));
    assert_eq!(found, [(3_750, 4), (2_750, 1)]);
}

fn spread(median: f64, min: f64, max: f64) -> Spread {
    Spread { median, min, max }
}

#[test]
fn a_figure_of_several_rounds_is_its_median_where_it_was_observed() {
    for (rounds, expected) in [
        (&[Some(5.0), Some(1.0), Some(100.0)][..], (5.0, 1.0, 100.0)),
        (
            &[Some(8.0), Some(1.0), Some(2.0), Some(4.0)],
            (3.0, 1.0, 8.0),
        ),
        (&[Some(7.0)], (7.0, 7.0, 7.0)),
        (&[None, Some(4.0)], (4.0, 4.0, 4.0)),
    ] {
        let rounds = rounds.iter().map(|rate| {
            let figures = rate.iter().map(|rate| (RATE, *rate));
            figures.collect::<Figures>()
        });
        let (median, min, max) = expected;
        let spreads = spreads(&rounds.collect::<Vec<_>>());
        assert_eq!(spreads[RATE], spread(median, min, max));
    }
}

#[test]
fn a_plan_has_each_suitable_variant_once_in_a_round() {
    let variants: Vec<_> = libraries::all().collect();
    let works: Vec<_> = WORKS.iter().collect();
    let labels = |seed: u64, round: usize, name: &str| {
        let plan = plan(&variants, &works, seed);
        let measurements = plan
            .iter()
            .filter(|measurement| measurement.round == round && measurement.work.name == name);
        measurements
            .map(|measurement| measurement.variant.label())
            .collect::<Vec<_>>()
    };
    let (first, second) = (labels(3, 1, "contended"), labels(3, 2, "contended"));
    assert_eq!(first, labels(3, 1, "contended"));
    assert_ne!(first, labels(4, 1, "contended"));
    assert_ne!(first, second);
    for mut round in [first, second] {
        round.sort_unstable();
        round.dedup();
        // Buckets are for the cluster, a library each for etcd and ZooKeeper, and three variants are semaphores.
        assert_eq!(round.len(), variants.len() - 6);
    }
    let independent = labels(3, 1, "independent");
    // Where each task has its own lock, a variant of waiting is the same work again.
    assert!(!independent.contains(&"rslock (fastest)".to_owned()));
    assert!(independent.contains(&"redisson (fair)".to_owned()));
    assert!(!labels(3, 1, "masters").contains(&"redis-py".to_owned()));
    let mut cluster = labels(3, 1, "cluster");
    cluster.sort_unstable();
    assert_eq!(cluster, ["leasehold", "leasehold (buckets)"]);
    assert_eq!(labels(3, 1, "etcd").len(), 2);
    assert_eq!(labels(3, 1, "zookeeper").len(), 2);
    assert!(labels(3, 1, "permit").contains(&"redisson (expirable)".to_owned()));
    assert!(labels(3, 1, "reads").contains(&"redisson".to_owned()));
}

/// The report takes the first entry of a result for Leasehold's.
#[test]
fn leasehold_can_do_every_work_and_comes_first() {
    let variants: Vec<_> = libraries::all().collect();
    assert_eq!(variants[0].label(), LEASEHOLD);
    assert!(WORKS.iter().all(|work| variants[0].suits(work)));
}

fn work_result(work: &str, libraries: &[(&str, &[(&'static str, f64)])]) -> WorkResult {
    let results = libraries.iter().map(|(label, figures)| Entry {
        label: (*label).into(),
        figures: spreads(&[figures.iter().copied().collect()]),
    });
    WorkResult {
        work: work.into(),
        command: None,
        what: "some work".into(),
        results: results.collect(),
    }
}

#[test]
fn a_later_report_replaces_its_kinds_of_work() {
    let report = |command: &str, rate, works: &[&str]| ComparisonReport {
        command: command.into(),
        works: works
            .iter()
            .map(|work| work_result(work, &[("leasehold", &[(RATE, rate)])]))
            .collect(),
        ..ComparisonReport::default()
    };
    let all = || report("all", 100.0, &["pinned", "masters"]);
    let updated = all().updated(report("again", 300.0, &["masters"])).unwrap();
    let rates = updated.works.iter().map(|work| &work.results[0].figures);
    let rates: Vec<_> = rates.map(|figures| figures[RATE].median).collect();
    assert_eq!(rates, [100.0, 300.0]);
    let document = report::document(&updated);
    assert!(document.contains("\nMeasured again by `again`: masters.\n"));

    let first = all().updated(report("first", 1.0, &["permit"])).unwrap();
    assert_eq!(first.works[2].work, "permit");

    let mut elsewhere = report("again", 300.0, &["masters"]);
    elsewhere.machine = "another".into();
    assert!(all().updated(elsewhere).is_err());
    let versions = |version: &str| ComparisonReport {
        versions: BTreeMap::from([("rslock".to_owned(), version.to_owned())]),
        ..all()
    };
    assert!(versions("1").updated(versions("1")).is_ok());
    assert!(versions("1").updated(versions("2")).is_err());
}

#[test]
fn a_report_names_what_was_not_measured() {
    let left_out = BTreeMap::from([("redisson".to_owned(), "no java".to_owned())]);
    let report = ComparisonReport {
        left_out,
        ..ComparisonReport::default()
    };
    assert!(report::document(&report).contains("## Not measured\n\n* redisson: no java\n"));
}

#[test]
fn a_value_has_a_unit_that_suits_it() {
    for (value, unit, expected) in [
        (1_052_000.4, Unit::Count, "1,052,000"),
        (999.0, Unit::Micros, "999.0 µs"),
        (1_500.0, Unit::Micros, "1.50 ms"),
        (2_345_000_000.0, Unit::Micros, "2,345.00 s"),
    ] {
        assert_eq!(value_text(value, unit), expected);
    }
}

/// The tables in the documents are those of the figures beside them.
#[test]
fn the_committed_tables_are_those_of_the_committed_figures() {
    let read = |name: &str| fs::read_to_string(root().join("docs/bench").join(name)).unwrap();
    let report = serde_json::from_str(&read("compare.json")).unwrap();
    assert_eq!(read("compare.md"), report::document(&report));
}

#[test]
fn the_last_error_of_a_runner_is_known_after_much_output() {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "yes warning | head -n 20000 >&2; echo ready; echo no server >&2",
    ]);
    let mut runner = Runner::spawn(&mut command).unwrap();
    runner.wait_ready().unwrap();
    let error = runner.result(Duration::ZERO).unwrap_err();
    assert_eq!(error, "no server");
}

#[test]
fn a_proxy_delays_both_directions_and_keeps_the_order() {
    let delay = Duration::from_millis(20);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = proxy::Proxy::start(server.local_addr().unwrap().port(), delay).unwrap();
    let start = Instant::now();
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
    client.write_all(b"abc").unwrap();
    client.write_all(b"def").unwrap();
    let mut peer = server.accept().unwrap().0;
    let mut bytes = [0; 6];
    peer.read_exact(&mut bytes).unwrap();
    assert!(start.elapsed() >= delay);
    peer.write_all(&bytes).unwrap();
    client.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"abcdef");
    assert!(start.elapsed() >= 2 * delay);
    drop(peer);
    assert_eq!(client.read(&mut bytes).unwrap(), 0, "the end is passed on");
}
