//! Results are merged as they were counted, and documents contain them.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use serde_json::json;

use super::figures::{ProcessResult, Spread, spreads};
use super::servers::Usage;
use super::table::{Unit, cell};
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
    let usage = Usage {
        scripts: 800.0,
        commands: 4_000.0,
        cpu_us: 10_000.0,
    };
    super::figures::from_processes(work, &processes, usage, Duration::from_secs(2))
}

#[test]
fn results_of_processes_are_merged() {
    let figures = figures(work("ping-pong"));
    // Bucket b is around 10^(b / 200) us. The lock changed hands after 2, 5 and 0.5 us.
    for (name, expected) in [
        ("acquisitions_per_second", 200.0..=200.0),
        ("wait_p50_us", 8.9..=9.2),
        ("wait_p99_us", 98.0..=101.0),
        ("share_deviation", 0.5..=0.5),
        ("server_us_per_acquisition", 25.0..=25.0),
        ("script_calls_per_acquisition", 2.0..=2.0),
        ("commands_per_acquisition", 10.0..=10.0),
        ("release_to_acquisition_p50_us", 2.0..=2.0),
        ("release_to_acquisition_p99_us", 5.0..=5.0),
    ] {
        assert!(expected.contains(&figures[name]), "{name}: {figures:?}");
    }
    assert!(!figures.contains_key("pair_p50_us"));
    assert!(!figures.contains_key("wait_p50_round_trips"));
}

#[test]
fn pairs_count_without_contention_and_round_trips_with_a_delay() {
    let figures = figures(work("distant-masters"));
    assert_eq!(figures["pair_p50_us"], figures["wait_p50_us"]);
    let round_trips = figures["wait_p50_us"] / 10_000.0;
    assert!((figures["wait_p50_round_trips"] - round_trips).abs() < 1e-3);
}

#[test]
fn the_processor_time_of_a_server_is_the_sum_of_user_and_system() {
    let info = "# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.25\r\nused_cpu_sys_children:9\r\n\
        # Commandstats\r\ncmdstat_set:calls=3,usec=1\r\ncmdstat_evalsha:calls=4,usec=2\r\n";
    let usage = Usage::parse(info);
    let counted = (usage.cpu_us, usage.scripts, usage.commands);
    assert_eq!(counted, (3.75e6, 4.0, 7.0));
    let since = usage.since(Usage::parse(
        "used_cpu_user:1\r\ncmdstat_set:calls=2,usec=1",
    ));
    assert_eq!((since.cpu_us, since.commands), (2.75e6, 5.0));
}

fn spread(median: f64, min: f64, max: f64) -> Spread {
    Spread { median, min, max }
}

#[test]
fn the_median_of_rounds_is_none_of_the_extremes() {
    let rates = |rates: &[f64]| {
        let rounds = rates.iter().map(|rate| Figures::from([("rate", *rate)]));
        spreads(&rounds.collect::<Vec<_>>())["rate"]
    };
    assert_eq!(rates(&[5.0, 1.0, 100.0]), spread(5.0, 1.0, 100.0));
    assert_eq!(rates(&[8.0, 1.0, 2.0, 4.0]), spread(3.0, 1.0, 8.0));
    assert_eq!(rates(&[7.0]), spread(7.0, 7.0, 7.0));
}

#[test]
fn a_round_without_a_figure_does_not_count_for_it() {
    let rounds = [
        Figures::from([("a", 1.0)]),
        Figures::from([("a", 3.0), ("b", 4.0)]),
    ];
    let spreads = spreads(&rounds);
    assert_eq!(spreads["a"].median, 2.0);
    assert_eq!(spreads["b"], spread(4.0, 4.0, 4.0));
}

#[test]
fn a_seed_repeats_an_order_and_another_one_does_not() {
    let order = |seed| {
        let mut items: Vec<_> = (0..15).collect();
        Random(seed).shuffle(&mut items);
        items
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    let mut sorted = order(1);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..15).collect::<Vec<_>>());
    let first: BTreeSet<_> = (0..200).map(|seed| order(seed)[0]).collect();
    assert_eq!(first.len(), 15, "each item can be the first one");
}

