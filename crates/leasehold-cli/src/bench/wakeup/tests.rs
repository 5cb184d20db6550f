//! The figures about waking up, from counts that are known.

use super::holds::Hold;
use super::*;
use crate::bench::clock::Moment;

fn times(micros: impl IntoIterator<Item = u64>) -> Times {
    let mut times = Times::new().unwrap();
    for micros in micros {
        times.record_nanos(micros * 1_000, 1);
    }
    times
}

/// So many releases with two calls each.
fn seen(releases: usize) -> Seen {
    let hold = Hold {
        asked: Moment::default(),
        acquired: Moment::default(),
        released: Moment::default(),
    };
    Seen {
        holds: vec![hold; releases],
        round_trips: times([]),
        pings: times([]),
        calls: Some(2 * releases as u64),
    }
}

fn load(cpu_us: u64, script_calls: u64, script_us: u64) -> Load {
    Load {
        cpu: Duration::from_micros(cpu_us),
        script_calls,
        script_time: Duration::from_micros(script_us),
    }
}

fn findings() -> Findings {
    let mut one = Served::default();
    one.add(&[seen(40), seen(60)], Some(load(10_000, 200, 4_000)));
    let mut many = Served::default();
    many.add(&[seen(30), seen(20)], Some(load(6_000, 100, 2_500)));
    many.add(&[seen(30), seen(20)], Some(load(6_000, 100, 2_500)));
    let questions = [(5, Some(9)), (6, Some(0))].map(|(of_waiters, of_holder)| Questions {
        of_waiters: Some(of_waiters),
        of_holder,
    });
    Findings {
        pause: Duration::from_micros(500),
        wake_ups: times(60..=160),
        round_trips: times([100; 10]),
        pings: times([50; 10]),
        one,
        many,
        asleep: Asleep::of(4, &questions, Some(load(1, 17, 1))),
    }
}

fn report(waiters: u16, findings: &Findings) -> Result<Report, Failure> {
    let wakeup = Wakeup {
        waiters,
        span: Duration::from_secs(5),
    };
    Report::new(&wakeup, "redis://host".into(), findings)
}

fn near(figure: f64, expected: f64) {
    assert!(
        (figure / expected - 1.0).abs() < 0.002,
        "{figure}, not {expected}"
    );
}

#[test]
fn figures_are_what_was_counted() {
    let report = report(4, &findings()).unwrap();
    assert_eq!(report.wake_up.count, 101);
    near(report.wake_up.p50_us, 110.0);
    near(report.wake_up.max_us, 160.0);
    near(report.ratio.p50, 1.1);
    near(report.ping.unwrap().p50_us, 50.0);
    assert_eq!(report.pause_us, 500.0);
    let one = report.one_waiter;
    assert_eq!((one.waiters, one.releases), (1, 100));
    assert_eq!(one.commands_per_release, Some(2.0));
    assert_eq!(one.server_cpu_us_per_release, Some(100.0));
    assert_eq!(one.script_us_per_release, Some(40.0));
    let many = report.many_waiters.unwrap();
    assert_eq!((many.waiters, many.releases), (4, 100));
    assert_eq!(many.server_cpu_us_per_release, Some(120.0));
    assert_eq!(report.server_cpu_ratio, Some(1.2));
    // The server ran 17 scripts, 9 of them for the holder.
    assert_eq!(report.asleep.questions, Some(8));
    assert_eq!(report.asleep.questions_per_waiter_and_ttl, Some(1.0));
}

#[test]
fn what_the_server_does_not_tell_is_not_known() {
    let mut found = findings();
    found.many.add(&[seen(1)], None);
    let questions = [(5, 9), (3, 0)].map(|(of_waiters, of_holder)| Questions {
        of_waiters: Some(of_waiters),
        of_holder: Some(of_holder),
    });
    found.asleep = Asleep::of(4, &questions, None);
    found.pings = times([]);
    let report = report(4, &found).unwrap();
    let many = report.many_waiters.unwrap();
    assert_eq!(many.server_cpu_us_per_release, None);
    assert_eq!(many.commands_per_release, Some(2.0));
    assert_eq!(report.server_cpu_ratio, None);
    assert!(report.ping.is_none());
    // By the clients' own count.
    assert_eq!(report.asleep.questions_per_waiter_and_ttl, Some(1.0));
}

#[test]
fn one_waiter_is_not_compared_with_many() {
    let report = report(1, &findings()).unwrap();
    assert!(report.many_waiters.is_none());
    assert!(report.server_cpu_ratio.is_none());
    assert!(!draw(&report).contains("many"));
}

#[test]
fn nobody_woken_is_a_failure_with_advice() {
    let mut found = findings();
    found.wake_ups = times([]);
    let failure = report(1, &found).unwrap_err().to_string();
    assert!(failure.contains("--seconds"), "{failure}");
}

#[test]
fn clients_are_shared_out_between_two_processes() {
    for (clients, first, second) in [(2, 1, 1), (3, 2, 1), (101, 51, 50)] {
        assert_eq!(
            (Part::share(clients, 0), Part::share(clients, 1)),
            (first, second)
        );
    }
}

#[test]
fn the_picture_has_a_bar_for_each_figure() {
    let picture = draw(&report(4, &findings()).unwrap());
    for name in ["wake-up", "bare call", "ping", "1 waiter", "4 waiters"] {
        let mut lines = picture.lines().map(str::trim_start);
        let barred = lines.any(|line| line.starts_with(name) && line.contains('█'));
        assert!(barred, "{name}:\n{picture}");
    }
    assert!(picture.contains("1.10 times a bare call"), "{picture}");
    let widest = picture.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(84), "{widest:?}:\n{picture}");
}
