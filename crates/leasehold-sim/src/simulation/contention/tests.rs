//! A lock over many masters is shared by few contenders, and many contenders do not hold each other up.

use super::*;
use crate::simulation::tests::run_all;
use crate::simulation::{Report, Setup};

const SEEDS: Range<u64> = 0..12;

fn few(masters: usize) -> Contention {
    Contention {
        contenders: 4,
        masters: Size::new(masters).unwrap(),
        hold: Duration::from_millis(100),
        notification: Duration::ZERO,
        script: Duration::from_micros(15),
        runtime: Duration::from_secs(10),
    }
}

fn report(seed: u64, contention: Contention) -> Report {
    run_all(seed..=seed, &Setup::contention(contention))
}

/// The smallest share of a contender, as a part of an equal share.
fn smallest_share(report: &Report) -> f64 {
    let least = *report.grants.iter().min().unwrap();
    let contenders = report.grants.len() as f64;
    least as f64 * contenders / report.acquisitions as f64
}

/// The mean of some seeds.
fn grants_per_second(contention: Contention) -> f64 {
    let seeds = 0..6_u8;
    let rates = seeds.clone().map(|seed| {
        let report = report(seed.into(), contention);
        assert!(
            report.times(Occurrence::Script) / report.acquisitions < 30,
            "{contention:?}, {report:?}"
        );
        report.acquisitions as f64 / contention.runtime.as_secs_f64()
    });
    rates.sum::<f64>() / f64::from(seeds.end)
}

#[test]
fn each_of_few_contenders_gets_a_third_of_its_share_at_least() {
    for masters in [3, 5] {
        // A client that releases may send its next request before others are notified.
        for notification in [0, 100, 200, 500].map(Duration::from_micros) {
            for seed in SEEDS {
                let contention = Contention {
                    notification,
                    ..few(masters)
                };
                let report = report(seed, contention);
                let share = smallest_share(&report);
                assert!(
                    share >= 1.0 / 3.0,
                    "{share:.2}, {seed}, {contention:?}, {report:?}"
                );
                assert!(report.acquisitions >= 90, "{report:?}");
            }
        }
    }
}

#[test]
fn many_contenders_get_most_of_the_grants_of_few_with_few_requests() {
    // Quick masters, and busy ones.
    for script in [15, 200].map(Duration::from_micros) {
        let short = |contenders| Contention {
            contenders,
            hold: Duration::ZERO,
            script,
            // The contenders of busy masters need some seconds to learn how many they are.
            runtime: Duration::from_secs(8),
            ..few(3)
        };
        let (few, many) = (grants_per_second(short(10)), grants_per_second(short(50)));
        println!("{few:.0} and {many:.0} grants each second, {script:?}");
        assert!(many >= few * 0.6, "{many:.0} of {few:.0}, {script:?}");
    }
}

/// A round trip for each of two phases and the release, and at most one backoff in each turn.
#[test]
fn an_uncontended_client_waits_for_one_backoff_in_each_turn() {
    let uncontended = Contention {
        contenders: 1,
        hold: Duration::ZERO,
        ..few(3)
    };
    let rate = grants_per_second(uncontended);
    assert!(rate > 960.0, "{rate}");
}