#[test]
fn a_plan_has_each_suitable_peer_once_in_a_round() {
    let options = Options {
        only: Vec::new(),
        work: Vec::new(),
        seconds: Duration::from_secs(1),
        rounds: NonZero::new(2).unwrap(),
        seed: 3,
    };
    let (peers, works) = (peers::all(), WORKS.iter().collect::<Vec<_>>());
    let plan = plan(&peers, &works, &options);
    let labels = |round: usize, name: &str| {
        let runs = plan
            .iter()
            .filter(|run| run.round == round && run.work.name == name);
        runs.map(|run| run.peer.label()).collect::<Vec<_>>()
    };
    let (first, second) = (labels(1, "contended"), labels(2, "contended"));
    assert_ne!(first, second);
    for mut round in [first, second] {
        round.sort_unstable();
        round.dedup();
        // Buckets are for the cluster.
        assert_eq!(round.len(), peers.len() - 1);
    }
    let independent = labels(1, "independent");
    // Without contention, a setting for waiting is the same work again.
    assert!(!independent.contains(&"rslock (fastest)".to_owned()));
    assert!(independent.contains(&"redisson (fair)".to_owned()));
    assert!(!labels(1, "masters").contains(&"redis-py".to_owned()));
    let mut cluster = labels(1, "cluster");
    cluster.sort_unstable();
    assert_eq!(cluster, ["leasehold", "leasehold (buckets)"]);
}

const RATE: &str = "acquisitions_per_second";
const CHANGE: &str = "release_to_acquisition_p50_us";

fn section(work: &str, libraries: &[(&str, &[(&'static str, f64)])]) -> Section {
    let results = libraries.iter().map(|(library, figures)| Entry {
        library: (*library).into(),
        figures: spreads(&[figures.iter().copied().collect()]),
    });
    Section {
        work: work.into(),
        what: "some work".into(),
        results: results.collect(),
    }
}

fn document(works: Vec<Section>) -> String {
    report::document(&Report {
        works,
        ..Report::default()
    })
}

#[test]
fn the_summary_names_where_leasehold_is_ahead_and_where_it_is_not() {
    let ahead = [
        ("leasehold", &[(RATE, 2_000.0)][..]),
        ("leasehold (no-handoff)", &[(RATE, 9_000.0)]),
        ("rslock", &[(RATE, 400.0)]),
        ("redsync", &[(RATE, 500.0)]),
    ];
    let behind = [
        ("leasehold", &[(RATE, 400.0)][..]),
        ("rslock", &[(RATE, 1_000.0)]),
    ];
    let equal = [
        ("leasehold", &[(RATE, 1.0), (CHANGE, 100.0)][..]),
        ("rslock", &[(RATE, 9.0), (CHANGE, 101.0)]),
    ];
    let document = document(vec![
        section("a", &ahead),
        section("b", &behind),
        section("c", &equal),
    ]);
    for expected in [
        "* Ahead of the best other library: a (4.00 x redsync).",
        "* Equal to the best other library: c (1.01 x rslock).",
        "* Behind the best other library: b (0.40 x rslock).",
        "| a    |     2,000 |       redsync: 500 |  4.00 |          5.00 |",
        "| redsync                |            500 |  4.00 |",
    ] {
        assert!(document.contains(expected), "{expected}\n{document}");
    }
}

#[test]
fn there_are_no_ratios_without_leasehold() {
    let document = document(vec![section("a", &[("rslock", &[(RATE, 400.0)])])]);
    assert!(!document.contains("## Summary"), "{document}");
    assert!(
        document.contains("| rslock  |            400 |     - |"),
        "{document}"
    );
}

#[test]
fn a_report_names_what_was_not_measured() {
    let left_out = BTreeMap::from([("redisson".to_owned(), "no java".to_owned())]);
    let report = Report {
        left_out,
        ..Report::default()
    };
    assert!(report::document(&report).contains("## Not measured\n\n* redisson: no java\n"));
}

#[test]
fn a_cell_has_one_unit_for_the_median_and_the_range() {
    for (figure, unit, expected) in [
        (
            spread(48_200.4, 9_100.0, 1_052_000.0),
            Unit::Count,
            "48,200 (9,100 to 1,052,000)",
        ),
        (
            spread(999.0, 10.0, 2_000.0),
            Unit::Micros,
            "999.0 µs (10.0 to 2,000.0)",
        ),
        (
            spread(1_500.0, 900.0, 2_000.0),
            Unit::Micros,
            "1.50 ms (0.90 to 2.00)",
        ),
        (spread(0.125, 0.125, 0.125), Unit::Part, "12.5 %"),
    ] {
        assert_eq!(cell(figure, unit), expected);
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
fn durations_are_positive() {
    assert_eq!(positive("0.5"), Ok(Duration::from_millis(500)));
    for wrong in ["0", "-1", "x", "1e300"] {
        positive(wrong).unwrap_err();
    }
}

#[test]
fn the_cores_of_a_list_are_its_first_and_its_last() {
    for (list, expected) in [
        ("\t0-3\n", Some((0, 3))),
        ("2,5-7", Some((2, 7))),
        ("4", Some((4, 4))),
        ("", None),
    ] {
        assert_eq!(machine::first_and_last(list), expected, "{list}");
    }
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
