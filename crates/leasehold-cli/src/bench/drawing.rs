//! Bars, numbers and times for people.

/// How long the longest bar is, in characters.
pub(super) const BAR: usize = 36;

/// A bar for a part of the longest, to an eighth of a character, and the room it leaves.
pub(super) fn bar(part: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    // From 0 to 288: a share of a constant.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let eighths = (part.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    let text = "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    format!("{text:<BAR$}")
}

/// A time with the unit that suits it.
pub(super) fn span(micros: f64) -> String {
    match micros {
        ..10.0 => format!("{micros:.2} µs"),
        10.0..1e3 => format!("{micros:.1} µs"),
        1e3..1e6 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

pub(super) fn thousands(number: f64) -> String {
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

/// A part of a whole.
pub(super) fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

pub(super) fn count(number: usize, noun: &str) -> String {
    let number_text = thousands(number as f64);
    match (number, noun.strip_suffix("ss")) {
        (1, _) => format!("1 {noun}"),
        (_, Some(_)) => format!("{number_text} {noun}es"),
        _ => format!("{number_text} {noun}s"),
    }
}

/// A line with a name, a bar and what it stands for.
pub(super) fn barred(name: &str, part: f64, figures: &[String]) -> String {
    let mut line = format!("  {name:<11} {}", bar(part));
    for figure in figures {
        line.push_str(&format!(" {figure:>10}"));
    }
    line
}

/// The headings above lines with bars.
pub(super) fn heading(text: &str, figures: &[&str]) -> String {
    let mut line = format!("{text:<50}");
    for figure in figures {
        line.push_str(&format!(" {figure:>10}"));
    }
    line.trim_end().to_owned()
}

/// A line with a figure and no bar.
pub(super) fn plain(name: &str, figure: &str) -> String {
    format!("  {name:<48} {figure}")
}

/// How many times as much.
pub(super) fn times(ratio: f64) -> String {
    if ratio < 100.0 {
        format!("{ratio:.2} times")
    } else {
        format!("{} times", thousands(ratio))
    }
}

/// The name of a scenario, as on the command line.
pub(super) fn name_of(value: &impl clap::ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
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
        assert_eq!(count(1, "process"), "1 process");
        assert_eq!(count(4, "process"), "4 processes");
        assert_eq!(count(1_000, "name"), "1,000 names");
        assert_eq!(percent(0.973_4), "97.3 %");
        assert_eq!(times(1.096), "1.10 times");
        assert_eq!(times(1_234.5), "1,234 times");
    }

    #[test]
    fn figures_stand_below_their_headings() {
        let heading = heading("waits", &["p50", "p99"]);
        let line = barred("all", 0.5, &["1.00 µs".to_owned(), "2.00 µs".to_owned()]);
        assert_eq!(heading.chars().count(), line.chars().count());
    }
}
