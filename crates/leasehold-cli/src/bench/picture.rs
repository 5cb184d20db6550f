//! The answer, for people.

use clap::ValueEnum as _;

use super::figures::Figures;
use super::report::Report;

/// How long the longest bar is, in characters.
const BAR: usize = 36;

/// The report as a few lines with a bar for each side.
pub(super) fn draw(report: &Report) -> String {
    let sides = [("leasehold", &report.ours), ("bare calls", &report.raw)];
    let scenario = report
        .scenario
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned());
    let mut lines = vec![
        format!(
            "{scenario}: {} on {}, {} s at {}",
            count(report.tasks, "task"),
            count(report.threads.into(), "thread"),
            report.seconds,
            report.store
        ),
        String::new(),
        "acquisitions a second".to_owned(),
    ];
    let most = most(&sides, |figures| figures.acquisitions_per_second);
    for (name, figures) in sides {
        let number = figures.acquisitions_per_second;
        let bar = bar(number / most);
        lines.push(format!("  {name:<10}  {bar} {:>11}", thousands(number)));
    }
    lines.extend([
        String::new(),
        format!(
            "{:<50} {:>10} {:>10} {:>10}",
            "one lock and release", "p50", "p95", "p99"
        ),
    ]);
    let most = self::most(&sides, |figures| figures.p50_us);
    for (name, figures) in sides {
        let bar = bar(figures.p50_us / most);
        let [p50, p95, p99] = [figures.p50_us, figures.p95_us, figures.p99_us].map(span);
        lines.push(format!("  {name:<10}  {bar} {p50:>10} {p95:>10} {p99:>10}"));
    }
    lines.push(String::new());
    lines.push(format!(
        "leasehold does {:.2} times the acquisitions of bare calls; one takes {:.2} times as long",
        report.ratio.throughput, report.ratio.p50
    ));
    let calls = [&report.ours, &report.raw].map(|figures| figures.commands_per_acquisition);
    if let [Some(ours), Some(raw)] = calls {
        lines.push(format!(
            "store calls for each acquisition: {ours:.2}, with bare calls {raw:.2}"
        ));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn most(sides: &[(&str, &Figures); 2], figure: impl Fn(&Figures) -> f64) -> f64 {
    let figures = sides.iter().map(|(_, figures)| figure(figures));
    figures.fold(f64::MIN_POSITIVE, f64::max)
}

/// A bar for a part of the longest, to an eighth of a character, and the room it leaves.
fn bar(part: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    // From 0 to 288: a share of a constant.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let eighths = (part.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let text = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    format!("{text:<BAR$}")
}

/// A time with the unit that suits it.
fn span(micros: f64) -> String {
    match micros {
        ..10.0 => format!("{micros:.2} µs"),
        10.0..1e3 => format!("{micros:.1} µs"),
        1e3..1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_part() {
        assert_eq!(bar(1.0), "█".repeat(BAR));
        assert_eq!(bar(0.5).trim_end(), "█".repeat(BAR / 2));
        assert_eq!(bar(1.0 / (8.0 * 36.0)).trim_end(), "▏");
        assert_eq!(bar(0.0), " ".repeat(BAR));
        assert_eq!(bar(f64::INFINITY), bar(1.0));
    }

    #[test]
    fn numbers_are_easy_to_read() {
        for (number, text) in [(7.0, "7"), (1_234.4, "1,234"), (1e6, "1,000,000")] {
            assert_eq!(thousands(number), text);
        }
        for (micros, text) in [
            (0.25, "0.25 µs"),
            (61.44, "61.4 µs"),
            (1_500.0, "1.50 ms"),
            (2e6, "2.00 s"),
        ] {
            assert_eq!(span(micros), text);
        }
    }
}
